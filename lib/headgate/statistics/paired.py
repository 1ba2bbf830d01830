"""Differences between two models on the tasks that both did: what makes tasks hard is common to both and cancels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headgate.statistics.means import t_point, two_sided_p

MIN_COMMON_TASKS: Final = 10
"""Fewer common tasks than these are not compared: Student's t leans on a mean that is nearly normal."""

_NO_SPREAD: Final = 1e-9
"""Differences closer together than this are equal: rounding is all that parts them."""

_MOST_ADDED: Final = 2.0
"""Tasks added where a task's difference is -1, 0 or 1, one that either model wins (Bonett and Price 2012)."""

_MOST_STEPS: Final = 10
"""Differences in finer steps than this are taken to be of any value: what would be added is next to nothing."""


@dataclass(frozen=True, slots=True)
class TaskPairs:
    """What the tasks that two models have in common say, in one environment.

    Attributes:
        tasks: how many there are, at least 2.
        first: mean of the first model.
        difference: mean of first less second.
        variance: between tasks, of the differences.
        added: tasks, half of them won by either model, that an interval of this environment alone adds; in [0, 2].
        first_variance: between tasks, of the first model's means.
        covariance: of the two.
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
        """Return the middle of the interval with this many added tasks, and its variance.

        With none it is Student's, the mean and its variance (Miller 2024, section 4); with two Bonett and Price's.
        """
        n = self.tasks + added
        spread = (self.tasks - 1) * self.variance + added * (1 + self.tasks * self.difference**2 / n)
        return self.tasks * self.difference / n, spread / (n * (n - 1 + added / 2))


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How much better one model is than another on the same tasks, with a 95 % interval.

    Attributes:
        first: the first model's mean over environments of the mean over common tasks.
        difference: the same mean of first less second.
        low: in [-1, 1].
        high: in [-1, 1].
        p_value: two-sided, for no difference; of this comparison alone.
        correlation: between the two models' means of a task, within environments; None where one has no spread.
        gain: how many times as many tasks an unpaired comparison would need for an interval as narrow; None where
            it cannot be told.
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
    """Return what >= 2 common tasks of an environment say, from each model's mean score of each, in the same order."""
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
    """Return the mean of the differences in >= 1 environments, each counting the same.

    The interval is Student's with Satterthwaite's degrees of freedom, and that of Bonett and Price (2012) in one
    environment with outcomes 0 and 1. Over several environments their two added tasks are shared among these, as Price
    and Bonett (2004) share theirs among groups: two in each would draw all environments to 0 alike, which does not
    average out. The p-value is of the same t: below 0.05 where the interval leaves out 0.
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
    """Return the middle of each environment's interval and its variance.

    Environments share what they would add. Coarse scores and few tasks take more of it: the mean's error is theirs.
    """
    weights = [each.added / each.tasks for each in environments]
    total = math.fsum(weights) or 1.0
    return [each.centre(each.added * weight / total) for each, weight in zip(environments, weights, strict=True)]


def _added(apart: NDArray[np.float64]) -> float:
    """Return how many tasks to add: 2 for outcomes 0 and 1, the less the finer the differences, none for any values.

    Without these a dozen equal outcomes would prove that two models are the same. In steps of 1/r, as of tasks with r
    samples that succeed or fail, variances are of the order of 1/r^2 of those of whole steps, and so is what is added.
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
