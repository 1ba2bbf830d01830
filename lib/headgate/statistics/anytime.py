"""An interval that is valid after every sample: a confidence sequence for the mean of scores in [0, 1]."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

_LEVEL: Final = 0.05
_CELLS: Final = 1_000
"""Candidates for the mean; the limits are rounded outward to the next one."""

_MEANS: Final = np.linspace(0.0, 1.0, _CELLS + 1)
_CAP: Final = 0.5
"""Largest share of its capital that a bet risks (c in the paper, which recommends 1/2 or 3/4)."""

with np.errstate(divide="ignore"):
    _MOST_ABOVE: Final = _CAP / _MEANS
    _MOST_BELOW: Final = _CAP / (1.0 - _MEANS)


class ConfidenceSequence:
    """An interval that contains the true mean at all times simultaneously with probability 95 %: peeking is allowed.

    The hedged capital process of Waudby-Smith and Ramdas (2024, "Estimating means of bounded random variables by
    betting", theorem 3 and equation 26): for each candidate mean a bettor bets that the next score is above or below
    it, and the candidate is ruled out for good once the bettor's capital has grown 20-fold. It assumes only that scores
    lie in [0, 1] and that each has the same mean whatever came before, so they must be added in an order that does not
    depend on them. Stopping by it is allowed, too. Pure; owned by the sampler.
    """

    __slots__ = ("_above", "_below", "_high", "_low", "_square_sum", "_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.5
        self._square_sum = 0.25
        self._above = np.zeros_like(_MEANS)
        self._below = np.zeros_like(_MEANS)
        self._low = 0
        self._high = _CELLS

    @property
    def low(self) -> float:
        """Lower limit, in [0, 1]."""
        return self._low / _CELLS

    @property
    def high(self) -> float:
        """Upper limit, in [0, 1]."""
        return self._high / _CELLS

    @property
    def half_width(self) -> float:
        """Half the distance between the limits; it never grows."""
        return (self._high - self._low) / (2 * _CELLS)

    def add(self, score: float) -> None:
        """Add the next score.

        Raises:
            ValueError: it is not in [0, 1].
        """
        if not 0.0 <= score <= 1.0:
            raise ValueError(f"a score must be in [0, 1] (got {score})")
        bet, left = self._bet(), slice(self._low, self._high + 1)  # ruled-out candidates stay out
        apart = score - _MEANS[left]
        self._above[left] += np.log1p(np.minimum(bet, _MOST_ABOVE[left]) * apart)
        self._below[left] += np.log1p(-np.minimum(bet, _MOST_BELOW[left]) * apart)
        self._learn(score)
        capital = np.maximum(self._above[left], self._below[left]) + math.log(0.5)
        stay = np.flatnonzero(capital < -math.log(_LEVEL)) + self._low
        if stay.size:
            self._low, self._high = max(self._low, int(stay[0]) - 1), min(self._high, int(stay[-1]) + 1)

    def _bet(self) -> float:
        """Return the bet on the next score, based on the spread of the earlier ones."""
        number = self.count + 1
        variance = self._square_sum / number
        return math.sqrt(2 * math.log(2 / _LEVEL) / (variance * number * math.log(number + 1)))

    def _learn(self, score: float) -> None:
        self.count += 1
        self._sum += score
        self._square_sum += (score - self._sum / (self.count + 1)) ** 2

    def validate(self) -> None:
        """Assert that the limits are in order and within the scale."""
        assert 0 <= self._low <= self._high <= _CELLS
