"""Events of placement groups and of the work in them."""

from __future__ import annotations

from logging import DEBUG, INFO, WARNING

from headgate.core.events.event import Event


class PoolChanged(Event):
    """A pool was opened, changed or closed; `what` says which."""

    pool: str
    what: str


class _GroupEvent(Event, log_level=DEBUG):
    """An event of one placement group."""

    group: str
    pool: str


class GroupCreated(_GroupEvent):
    """A placement group is ready on its nodes."""

    reserved: bool
    nodes: tuple[str, ...]
    took_s: float


class GroupCreationFailed(_GroupEvent, log_level=WARNING):
    """A placement group could not be created; its request waits again."""

    reason: str


class GroupRemoved(_GroupEvent):
    """A placement group is gone and its nodes are free."""

    reserved: bool


class GroupQuarantined(_GroupEvent, log_level=WARNING):
    """A group's last work did not end in time; no other work gets the group until it has."""

    request: str


class GroupBroken(_GroupEvent, log_level=WARNING):
    """A node of a group died."""

    nodes: tuple[str, ...]


class _WorkEvent(Event, log_level=DEBUG):
    """An event of one request for a placement group, or of its work."""

    request: str
    pool: str


class WorkQueued(_WorkEvent):
    """A request was queued: a new one, or one that was stopped (`reason`)."""

    priority: float
    reason: str


class WorkPlaced(_WorkEvent):
    """A request was assigned a group; `step` is the placement step that found it."""

    group: str
    step: str
    waited_s: float


class WorkStarted(_WorkEvent):
    """A request's work runs; `waited_s` counts from its latest entry into the queue."""

    group: str
    waited_s: float


class StepRejected(_WorkEvent):
    """A placement step failed for a request. Emitted once per step and reason while the request waits."""

    step: str
    reason: str


class PreemptionPlanned(_WorkEvent, log_level=INFO):
    """Running work is about to be preempted for a request.

    `lost_work_s` is in seconds of the whole cluster; `evaluated_ms` is how long the decision took, where measured.
    """

    victims: tuple[str, ...]
    lost_work_s: float
    reason: str
    evaluated_ms: float = 0.0


class WorkPreempted(_WorkEvent, log_level=INFO):
    """Work was preempted for another request and requeued; `answered` tells whether it stopped by itself."""

    by: str
    reason: str
    ran_s: float
    lost_s: float
    saved: bool
    took_s: float
    answered: bool


class WorkEnded(_WorkEvent):
    """A request ended for good: `outcome` is `done`, `failed` or `withdrawn`."""

    outcome: str
    reason: str
    ran_s: float


class WorkLost(_WorkEvent, log_level=WARNING):
    """The process or node of running work died; the work is requeued unless that happened too often."""

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
