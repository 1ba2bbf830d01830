"""Differences between two models on their common tasks: the difficulty of tasks is common to both and cancels out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headgate.statistics.means import t_point, two_sided_p

MIN_COMMON_TASKS: Final = 10
"""Models with fewer common tasks are not compared, as Student's t assumes a nearly normal mean."""

_NO_SPREAD: Final = 1e-9
"""Differences closer together than this count as equal, as they differ only by rounding."""

_MOST_ADDED: Final = 2.0
"""Tasks added if differences are -1, 0 or 1: one won by each model (Bonett and Price 2012)."""

_MOST_STEPS: Final = 10
"""Differences in finer steps than this count as continuous, as next to nothing would be added."""


@dataclass(frozen=True, slots=True)
class TaskPairs:
    """Statistics of two models on their common tasks in one environment.

    Attributes:
        tasks: number of common tasks, at least 2.
        first: mean of the first model.
        difference: mean of first minus second.
        variance: variance of the differences between tasks.
        added: tasks, half of them won by each model, that an interval for this environment alone adds; in [0, 2].
        first_variance: variance of the first model's means between tasks; `second_variance` of the second's.
        covariance: covariance of the two models' means.
    """

    tasks: int
    first: float
    difference: float
    variance: float
    added: float
    first_variance: float
    second_variance: float
    covariance: float

    def centre(self, added: float) -> tuple[float, float]:
        """Return the centre of the interval with this many added tasks, and its variance.

        With none these are Student's mean and its variance (Miller 2024, section 4); with two, Bonett and Price's.
        """
        n = self.tasks + added
        spread = (self.tasks - 1) * self.variance + added * (1 + self.tasks * self.difference**2 / n)
        return self.tasks * self.difference / n, spread / (n * (n - 1 + added / 2))


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How much better one model is than another on the same tasks, with a 95 % interval.

    Attributes:
        first: the first model's mean over environments of its mean over common tasks.
        difference: the same mean of first minus second.
        low: lower limit, in [-1, 1].
        high: upper limit, in [-1, 1].
        p_value: two-sided p-value for no difference, not adjusted for other comparisons.
        correlation: correlation of the two models' means per task, within environments; None if one has no spread.
        gain: how many times as many tasks an unpaired comparison would need for an equally narrow interval; None if
            unknown.
    """

    tasks: int
    environments: int
    first: float
    difference: float
    low: float
    high: float
    p_value: float
    correlation: float | None
    gain: float | None

    @property
    def second(self) -> float:
        """The second model's mean over the same tasks."""
        return self.first - self.difference


def task_pairs(first: ArrayLike, second: ArrayLike) -> TaskPairs:
    """Return the statistics of >= 2 common tasks, from each model's mean score per task, in the same order."""
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    apart: NDArray[np.float64] = ours - theirs
    mean = float(ours.mean())
    left, right = ours - mean, theirs - theirs.mean()
    spread, free = apart - apart.mean(), apart.size - 1
    return TaskPairs(
        tasks=apart.size,
        first=mean,
        difference=float(apart.mean()),
        variance=float(spread @ spread) / free,
        added=_added(apart),
        first_variance=float(left @ left) / free,
        second_variance=float(right @ right) / free,
        covariance=float(left @ right) / free,
    )


def mean_difference(environments: Sequence[TaskPairs]) -> PairedDifference:
    """Return the unweighted mean of the differences in >= 1 environments.

    The interval is Student's with Satterthwaite's degrees of freedom, and that of Bonett and Price (2012) in one
    environment with outcomes 0 and 1. Over several environments their two added tasks are shared among these, as Price
    and Bonett (2004) share theirs among groups: two in each would shrink all environments towards 0, a bias that does
    not average out. The p-value is from the same t: it is below 0.05 exactly if the interval excludes 0.
    """
    count = len(environments)
    means, variances = zip(*_centres(environments), strict=True)
    parts = [variance / count**2 for variance in variances]
    centre, variance = math.fsum(means) / count, math.fsum(parts)
    degrees = 1 / math.fsum(
        (part / variance) ** 2 / (each.tasks - 1) for part, each in zip(parts, environments, strict=True)
    )
    degrees = max(1.0, math.floor(100 * degrees + 1e-6) / 100)  # as `t_point` rounds them
    error = math.sqrt(variance)
    half = t_point(degrees) * error
    unpaired = math.fsum((e.first_variance + e.second_variance) / e.tasks for e in environments) / count**2
    return PairedDifference(
        tasks=sum(each.tasks for each in environments),
        environments=count,
        first=math.fsum(each.first for each in environments) / count,
        difference=math.fsum(each.difference for each in environments) / count,
        low=max(-1.0, centre - half),
        high=min(1.0, centre + half),
        p_value=two_sided_p(centre / error, degrees),
        correlation=_correlation(environments),
        gain=unpaired / variance if unpaired > 0 else None,
    )


def _centres(environments: Sequence[TaskPairs]) -> list[tuple[float, float]]:
    """Return the centre of each environment's interval and its variance.

    Environments share the added tasks. Those with coarse scores and few tasks get more, as they dominate the error.
    """
    weights = [each.added / each.tasks for each in environments]
    total = math.fsum(weights) or 1.0
    return [each.centre(each.added * weight / total) for each, weight in zip(environments, weights, strict=True)]


def _added(apart: NDArray[np.float64]) -> float:
    """Return how many tasks to add: 2 for outcomes 0 and 1, fewer for finer differences, none for continuous ones.

    Without them a dozen equal outcomes would prove that two models are the same. Differences in steps of 1/r, as from
    tasks with r binary samples, have variances of the order of 1/r^2 of those with whole steps, so 2/r^2 are added.
    """
    if np.ptp(apart) < _NO_SPREAD:
        return _MOST_ADDED
    for steps in range(1, _MOST_STEPS + 1):
        if np.abs(apart * steps - np.rint(apart * steps)).max() < _NO_SPREAD:
            return _MOST_ADDED / steps**2
    return 0.0


def _correlation(environments: Sequence[TaskPairs]) -> float | None:
    first = math.fsum(each.first_variance for each in environments)
    second = math.fsum(each.second_variance for each in environments)
    if min(first, second) < _NO_SPREAD**2:
        return None
    covariance = math.fsum(each.covariance for each in environments)
    return max(-1.0, min(1.0, covariance / (math.sqrt(first) * math.sqrt(second))))
