"""Means with 95 % intervals, in one place: every table and figure of a report takes them from here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

Method = Literal["wilson", "t", "none", "combined"]

_Z: Final = 1.959963984540054
"""The 97.5 % point of the normal distribution."""
_T_975: Final = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
"""The 97.5 % points of Student's t with 1 to 10 degrees of freedom; the series below is good to 1e-4 above that."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean of scores in [0, 1] with its 95 % interval.

    `method` says how the interval was made: `wilson` where every score is 0 or 1, `t` otherwise, `none` where one
    score alone says nothing about the spread (the interval is then [0, 1]), `combined` for a mean of means.
    """

    n: int
    mean: float
    low: float
    high: float
    method: Method


def estimate(scores: Sequence[float]) -> Estimate | None:
    """Return the mean of `scores` with its interval; None when there are none."""
    n = len(scores)
    if n == 0:
        return None
    mean = math.fsum(scores) / n
    variance = math.fsum((score - mean) ** 2 for score in scores) / (n - 1) if n > 1 else 0.0
    return estimate_of(n, mean, variance, is_binary=all(score in (0.0, 1.0) for score in scores))


def estimate_of(n: int, mean: float, variance: float, *, is_binary: bool) -> Estimate:
    """Return the estimate of `n` >= 1 scores of which only mean and sample variance are known.

    Wilson's interval (1927) holds for shares near 0 and 1, where the textbook one has no width.
    """
    if is_binary:
        return _wilson(n, mean)
    if n == 1:
        return Estimate(n, mean, 0.0, 1.0, "none")
    half = t_975(n - 1) * math.sqrt(max(0.0, variance) / n)
    return Estimate(n, mean, max(0.0, mean - half), min(1.0, mean + half), "t")


def combined(estimates: Sequence[Estimate]) -> Estimate | None:
    """Return the plain mean of independent estimates, each counting the same; None when there are none.

    The interval recovers each estimate's variance from its own limits (MOVER; Zou and Donner 2008), so it stays honest
    where one of them is 0 or 1.
    """
    k = len(estimates)
    if k == 0:
        return None
    mean = math.fsum(part.mean for part in estimates) / k
    below = math.sqrt(math.fsum((part.mean - part.low) ** 2 for part in estimates)) / k
    above = math.sqrt(math.fsum((part.high - part.mean) ** 2 for part in estimates)) / k
    n = sum(part.n for part in estimates)
    return Estimate(n, mean, max(0.0, mean - below), min(1.0, mean + above), "combined")


def distinct(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row per task: the scored one if there is one, else the one that ended first.

    A task is sampled once; a second row with its id is a copy, or the record of a run whose result came after all.
    """
    order = [pl.col("score").is_null(), pl.col("finished_at"), pl.col("trace_id")]
    return samples.sort(order).unique(subset="task_id", keep="first", maintain_order=True)


def t_975(degrees: int) -> float:
    """Return the 97.5 % point of Student's t with `degrees` >= 1 degrees of freedom, exact to 1e-4.

    Above 10 by the series of Fisher and Cornish in powers of 1/degrees.
    """
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z, inverse = _Z, 1 / degrees
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return math.fsum(term * inverse**power for power, term in enumerate(terms))


def _wilson(n: int, share: float) -> Estimate:
    square = _Z**2 / n
    centre = (share + square / 2) / (1 + square)
    half = _Z / (1 + square) * math.sqrt(share * (1 - share) / n + square / (4 * n))
    # At the ends the limits are 0 and 1 exactly; rounding would leave the mean outside of its own interval.
    low = 0.0 if share == 0 else max(0.0, centre - half)
    high = 1.0 if share == 1 else min(1.0, centre + half)
    return Estimate(n, share, low, high, "wilson")
