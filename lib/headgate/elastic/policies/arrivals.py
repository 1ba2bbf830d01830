"""How many requests will arrive: the rate of the longest recent time that looks like one stream, and its trend."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from headgate.elastic.policies.history import Total

_CELLS: Final = 8
"""A window is looked at in so many equal parts: enough for a trend, and each long enough for a count."""

_SURPRISE: Final = 3.0
"""A count so many standard deviations from what was expected is no chance: the stream has changed."""

_CLEAR: Final = 9.0
"""A trend counts as far as its square exceeds so many times its variance: not at all below three deviations."""

_DOUBLINGS: Final = 5
"""The longest window is 2**5 times the shortest: 192 s for a panic window of 6 s."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Arrivals as a straight line.

    Attributes:
        rate: requests per second now.
        growth: by which the rate grows per second; 0 where a trend cannot be told from chance.
        seen_s: length of the window that shows it.
    """

    rate: float
    growth: float
    seen_s: float

    def rate_in(self, ahead_s: float) -> float:
        """Return the rate after so long: never below the present one; a trend lasts as long as it has been seen."""
        return self.rate + max(0.0, self.growth) * min(ahead_s, self.seen_s)

    @property
    def rate_error(self) -> float:
        """Standard deviation of the rate, by the requests that were counted."""
        return math.sqrt(self.rate / self.seen_s) if self.seen_s else 0.0


class Arrivals:
    """Counts of arrivals, and what they tell. Owned by one policy.

    A long window tells a rate well and a change late; a short one the other way round. So windows of a doubling length
    are tried, and the longest counts whose line explains every shorter end of it: a step leaves the long ones within a
    few requests, and steady traffic is not followed in its chance ups and downs.
    """

    def __init__(self, shortest_s: float) -> None:
        self._windows_s = tuple(shortest_s * 2**doubling for doubling in range(_DOUBLINGS + 1))
        self._count = Total(self._windows_s[-1])

    def note(self, arrived: int, now: float) -> None:
        """Take the number of requests since the beginning."""
        self._count.note(arrived, now)

    def stream(self) -> Stream:
        """Return what arrives now."""
        found = Stream(0.0, 0.0, 0.0)
        for number, window_s in enumerate(self._windows_s):
            seen_s = min(window_s, self._count.age_s)
            if seen_s == found.seen_s:
                break
            line = self._line(seen_s)
            if number and not self._explains(line, self._windows_s[:number]):
                break
            found = line
        return found

    def validate(self) -> None:
        """Assert the invariants of the counts."""
        self._count.validate()

    def _line(self, seen_s: float) -> Stream:
        """Return the line of least squares through the counts of a window, its trend shrunk by how uncertain it is."""
        cell_s = seen_s / _CELLS
        edges = [self._count.back(seen_s - cell_s * edge) for edge in range(_CELLS + 1)]
        mean = (edges[-1] - edges[0]) / seen_s
        middles = [cell_s * (cell + 0.5) - seen_s / 2 for cell in range(_CELLS)]
        spread = sum(middle * middle for middle in middles)
        slope = sum((edges[cell + 1] - edges[cell]) / cell_s * middles[cell] for cell in range(_CELLS)) / spread
        chance = mean / cell_s / spread  # variance of the slope of a Poisson stream without a trend
        growth = slope * max(0.0, 1 - _CLEAR * chance / (slope * slope)) if slope else 0.0
        return Stream(max(0.0, mean + growth * seen_s / 2), growth, seen_s)

    def _explains(self, line: Stream, ends_s: tuple[float, ...]) -> bool:
        for end_s in ends_s:
            expected = max(0.0, line.rate - line.growth * end_s / 2) * end_s
            if abs(self._count.grown(end_s) - expected) > _SURPRISE * math.sqrt(max(1.0, expected)):
                return False
        return True
