"""What the pool learns about its load: how much, over time, and how long starts and requests take."""

from __future__ import annotations

from collections import deque
from typing import Final

from headgate.elastic.worker import Worker

_FIRST_GUESS_S: Final = 1.0
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
        self._waiting = 0.0

    @property
    def worth(self) -> float:
        """Work that runs and waits, in workers."""
        return self._busy + self._waiting

    @property
    def waiting(self) -> float:
        """Work that waits, in workers."""
        return self._waiting

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
        self._waiting = requests / slots
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
