"""How long answers take: one cohort of attempts at a time, so that measurements can be compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_PRIOR: Final = 20
_MEMORY: Final = 400
_LEAST_S: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement: the mean logarithm of the latency (s) of `count` answers."""

    level: float
    count: int


class LatencyCohorts:
    """Measures the mean logarithm of latency by cohorts: attempts admitted one after the other, judged together.

    Whatever ended within a fixed time is a biased sample: short answers come first. A cohort is complete but for the
    last few, always the same share, so that two cohorts can be compared. Logarithms, because service times are skewed:
    one answer of ten minutes must not count as a hundred.

    Owned by a `QueueGuard`. Invariants (`validate`): answered <= ended <= recruited <= wanted.

    Attributes:
        number: of the present cohort; an attempt with another one is not of it.
        variance: of the logarithm of latency, as measured so far.
    """

    __slots__ = (
        "_answered",
        "_ended",
        "_enough",
        "_recruited",
        "_share",
        "_squares",
        "_sum",
        "_wanted",
        "_weight",
        "number",
        "variance",
    )

    def __init__(self, first: int, answered_share: float) -> None:
        self.number = 0
        self.variance = 0.25
        self._weight = _PRIOR
        self._share = answered_share
        self.begin(first)

    def begin(self, size: int) -> None:
        """Begin a new cohort of `size` attempts; what belonged to the former one is left out from now on."""
        self.number += 1
        self._wanted = size
        self._enough = max(1, math.ceil(self._share * size))
        self._recruited = self._ended = self._answered = 0
        self._sum = self._squares = 0.0

    def recruit(self) -> int:
        """Return the cohort's number for an attempt that now belongs to it, or 0 if it has enough."""
        if self._recruited >= self._wanted:
            return 0
        self._recruited += 1
        return self.number

    def ended(self, cohort: int, level: float | None) -> bool:
        """Note the end of an attempt and the level of its answer; return whether the cohort is complete."""
        if cohort != self.number:
            return False
        self._ended += 1
        if level is not None:
            self._answered += 1
            self._sum += level
            self._squares += level * level
        return self._ended >= self._enough and self._recruited == self._wanted

    def measured(self) -> Measured | None:
        """Return what the cohort measured; None when most of it was not answered."""
        count = self._answered
        if count < max(2, self._wanted / 2):
            return None
        mean = self._sum / count
        # Leaving out the slowest makes the spread look smaller than it is, by a quarter of its square.
        spread = max(0.01, 1.25 * (self._squares / count - mean * mean))
        self._weight = min(_MEMORY, self._weight + count)
        self.variance += (spread - self.variance) * count / self._weight
        return Measured(mean, count)

    def error(self, count: float, other: float) -> float:
        """Return the standard error of the difference of two measurements with so many answers each."""
        return math.sqrt(self.variance * (1 / count + 1 / other))

    def validate(self) -> None:
        """Assert the invariants of the class."""
        assert 0 <= self._answered <= self._ended <= self._recruited <= self._wanted
        assert self.variance > 0


def level_of(latency_s: float) -> float:
    """Return the logarithm of a latency."""
    return math.log(max(_LEAST_S, latency_s))
