"""The mean of scores whose tasks repeat, with an interval that counts tasks and not samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headgate.core import student_limits, wilson_limits
from headgate.statistics.student import t_point

Method = Literal["wilson", "t", "clustered wilson", "clustered t", "none"]

_Z: Final = NormalDist().inv_cdf(0.975)
_NO_SPREAD: Final = 1e-18
"""A variance below this is rounding."""


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """A mean of scores in [0, 1] with its 95 % interval.

    Attributes:
        samples: scores that it is the mean of.
        tasks: different tasks among them.
        mean: of all samples, each counting the same.
        low: in [0, 1], at most the mean.
        high: in [0, 1], at least the mean.
        method: `wilson` and `t` where every task has one sample; `clustered wilson` and `clustered t` where tasks
            repeat; `none` for a single task, which says nothing about the spread between tasks (then [0, 1]).
        design_effect: clustered variance of the mean by that of as many independent samples; 1 where no task repeats
            or nothing is known of it.
    """

    samples: int
    tasks: int
    mean: float
    low: float
    high: float
    method: Method
    design_effect: float = 1.0


def clustered_mean(scores: ArrayLike, tasks: ArrayLike) -> MeanEstimate | None:
    """Return the mean of scores with an interval by task; None when there are none.

    The variance of the mean is the cluster-robust one with the small-sample correction of Bell and McCaffrey (2002),
    which for a mean has a closed form: with n samples, m_g of them of task g, h_g = m_g / n, and r_g the sum of task
    g's deviations from the mean, V = sum(r_g^2 / (1 - h_g)) / n^2. Without the correction it is the clustered standard
    error of Miller (2024, "Adding error bars to evals"). The degrees of freedom are Satterthwaite's: those of tasks
    less one where every task has as many samples.

    Where every task has one sample it is the interval of `headgate summary`, exactly: Wilson's or Student's. Samples
    of one task do not repel each other, so the interval is never narrower than the one that takes them as independent.

    Args:
        scores: in [0, 1].
        tasks: of each score, which task it is of.
    """
    values = np.asarray(scores, dtype=np.float64)
    n = values.size
    if n == 0:
        return None
    _, place, sizes = np.unique(np.asarray(tasks), return_inverse=True, return_counts=True)
    mean = math.fsum(values) / n
    is_binary = bool(np.isin(values, (0.0, 1.0)).all())
    deviations = values - mean
    variance = math.fsum(deviations**2) / (n - 1) if n > 1 else 0.0
    if sizes.size == n:
        return _independent(n, mean, variance, is_binary=is_binary)
    if sizes.size == 1:
        return MeanEstimate(n, 1, mean, 0.0, 1.0, "none")
    sums = np.bincount(place.ravel(), weights=deviations).astype(np.float64)
    clustered, degrees = _variance_by_task(sums, sizes.astype(np.float64))
    has_spread = variance > _NO_SPREAD
    effect = clustered / (variance / n) if has_spread else 1.0
    if is_binary:
        # Nothing is known of a correlation where all scores are equal: then each task counts as one sample.
        effective = _effective(n, effect, degrees) if has_spread else float(sizes.size)
        return MeanEstimate(n, sizes.size, mean, *wilson_limits(effective, mean), "clustered wilson", effect)
    half = t_point(degrees) * math.sqrt(max(clustered, variance / n))
    low, high = max(0.0, mean - half), min(1.0, mean + half)
    return MeanEstimate(n, sizes.size, mean, low, high, "clustered t", effect)


def _independent(n: int, mean: float, variance: float, *, is_binary: bool) -> MeanEstimate:
    if is_binary:
        return MeanEstimate(n, n, mean, *wilson_limits(n, mean), "wilson")
    if n == 1:
        return MeanEstimate(n, n, mean, 0.0, 1.0, "none")
    return MeanEstimate(n, n, mean, *student_limits(n, mean, variance), "t")


def _variance_by_task(sums: NDArray[np.float64], sizes: NDArray[np.float64]) -> tuple[float, float]:
    """Return the variance of the mean and its degrees of freedom, from each task's sum of deviations and samples."""
    n = float(sizes.sum())
    leverage = sizes / n
    variance = float((sums**2 / (1 - leverage)).sum()) / n**2
    share = leverage**2 / (1 - leverage)
    degrees = 1 / float((leverage**2).sum() + share.sum() ** 2 - (share**2).sum())
    return variance, max(1.0, degrees)


def _effective(n: int, effect: float, degrees: float) -> float:
    """Return how many independent samples are worth as much (Korn and Graubard 1998, with Wilson's interval)."""
    return n / max(1.0, effect) * (_Z / t_point(degrees)) ** 2
