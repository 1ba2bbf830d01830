from . import (
    engines as engines,
    gateway as gateway,
    policies as policies,
    service as service,
    verl as verl,
)
from .outbox import (
    Abort as Abort,
    Command as Command,
    Cut as Cut,
    Fail as Fail,
    LetGo as LetGo,
    Read as Read,
    Send as Send,
    Sleep as Sleep,
    Wake as Wake,
)
from .demand import Demand as Demand, Desired as Desired, Policy as Policy
from .errors import (
    BodyTooLargeError as BodyTooLargeError,
    ForbiddenError as ForbiddenError,
    InvalidRequestError as InvalidRequestError,
    UnknownModelError as UnknownModelError,
    EngineError as EngineError,
    GatewayUnreachableError as GatewayUnreachableError,
    InvalidElasticError as InvalidElasticError,
    NotAnEngineError as NotAnEngineError,
    PoolClosedError as PoolClosedError,
    PoolFullError as PoolFullError,
    RequestLostError as RequestLostError,
    UnknownWorkerError as UnknownWorkerError,
    WorkerClaimedError as WorkerClaimedError,
)
from .pool import ElasticPool as ElasticPool
from .queue import (
    Accepted as Accepted,
    ElasticRequest as ElasticRequest,
    OpenRequest as OpenRequest,
    Refused as Refused,
    RequestState as RequestState,
)
from .settings import ElasticConfig as ElasticConfig, elastic_config as elastic_config
from .worker import (
    DrainStage as DrainStage,
    EngineLoad as EngineLoad,
    Pin as Pin,
    Worker as Worker,
    WorkerState as WorkerState,
)
