"""Policy servers: the protocol that simulators speak with them, clients, a server with baselines, a small simulator."""

from headgate.jobqueue.policy.baselines import BASELINES, RandomPolicy, ScriptedPolicy, SlowPolicy, baseline_policy
from headgate.jobqueue.policy.client import PolicyClient, SyncPolicyClient
from headgate.jobqueue.policy.dialogue import Action
from headgate.jobqueue.policy.errors import (
    MalformedMessageError,
    PolicyError,
    PolicyFailedError,
    PolicyLostError,
    PolicyRefusedError,
    PolicyTimeoutError,
    PolicyUnreachableError,
)
from headgate.jobqueue.policy.evaluation import (
    MAX_STEPS,
    Actor,
    EpisodeResult,
    Errand,
    PolicyAt,
    evaluate_episode,
    read_errand,
    run_episode,
    write_result,
)
from headgate.jobqueue.policy.lease import EPOCH_HEADER, LEASE_HEADER, PolicyLease
from headgate.jobqueue.policy.server import HEALTH_PATH, Policy, PolicyServer
from headgate.jobqueue.policy.simulator import GridSimulation, load_simulation
from headgate.jobqueue.policy.wire import MAX_MESSAGE_BYTES, decode, encode

__all__ = [
    "BASELINES",
    "EPOCH_HEADER",
    "HEALTH_PATH",
    "LEASE_HEADER",
    "MAX_MESSAGE_BYTES",
    "MAX_STEPS",
    "Action",
    "Actor",
    "EpisodeResult",
    "Errand",
    "GridSimulation",
    "MalformedMessageError",
    "Policy",
    "PolicyAt",
    "PolicyClient",
    "PolicyError",
    "PolicyFailedError",
    "PolicyLease",
    "PolicyLostError",
    "PolicyRefusedError",
    "PolicyServer",
    "PolicyTimeoutError",
    "PolicyUnreachableError",
    "RandomPolicy",
    "ScriptedPolicy",
    "SlowPolicy",
    "SyncPolicyClient",
    "baseline_policy",
    "decode",
    "encode",
    "evaluate_episode",
    "load_simulation",
    "read_errand",
    "run_episode",
    "write_result",
]
