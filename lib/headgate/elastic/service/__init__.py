"""The pool at work: its engines, its timer, its requests, and what it shows of itself."""

from headgate.elastic.service.leases import FreeLeases, OnLost, WorkerLease, WorkerLeases
from headgate.elastic.service.metering import ELASTIC_METRICS, ElasticCollector
from headgate.elastic.service.service import DRAIN_S, ElasticService
from headgate.elastic.service.status import BOUNDS_S, Counts, PoolStatus, Spread, Times, WorkerView

__all__ = [
    "BOUNDS_S",
    "DRAIN_S",
    "ELASTIC_METRICS",
    "Counts",
    "ElasticCollector",
    "ElasticService",
    "FreeLeases",
    "OnLost",
    "PoolStatus",
    "Spread",
    "Times",
    "WorkerLease",
    "WorkerLeases",
    "WorkerView",
]
