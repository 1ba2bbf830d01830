"""What the pool learns about its load, what a policy is told of it, and what it answers."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

from headgate.elastic.worker import Worker


@dataclass(frozen=True, slots=True)
class Demand:
    """A pool's demand and capacity at one moment. Everything in `…_worth` is in workers: 1.5 fills one and a half.

    Attributes:
        worth: what runs, on draining workers too, and what waits.
        waiting_worth: the part of it that waits.
        area: integral of `worth` over time since the pool began, in worker-seconds; the difference of two readings by
            the time between them is the mean over that time.
        peak_worth: the most that `worth` was since the last decision.
        running: requests on workers, those of others that their engines count included.
        waiting: requests in front of them.
        oldest_wait_s: how long the first of them has been waiting; 0 when none waits.
        arrived: requests since the pool began.
        active: workers that take requests.
        starting: workers that will soon.
        draining: workers that take no more.
        slots: requests that a worker takes at once, on average.
        start_s: how long a worker takes to start, as learnt; a guess before one has started.
        service_s: how long a request is with its worker, as learnt; 0 before the first has ended.
        lowest: the fewest workers that may be awake.
        highest: the most workers that can be: asleep and failed ones that will not start are left out.
        running_draining: requests on draining workers, which `running` counts too.
        foreign: requests that engines work on for others than this pool, which `running` counts too.
        has_started: whether a worker has started, so that `start_s` is more than a guess.
    """

    worth: float
    waiting_worth: float
    area: float
    peak_worth: float
    running: int
    waiting: int
    oldest_wait_s: float
    arrived: int
    active: int
    starting: int
    draining: int
    slots: float
    start_s: float
    service_s: float
    lowest: int
    highest: int
    running_draining: int = 0
    foreign: int = 0
    has_started: bool = True

    @property
    def awake(self) -> int:
        """Workers that count as capacity: active and starting ones."""
        return self.active + self.starting


@dataclass(frozen=True, slots=True)
class Desired:
    """How many workers there should be, and why; `at_once`, also of those whose start has not paid for itself yet."""

    workers: int
    because: str
    at_once: bool = False


class Policy(Protocol):
    """Decides how many workers a pool should have. Pure: `now` comes in, it keeps what it has been told.

    It is asked every `monitoring_interval`, and in between when a request has to wait (at most every
    `urgent_interval`).
    """

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return how many workers there should be; the pool keeps it within `lowest` and `highest`."""

    def validate(self) -> None:
        """Assert the invariants of what it keeps."""


_ROUNDING: Final = 1e-9


def whole(workers: float) -> int:
    """Return the whole workers that it takes; sums of slots that miss a number by their last digit are that number."""
    return math.ceil(workers - _ROUNDING)


_FIRST_GUESS_S: Final = 30.0
"""A start takes so long before one was measured: who is taken for quick to start, and is not, was put to sleep too
soon, and requests wait for it; the other way round a worker is awake for a while in vain."""

_START_WEIGHT: Final = 0.3
_RECENT: Final = 128
_RECENT_S: Final = 30.0
"""How long a request takes is the mean of the last so many, or of those of the last half minute if they are more."""


class Meter:
    """Sums that are kept as requests come and go, so that a decision costs the same however many there were.

    Owned by one pool. Invariant: `worth` is the sum of the workers' shares and of what waits.

    Attributes:
        arrived: requests since the beginning.
        served: requests that were answered.
        waiting: work that waits, in workers.
        area: integral of `worth` over time.
        peak: the largest `worth` since the last decision.
        service_s: how long a request is with its worker.
        start_s: how long a worker takes to start.
    """

    def __init__(self, now: float) -> None:
        self.arrived = 0
        self.served = 0
        self.area = 0.0
        self.peak = 0.0
        self.service_s = 0.0
        self.start_s = _FIRST_GUESS_S
        self._recent: deque[tuple[float, float]] = deque()
        self._recent_s = 0.0
        self._starts = 0
        self._at = now
        self._shares: dict[str, float] = {}
        self._busy = 0.0
        self.waiting = 0.0

    @property
    def has_started(self) -> bool:
        """Whether a worker has started."""
        return self._starts > 0

    @property
    def worth(self) -> float:
        """Work that runs and waits, in workers."""
        return self._busy + self.waiting

    def at(self, now: float) -> None:
        """Bring the integral up to date."""
        if now > self._at:
            self.area += self.worth * (now - self._at)
            self._at = now

    def share(self, worker: Worker, now: float) -> None:
        """Take over how much of a worker is in use."""
        self.at(now)
        share = worker.share
        self._busy += share - self._shares.get(worker.worker_id, 0.0)
        if share:
            self._shares[worker.worker_id] = share
        else:
            self._shares.pop(worker.worker_id, None)
        self._note_peak()

    def wait(self, requests: int, slots: float, now: float) -> None:
        """Take over how many requests wait, for workers of so many slots."""
        self.at(now)
        self.waiting = requests / slots
        self._note_peak()

    def forget_peak(self) -> None:
        """Begin a new stretch; rounding errors of the sums end with it."""
        self._busy = sum(self._shares.values())
        self.peak = self.worth

    def took(self, service_s: float, now: float) -> None:
        """Learn from a request that was answered."""
        self.served += 1
        self._recent.append((now, service_s))
        self._recent_s += service_s
        while len(self._recent) > _RECENT and self._recent[0][0] < now - _RECENT_S:
            self._recent_s -= self._recent.popleft()[1]
        self.service_s = self._recent_s / len(self._recent)

    def started(self, start_s: float) -> None:
        """Learn from a worker that started."""
        self._starts += 1
        weight = 1.0 if self._starts == 1 else _START_WEIGHT
        self.start_s += (start_s - self.start_s) * weight

    def _note_peak(self) -> None:
        self.peak = max(self.peak, self.worth)
