"""A worker: one inference engine of an elastic pool, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class WorkerState(StrEnum):
    """Where a worker stands.

    `inactive` → `starting` → `active` → `draining` → `inactive`; a draining worker turns back to `active` while it is
    not being put to sleep. Every state leads to `failed`; from there it is `inactive` again once it answers asleep,
    `draining` once it answers awake.
    """

    ACTIVE = "active"
    DRAINING = "draining"
    INACTIVE = "inactive"
    STARTING = "starting"
    FAILED = "failed"


class DrainStage(StrEnum):
    """How far a draining worker has come."""

    EMPTYING = "emptying"
    """Its requests run to their end."""
    MOVING = "moving"
    """The time is up: what has not begun to answer is aborted and goes to other workers."""
    CONFIRMING = "confirming"
    """Nothing is left here; two readings of the engine have to say so, too."""
    SLEEPING = "sleeping"
    """It is being put to sleep; there is no way back before it sleeps."""


class Pin(StrEnum):
    """What an operator has decided for one worker, whatever the load."""

    AWAKE = "awake"
    ASLEEP = "asleep"


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """One reading of an engine.

    Attributes:
        running: requests that it computes.
        waiting: requests that it keeps in its own queue.
        slots: requests that it runs at most at once; None where it does not tell.
        tokens: tokens that are in use; None where it does not tell.
        token_slots: tokens that it has room for; None where it does not tell.
        is_asleep: whether its memory is released.
        is_half_asleep: a part of its memory is released: it can do nothing before it sleeps, and is woken.
    """

    running: int = 0
    waiting: int = 0
    slots: int | None = None
    tokens: int | None = None
    token_slots: int | None = None
    is_asleep: bool = False
    is_half_asleep: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do."""
        return not (self.running or self.waiting)


@dataclass(slots=True)
class Worker:
    """One worker. Owned and changed by the pool only.

    Invariants: `requests` is empty unless it is `active` or `draining`; `epoch` grows with every change of state, and
    answers of an older epoch change nothing.

    Attributes:
        worker_id: its name.
        number: its place among the workers of its pool.
        slots: requests that it is given at most at once.
        state: where it stands.
        stage: how far a drain has come; None when it is not draining.
        epoch: of the state it is in.
        since: monotonic seconds at which that state began.
        requests: request id -> tokens that the request is expected to take.
        tokens: their sum.
        load: the last reading of the engine; None before the first of this epoch.
        foreign: requests of others than this pool that its engine works for, by two readings in a row.
        surplus: what the last reading counted beyond the pool's own requests.
        read_at: when it was read.
        is_reading: a reading is under way.
        idle_readings: readings in a row that found it idle, since nothing was left to do.
        unanswered: readings in a row that failed.
        failures: failures since its last answer; a failed worker is tried again later each time.
        retry_at: when a failed worker is tried again.
        held_until: it is not drained by the policy before.
        pin: what an operator has decided.
        is_leased: it holds what it stands on; a starting worker without may wait for it as long as it takes.
        is_lease_lost: what it stands on is wanted by somebody else; it sleeps as soon as it can.
        is_suspect: a request broke here; it gets no further one before a reading of it.
        breaks: requests in a row that broke here.
        drain_by: when the time of a drain, or of a part of it, is up.
        last_error: the last sentence that went with a failure.
    """

    worker_id: str
    slots: int
    state: WorkerState = WorkerState.INACTIVE
    stage: DrainStage | None = None
    epoch: int = 0
    since: float = 0.0
    requests: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    load: EngineLoad | None = None
    foreign: int = 0
    surplus: int = 0
    read_at: float = 0.0
    is_reading: bool = False
    idle_readings: int = 0
    unanswered: int = 0
    failures: int = 0
    retry_at: float = 0.0
    held_until: float = 0.0
    pin: Pin | None = None
    is_leased: bool = False
    is_lease_lost: bool = False
    is_suspect: bool = False
    breaks: int = 0
    drain_by: float = 0.0
    last_error: str = ""
    number: int = 0

    @property
    def has_room(self) -> bool:
        """Whether it may be given a further request."""
        is_open = self.state is WorkerState.ACTIVE and not self.is_suspect
        return is_open and len(self.requests) + self.foreign < self.slots

    @property
    def can_turn_back(self) -> bool:
        """Whether it drains and may still be made active again."""
        return self.state is WorkerState.DRAINING and self.stage is not DrainStage.SLEEPING and not self.has_to_go

    @property
    def has_to_go(self) -> bool:
        """Whether it must sleep whatever the load."""
        return self.is_lease_lost or self.pin is Pin.ASLEEP or self.is_half_asleep

    @property
    def is_half_asleep(self) -> bool:
        """Whether the last reading said that only a part of its memory is there."""
        return self.load is not None and self.load.is_half_asleep

    @property
    def share(self) -> float:
        """How much of it is in use: the larger of requests by slots and tokens by the engine's room; 0 asleep."""
        if self.state not in {WorkerState.ACTIVE, WorkerState.DRAINING}:
            return 0.0
        share = (len(self.requests) + self.foreign) / self.slots
        if self.load is not None and self.load.tokens and self.load.token_slots:
            share = max(share, self.load.tokens / self.load.token_slots)
        return share
