from .baselines import (
    BASELINES as BASELINES,
    JUDGE_BASELINE as JUDGE_BASELINE,
    NOT_A_MODEL as NOT_A_MODEL,
    baseline_of as baseline_of,
)
from .client import (
    ChatClient as ChatClient,
    ClientSettings as ClientSettings,
    Connections as Connections,
    Journey as Journey,
    read_up_to as read_up_to,
)
from .endpoint import Endpoint as Endpoint, serve as serve
from .answer import (
    MAX_RETRY_AFTER_S as MAX_RETRY_AFTER_S,
    kind_of_status as kind_of_status,
    retry_after_s as retry_after_s,
)
from .faults import (
    Cut as Cut,
    Failure as Failure,
    FaultPlan as FaultPlan,
    Garbage as Garbage,
    Hang as Hang,
    RateLimit as RateLimit,
    Rule as Rule,
    Slow as Slow,
    WrongKey as WrongKey,
)
from .local_model import (
    LOCAL_MODEL as LOCAL_MODEL,
    is_local_model_installed as is_local_model_installed,
    run_local_model as run_local_model,
    serve_local_model as serve_local_model,
)
from .retry import GiveUp as GiveUp, Retry as Retry, RetryPolicy as RetryPolicy
from .endpoint import run_baselines as run_baselines
from .simulated import (
    SIMULATED as SIMULATED,
    Simulation as Simulation,
    SimulationPlan as SimulationPlan,
    SimulationStats as SimulationStats,
)
from .wire import TASK_HEADER as TASK_HEADER, TASK_HEADER_OPTION as TASK_HEADER_OPTION, TaskReference as TaskReference
