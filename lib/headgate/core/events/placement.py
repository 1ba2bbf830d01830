"""What happens to placement groups and to the work in them."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.events.event import Event


@dataclass(frozen=True, slots=True)
class PoolChanged(Event):
    """A pool was opened, changed or closed; `what` says which."""

    pool: str
    what: str


@dataclass(frozen=True, slots=True)
class GroupCreated(Event):
    """A placement group is ready on its nodes."""

    group: str
    pool: str
    reserved: bool
    nodes: tuple[str, ...]
    took_s: float


@dataclass(frozen=True, slots=True)
class GroupCreationFailed(Event):
    """A placement group could not be created; its request waits again."""

    group: str
    pool: str
    reason: str


@dataclass(frozen=True, slots=True)
class GroupRemoved(Event):
    """A placement group is gone and its nodes are free."""

    group: str
    pool: str
    reserved: bool


@dataclass(frozen=True, slots=True)
class GroupQuarantined(Event):
    """The last work of a group was not seen to end in time; no other work gets the group until it has."""

    group: str
    pool: str
    request: str


@dataclass(frozen=True, slots=True)
class GroupBroken(Event):
    """A node of a group died."""

    group: str
    pool: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkQueued(Event):
    """A request was queued: a new one, or one that was stopped (`reason`)."""

    request: str
    pool: str
    priority: float
    reason: str


@dataclass(frozen=True, slots=True)
class WorkPlaced(Event):
    """A request was assigned a group; `step` is the placement step that found it."""

    request: str
    pool: str
    group: str
    step: str
    waited_s: float


@dataclass(frozen=True, slots=True)
class WorkStarted(Event):
    """A request's work runs; `waited_s` counts from its latest entry into the queue."""

    request: str
    pool: str
    group: str
    waited_s: float


@dataclass(frozen=True, slots=True)
class StepRejected(Event):
    """A placement step failed for a request. Emitted once per step and reason while the request waits."""

    request: str
    pool: str
    step: str
    reason: str


@dataclass(frozen=True, slots=True)
class PreemptionPlanned(Event):
    """Running work is about to be preempted for a request.

    `lost_work_s` is in seconds of the whole cluster; `evaluated_ms` is what the decision took, where that is measured.
    """

    request: str
    pool: str
    victims: tuple[str, ...]
    lost_work_s: float
    reason: str
    evaluated_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkPreempted(Event):
    """Work was preempted for another request and requeued; `answered` tells whether it stopped by itself."""

    request: str
    pool: str
    by: str
    reason: str
    ran_s: float
    lost_s: float
    saved: bool
    took_s: float
    answered: bool


@dataclass(frozen=True, slots=True)
class WorkEnded(Event):
    """A request ended for good: `outcome` is `done`, `failed` or `withdrawn`."""

    request: str
    pool: str
    outcome: str
    reason: str
    ran_s: float


@dataclass(frozen=True, slots=True)
class WorkLost(Event):
    """The process or node of running work died; the work is requeued unless that happened too often."""

    request: str
    pool: str
    reason: str
    losses: int


@dataclass(frozen=True, slots=True)
class DriverLost(Event):
    """A driver stopped sending heartbeats; `kept` tells whether its work continues."""

    holder: str
    requests: int
    kept: bool


@dataclass(frozen=True, slots=True)
class PlacementDiffers(Event):
    """The audit found a difference between the ledger and Ray."""

    what: str
    name: str
    fixed: bool
