"""The API of verl's elastic scheduler for rollouts: a worker group written for it works unchanged.

from headgate.elastic.verl import ElasticConfig, ElasticScheduler

scheduler = ElasticScheduler(ElasticConfig(min_workers=2), worker_group=self)
await scheduler.start()
"""

from headgate.elastic.settings import ElasticConfig, elastic_config
from headgate.elastic.verl.scheduler import VALIDATION_S, ElasticScheduler, WorkerStatus
from headgate.elastic.verl.worker_group import LOGGER, WorkerGroup

__all__ = [
    "LOGGER",
    "VALIDATION_S",
    "ElasticConfig",
    "ElasticScheduler",
    "WorkerGroup",
    "WorkerStatus",
    "elastic_config",
]
