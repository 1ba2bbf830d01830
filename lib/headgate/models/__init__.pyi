from .baselines import BASELINES as BASELINES
from .batch_client import (
    BatchClient as BatchClient,
    BatchSender as BatchSender,
    BatchStatus as BatchStatus,
    batch_line as batch_line,
)
from .batch_routes import TASK_METADATA as TASK_METADATA, BatchRoutes as BatchRoutes
from .client import (
    ChatClient as ChatClient,
    ClientSettings as ClientSettings,
    Connections as Connections,
    Journey as Journey,
    read_up_to as read_up_to,
    request_body as request_body,
)
from .endpoint import serve as serve
from .answer import (
    failure_of_status as failure_of_status,
    kind_of_status as kind_of_status,
    read_completion as read_completion,
    retry_after_s as retry_after_s,
)
from .faults import Failure as Failure, FaultPlan as FaultPlan, RateLimit as RateLimit, Slow as Slow
from .local_model import (
    LOCAL_MODEL as LOCAL_MODEL,
    is_local_model_installed as is_local_model_installed,
    run_local_model as run_local_model,
    weights_path as weights_path,
)
from .retry import GiveUp as GiveUp, RetryPolicy as RetryPolicy
from .endpoint import run_baselines as run_baselines
from .baselines import SIMULATED as SIMULATED, SimulationPlan as SimulationPlan
from .client import ToolTrials as ToolTrials
from .wire import TASK_HEADER as TASK_HEADER, TASK_HEADER_OPTION as TASK_HEADER_OPTION, TaskReference as TaskReference
from .rate_headers import rate_notes as rate_notes
