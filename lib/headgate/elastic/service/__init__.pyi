from .supervisor import (
    FreeLeases as FreeLeases,
    OnLost as OnLost,
    WorkerLease as WorkerLease,
    WorkerLeases as WorkerLeases,
)
from .machine import EnginesAtHand as EnginesAtHand, Machine as Machine
from .metrics import ELASTIC_METRICS as ELASTIC_METRICS, ElasticCollector as ElasticCollector
from .service import DRAIN_S as DRAIN_S, ElasticService as ElasticService
from .status import (
    BOUNDS_S as BOUNDS_S,
    Counts as Counts,
    PoolStatus as PoolStatus,
    Spread as Spread,
    Times as Times,
    WorkerView as WorkerView,
)
