"""The model client and the policy of its retries; baselines and the local endpoint that serves them with faults."""

from headgate.models.answer import MAX_RETRY_AFTER_S, kind_of_status, retry_after_s
from headgate.models.baselines import BASELINES, JUDGE_BASELINE, NOT_A_MODEL, baseline_of
from headgate.models.client import ChatClient, ClientSettings, Connections, Journey, read_up_to
from headgate.models.endpoint import Endpoint, serve
from headgate.models.faults import Cut, Failure, FaultPlan, Garbage, Hang, RateLimit, Rule, Slow, WrongKey
from headgate.models.local_model import LOCAL_MODEL, is_local_model_installed, local_model, run_local_model
from headgate.models.retry import GiveUp, Retry, RetryPolicy
from headgate.models.serving import run_baselines
from headgate.models.simulated import SIMULATED, Simulation, SimulationPlan, SimulationStats
from headgate.models.wire import TASK_HEADER, TASK_HEADER_OPTION, TaskReference

__all__ = [
    "BASELINES",
    "JUDGE_BASELINE",
    "LOCAL_MODEL",
    "MAX_RETRY_AFTER_S",
    "NOT_A_MODEL",
    "SIMULATED",
    "TASK_HEADER",
    "TASK_HEADER_OPTION",
    "ChatClient",
    "ClientSettings",
    "Connections",
    "Cut",
    "Endpoint",
    "Failure",
    "FaultPlan",
    "Garbage",
    "GiveUp",
    "Hang",
    "Journey",
    "RateLimit",
    "Retry",
    "RetryPolicy",
    "Rule",
    "Simulation",
    "SimulationPlan",
    "SimulationStats",
    "Slow",
    "TaskReference",
    "WrongKey",
    "baseline_of",
    "is_local_model_installed",
    "kind_of_status",
    "local_model",
    "read_up_to",
    "retry_after_s",
    "run_baselines",
    "run_local_model",
    "serve",
]
