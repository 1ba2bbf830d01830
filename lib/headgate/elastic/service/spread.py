"""Durations counted into buckets, as a histogram of Prometheus wants them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds of the buckets; from an answer out of the cache to the longest `request_timeout` by default."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How many durations lie under which bound.

    Attributes:
        counts: durations per bucket, not cumulated; the last one has what lies above all bounds.
        total_s: sum of all durations.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    total_s: float = 0.0

    @property
    def count(self) -> int:
        """How many durations there were."""
        return sum(self.counts)


class Tallied:
    """A spread that is being counted. Owned by one tally."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._total_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self._total_s += seconds

    def spread(self) -> Spread:
        """Return what was counted up to now."""
        return Spread(tuple(self._counts), self._total_s)
