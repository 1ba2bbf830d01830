"""How a pool measures its load, what it reports to a policy, and what the policy answers."""

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
        worth: running requests, including those on draining workers, plus waiting ones.
        waiting_worth: the waiting part of it.
        area: integral of `worth` over time since the pool began, in worker-seconds; the difference between two readings
            divided by the time between them is the mean over that time.
        peak_worth: the highest `worth` since the last decision.
        running: requests on workers, including foreign ones that their engines report.
        waiting: requests in the queue.
        oldest_wait_s: how long the oldest of them has been waiting; 0 if none waits.
        arrived: requests since the pool began.
        active: workers that take requests.
        starting: workers that are starting.
        draining: workers that take no new requests.
        slots: requests that a worker takes at once, on average.
        start_s: measured time that a worker takes to start; a guess before the first start.
        service_s: measured time that a request spends at its worker; 0 before the first has ended.
        lowest: the fewest workers that may be awake.
        highest: the most workers that can be awake: failed ones and those that must sleep do not count.
        running_draining: requests on draining workers, also counted in `running`.
        foreign: requests that engines process for clients outside this pool, also counted in `running`.
        has_started: whether a worker has started, so that `start_s` is measured.
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
    """How many workers should be awake, and why; with `at_once` even recently started ones may be put to sleep."""

    workers: int
    because: str
    at_once: bool = False


class Policy(Protocol):
    """Decides how many workers a pool should have awake. Pure: `now` is an argument, its only state is past demand.

    It is called every `monitoring_interval`, and in between when a request has to wait (at most every
    `urgent_interval`).
    """

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return how many workers should be awake; the pool limits it to between `lowest` and `highest`."""

    def validate(self) -> None:
        """Assert the invariants of its state."""


_ROUNDING: Final = 1e-9


def whole(workers: float) -> int:
    """Return a number of workers rounded up to an integer, tolerating the rounding errors of sums."""
    return math.ceil(workers - _ROUNDING)


_FIRST_GUESS_S: Final = 30.0
"""Assumed start time before one is measured. If it is too short, workers are put to sleep too soon and requests have to
wait for them; if it is too long, a worker only stays awake for a while in vain."""

_START_WEIGHT: Final = 0.3
_RECENT: Final = 128
_RECENT_S: Final = 30.0
"""`service_s` is the mean over the last `_RECENT` requests, or over those of the last half minute if there are more."""


class Meter:
    """Running sums, updated as requests come and go, so that the cost of a decision does not grow with their number.

    Owned by one pool. Invariant: `worth` is the sum of the workers' shares plus the waiting work.

    Attributes:
        arrived: requests since the beginning.
        served: requests that were answered.
        waiting: waiting work, in workers.
        area: integral of `worth` over time.
        peak: the highest `worth` since the last decision.
        service_s: how long a request spends at its worker.
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
        """Running and waiting work, in workers."""
        return self._busy + self.waiting

    def at(self, now: float) -> None:
        """Bring the integral up to date."""
        if now > self._at:
            self.area += self.worth * (now - self._at)
            self._at = now

    def share(self, worker: Worker, now: float) -> None:
        """Update how much of a worker is in use."""
        self.at(now)
        share = worker.share
        self._busy += share - self._shares.get(worker.worker_id, 0.0)
        if share:
            self._shares[worker.worker_id] = share
        else:
            self._shares.pop(worker.worker_id, None)
        self._note_peak()

    def wait(self, requests: int, slots: float, now: float) -> None:
        """Update how many requests wait, for workers with `slots` slots each."""
        self.at(now)
        self.waiting = requests / slots
        self._note_peak()

    def forget_peak(self) -> None:
        """Reset the peak, and the rounding errors of the sums with it."""
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
