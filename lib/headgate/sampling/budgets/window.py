"""What was spent over the last 24 h, and when how much of it is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from headgate.core import DAY_S, NO_SPENDING, Spending

BUCKET_S: Final = 60.0
"""What is spent within one minute leaves the window together, so that it holds at most 1 441 entries."""


class SpendingWindow:
    """Spending over any 24 h, by the minute. Pure: `now` is given, and never goes back.

    A minute leaves 24 h after its end: what was spent counts for 24 h at least, and for a minute longer at most.
    Invariant: `total` equals the sum of the minutes.
    """

    __slots__ = ("_minutes", "_now", "_total")

    def __init__(self) -> None:
        self._minutes: deque[tuple[int, Spending]] = deque()
        self._total = NO_SPENDING
        self._now = 0.0

    def restore(self, spent: Iterable[tuple[float, Spending]]) -> None:
        """Count what was spent before, each in the minute of its own time, whenever this window was asked last."""
        for at, amount in spent:
            minute = int(at // BUCKET_S)
            if at <= self._now and _leaves_at(minute) > self._now:
                self._count(minute, amount)

    def _count(self, minute: int, amount: Spending) -> None:
        """Count into a minute; what is counted most often is recent, so its place is looked for from the end."""
        place = len(self._minutes)
        while place and self._minutes[place - 1][0] > minute:
            place -= 1
        if place and self._minutes[place - 1][0] == minute:
            self._minutes[place - 1] = (minute, self._minutes[place - 1][1].plus(amount))
        else:
            self._minutes.insert(place, (minute, amount))
        self._total = self._total.plus(amount)

    def add(self, spent: Spending, now: float) -> None:
        """Count what was spent at `now`."""
        self._forget(now)
        self._count(int(self._now // BUCKET_S), spent)

    def total(self, now: float) -> Spending:
        """Return what was spent in the 24 h that end at `now`."""
        self._forget(now)
        return self._total

    def when(self, fits: Callable[[Spending], bool], now: float) -> float | None:
        """Return the first time at which `fits` holds for the total, if nothing more is spent; None if never."""
        left = self.total(now)
        if fits(left):
            return self._now
        for minute, spent in self._minutes:
            left = left.less(spent)
            if fits(left):
                return _leaves_at(minute)
        return None

    def _forget(self, now: float) -> None:
        self._now = max(self._now, now)
        while self._minutes and _leaves_at(self._minutes[0][0]) <= self._now:
            self._total = self._total.less(self._minutes.popleft()[1])

    def validate(self) -> None:
        """Assert the invariant of the class, and that minutes are in order."""
        total = NO_SPENDING
        for _, spent in self._minutes:
            total = total.plus(spent)
        assert total == self._total, (total, self._total)
        minutes = [minute for minute, _ in self._minutes]
        assert minutes == sorted(set(minutes)), minutes


def _leaves_at(minute: int) -> float:
    return (minute + 1) * BUCKET_S + DAY_S
