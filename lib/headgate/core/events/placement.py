"""What happens to placement groups and to the work in them."""

from __future__ import annotations

from logging import DEBUG, WARNING

from headgate.core.events.event import Event


class PoolChanged(Event):
    """A pool was opened, changed or closed; `what` says which."""

    pool: str
    what: str


class GroupCreated(Event, log_level=DEBUG):
    """A placement group is ready on its nodes."""

    group: str
    pool: str
    reserved: bool
    nodes: tuple[str, ...]
    took_s: float


class GroupCreationFailed(Event, log_level=WARNING):
    """A placement group could not be created; its request waits again."""

    group: str
    pool: str
    reason: str


class GroupRemoved(Event, log_level=DEBUG):
    """A placement group is gone and its nodes are free."""

    group: str
    pool: str
    reserved: bool


class GroupQuarantined(Event, log_level=WARNING):
    """The last work of a group was not seen to end in time; no other work gets the group until it has."""

    group: str
    pool: str
    request: str


class GroupBroken(Event, log_level=WARNING):
    """A node of a group died."""

    group: str
    pool: str
    nodes: tuple[str, ...]


class WorkQueued(Event, log_level=DEBUG):
    """A request was queued: a new one, or one that was stopped (`reason`)."""

    request: str
    pool: str
    priority: float
    reason: str


class WorkPlaced(Event, log_level=DEBUG):
    """A request was assigned a group; `step` is the placement step that found it."""

    request: str
    pool: str
    group: str
    step: str
    waited_s: float


class WorkStarted(Event, log_level=DEBUG):
    """A request's work runs; `waited_s` counts from its latest entry into the queue."""

    request: str
    pool: str
    group: str
    waited_s: float


class StepRejected(Event, log_level=DEBUG):
    """A placement step failed for a request. Emitted once per step and reason while the request waits."""

    request: str
    pool: str
    step: str
    reason: str


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


class WorkEnded(Event, log_level=DEBUG):
    """A request ended for good: `outcome` is `done`, `failed` or `withdrawn`."""

    request: str
    pool: str
    outcome: str
    reason: str
    ran_s: float


class WorkLost(Event, log_level=WARNING):
    """The process or node of running work died; the work is requeued unless that happened too often."""

    request: str
    pool: str
    reason: str
    losses: int


class DriverLost(Event, log_level=WARNING):
    """A driver stopped sending heartbeats; `kept` tells whether its work continues."""

    holder: str
    requests: int
    kept: bool


class PlacementDiffers(Event, log_level=WARNING):
    """The audit found a difference between the ledger and Ray."""

    what: str
    name: str
    fixed: bool
