from . import (
    engines as engines,
    errors as errors,
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
    EngineError as EngineError,
    GatewayUnreachableError as GatewayUnreachableError,
    InvalidElasticError as InvalidElasticError,
    NotAnEngineError as NotAnEngineError,
)
from .pool import ElasticPool as ElasticPool
from .queue import Accepted as Accepted, ElasticRequest as ElasticRequest
from .settings import ElasticConfig as ElasticConfig, elastic_config as elastic_config
from .worker import EngineLoad as EngineLoad, Pin as Pin, WorkerState as WorkerState
