"""The start-up ramp: a limit that rises from 1 to its start value over a given time."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class StartupRamp:
    """A rising limit, `1 + floor((target - 1) * elapsed / seconds)`. Pure; begins with the first time it is told.

    Attributes:
        target: limit at its end.
        seconds: how long it takes; 0 or less means that there is none.
    """

    target: int
    seconds: float
    began_at: float | None = None
    is_over: bool = False

    def __post_init__(self) -> None:
        self.is_over = self.seconds <= 0 or self.target <= 1

    def stop(self) -> None:
        """End it where it is."""
        self.is_over = True

    def rise(self, now: float) -> int:
        """Return the limit at `now`; ends the ramp when it has reached its target."""
        limit = self._limit_at(now)
        self.is_over = limit >= self.target
        return limit

    def next_step_at(self, now: float) -> float | None:
        """Return when the limit is one higher than at `now`; None when the ramp is over."""
        if self.is_over:
            return None
        limit = self._limit_at(now)
        began_at = self._began(now)
        return now if limit >= self.target else began_at + self.seconds * limit / (self.target - 1)

    def _limit_at(self, now: float) -> int:
        share = min(1.0, max(0.0, (now - self._began(now)) / self.seconds))
        # The time of a step, computed from that step, may come out a rounding error too early.
        return min(self.target, 1 + math.floor((self.target - 1) * share + 1e-9))

    def _began(self, now: float) -> float:
        if self.began_at is None:
            self.began_at = now
        return self.began_at
