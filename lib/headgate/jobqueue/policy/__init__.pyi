from .simulator import (
    BASELINES as BASELINES,
    RandomPolicy as RandomPolicy,
    ScriptedPolicy as ScriptedPolicy,
    SlowPolicy as SlowPolicy,
    baseline_policy as baseline_policy,
)
from .client import PolicyClient as PolicyClient, SyncPolicyClient as SyncPolicyClient
from .simulator import (
    MAX_STEPS as MAX_STEPS,
    EpisodeResult as EpisodeResult,
    read_evaluation_task as read_evaluation_task,
    run_episode as run_episode,
    write_result as write_result,
)
from .protocol import (
    EPOCH_HEADER as EPOCH_HEADER,
    LEASE_HEADER as LEASE_HEADER,
    MAX_MESSAGE_BYTES as MAX_MESSAGE_BYTES,
    Action as Action,
    MalformedMessageError as MalformedMessageError,
    Policy as Policy,
    PolicyError as PolicyError,
    PolicyFailedError as PolicyFailedError,
    PolicyLease as PolicyLease,
    PolicyLostError as PolicyLostError,
    PolicyRefusedError as PolicyRefusedError,
    PolicyTimeoutError as PolicyTimeoutError,
    PolicyUnreachableError as PolicyUnreachableError,
    decode as decode,
    encode as encode,
)
from .server import HEALTH_PATH as HEALTH_PATH, PolicyServer as PolicyServer
from .simulator import GridSimulation as GridSimulation, load_simulation as load_simulation
