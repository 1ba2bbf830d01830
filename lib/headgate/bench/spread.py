"""Spread: several measurements of one thing as median, smallest and largest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of `count` measurements."""

    median: float
    low: float
    high: float
    count: int


def spread_of(values: Sequence[float]) -> Spread:
    """Return the spread of measurements, of which there must be one at least."""
    return Spread(median(values), min(values), max(values), len(values))
