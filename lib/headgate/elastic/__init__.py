"""Elastic: inference workers that wake, drain and sleep with the load, behind one queue.

`headgate.elastic.service` runs a pool, `headgate.elastic.engines` are its workers, `headgate.elastic.gateway` is the
OpenAI-compatible API in front of it.
"""

from headgate.elastic.commands import Abort, Command, Cut, Fail, LetGo, Read, Send, Sleep, Wake
from headgate.elastic.demand import Demand, Desired, Policy
from headgate.elastic.errors import (
    EngineError,
    GatewayUnreachableError,
    InvalidElasticError,
    NotAnEngineError,
    PoolClosedError,
    PoolFullError,
    RequestLostError,
    UnknownWorkerError,
    WorkerClaimedError,
)
from headgate.elastic.pool import ElasticPool
from headgate.elastic.request import Accepted, ElasticRequest, Handling, Refused, RequestState
from headgate.elastic.settings import ElasticConfig, elastic_config
from headgate.elastic.worker import DrainStage, EngineLoad, Pin, Worker, WorkerState

__all__ = [
    "Abort",
    "Accepted",
    "Command",
    "Cut",
    "Demand",
    "Desired",
    "DrainStage",
    "ElasticConfig",
    "ElasticPool",
    "ElasticRequest",
    "EngineError",
    "EngineLoad",
    "Fail",
    "GatewayUnreachableError",
    "Handling",
    "InvalidElasticError",
    "LetGo",
    "NotAnEngineError",
    "Pin",
    "Policy",
    "PoolClosedError",
    "PoolFullError",
    "Read",
    "Refused",
    "RequestLostError",
    "RequestState",
    "Send",
    "Sleep",
    "UnknownWorkerError",
    "Wake",
    "Worker",
    "WorkerClaimedError",
    "WorkerState",
    "elastic_config",
    "engines",
    "gateway",
    "policies",
    "service",
    "verl",
]
