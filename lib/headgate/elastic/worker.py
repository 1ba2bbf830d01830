"""A worker: one inference engine of an elastic pool, and its state."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class WorkerState(StrEnum):
    """State of a worker.

    `inactive` → `starting` → `active` → `draining` → `inactive`; a draining worker can return to `active` until it is
    being put to sleep. Every state can lead to `failed`; from there it becomes `inactive` once it answers asleep, or
    `draining` once it answers awake.
    """

    ACTIVE = "active"
    DRAINING = "draining"
    INACTIVE = "inactive"
    STARTING = "starting"
    FAILED = "failed"


class DrainStage(StrEnum):
    """Stage of a draining worker."""

    EMPTYING = "emptying"
    """Its requests run to their end."""
    MOVING = "moving"
    """The time is up: requests whose answer has not begun are aborted and go to other workers."""
    CONFIRMING = "confirming"
    """It has no requests left; two readings of the engine must confirm that."""
    SLEEPING = "sleeping"
    """It is being put to sleep, which cannot be reversed before it is asleep."""


class Pin(StrEnum):
    """An operator's decision for one worker, whatever the load."""

    AWAKE = "awake"
    ASLEEP = "asleep"


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """One reading of an engine.

    Attributes:
        running: requests that it is computing.
        waiting: requests in its own queue.
        slots: most requests that it runs at once; None if it does not report it.
        tokens: tokens in use; None if it does not report it.
        token_slots: tokens that it has room for; None if it does not report it.
        is_asleep: whether its memory is released.
        is_half_asleep: whether only part of its memory is released: it is unusable until put to sleep fully and woken.
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
    reports of an older epoch change nothing.

    Attributes:
        worker_id: its name.
        number: its index among the workers of its pool.
        slots: most requests that it is given at once.
        state: its state.
        stage: stage of its drain; None if it is not draining.
        epoch: epoch of its current state.
        since: monotonic seconds at which that state began; for a starting worker, at which it got its lease.
        requests: request id -> tokens that the request is expected to take.
        tokens: their sum.
        load: the last reading of the engine; None if there is none since it was last asleep or failed.
        foreign: requests at its engine from clients outside this pool, as confirmed by two readings in a row.
        surplus: requests that the last reading counted beyond the pool's own.
        read_at: when it was last read, in monotonic seconds.
        is_reading: whether a reading is pending.
        idle_readings: readings in a row that found it idle while it drains.
        unanswered: readings in a row that failed.
        failures: failures since its last answer; a failed worker is tried again later each time.
        retry_at: when a failed worker is tried again.
        held_until: until when the policy does not drain it.
        pin: an operator's decision; None if it follows the load.
        is_leased: whether it holds its lease; a starting worker may wait for one without limit.
        is_lease_lost: whether others need its lease; then it is put to sleep as soon as possible.
        is_suspect: whether a request broke here; then it gets no more until it answers a reading.
        breaks: requests in a row that broke here.
        drain_by: deadline of the current stage of a drain.
        last_error: the message of its last failure.
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
        """Whether it may be given another request."""
        is_open = self.state is WorkerState.ACTIVE and not self.is_suspect
        return is_open and len(self.requests) + self.foreign < self.slots

    @property
    def can_turn_back(self) -> bool:
        """Whether it is draining and may still become active again."""
        return self.state is WorkerState.DRAINING and self.stage is not DrainStage.SLEEPING and not self.has_to_go

    @property
    def has_to_go(self) -> bool:
        """Whether it must sleep whatever the load."""
        return self.is_lease_lost or self.pin is Pin.ASLEEP or self.is_half_asleep

    @property
    def is_half_asleep(self) -> bool:
        """Whether part of its memory was released, by the last reading."""
        return self.load is not None and self.load.is_half_asleep

    @property
    def share(self) -> float:
        """How much of it is in use: the larger of requests per slots and tokens per room of the engine; 0 if asleep."""
        if self.state not in {WorkerState.ACTIVE, WorkerState.DRAINING}:
            return 0.0
        share = (len(self.requests) + self.foreign) / self.slots
        if self.load is not None and self.load.tokens and self.load.token_slots:
            share = max(share, self.load.tokens / self.load.token_slots)
        return share
