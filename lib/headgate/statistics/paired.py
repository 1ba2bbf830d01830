"""Differences between two models on the tasks that both did: what makes tasks hard is common to both and cancels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headgate.statistics.student import t_point, two_sided_p

MIN_COMMON_TASKS: Final = 10
"""Fewer common tasks than these are not compared: Student's t leans on a mean that is nearly normal."""

_NO_SPREAD: Final = 1e-9
"""Differences closer together than this are equal: rounding is all that parts them."""


@dataclass(frozen=True, slots=True)
class TaskPairs:
    """What the tasks that two models have in common say, in one environment.

    Attributes:
        tasks: how many there are.
        difference: mean of first less second.
        centre: middle of the interval: the difference, drawn to 0 where few tasks differ.
        variance: of the centre.
        first_variance: between tasks, of the first model's means.
        second_variance: likewise.
        covariance: of the two.
    """

    tasks: int
    difference: float
    centre: float
    variance: float
    first_variance: float
    second_variance: float
    covariance: float


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How much better one model is than another on the same tasks, with a 95 % interval.

    Attributes:
        tasks: common tasks.
        environments: that these are of.
        difference: mean over environments of the mean over tasks.
        low: in [-1, 1].
        high: in [-1, 1].
        p_value: two-sided, for no difference; of this comparison alone.
        correlation: between the two models' means of a task, within environments; None where one has no spread.
        gain: how many times as many tasks an unpaired comparison would need for an interval as narrow; None where
            it cannot be told.
    """

    tasks: int
    environments: int
    difference: float
    low: float
    high: float
    p_value: float
    correlation: float | None
    gain: float | None


def paired_difference(first: ArrayLike, second: ArrayLike) -> PairedDifference:
    """Return the difference of two models in one environment, from their mean scores of each common task, >= 2."""
    return mean_difference([task_pairs(first, second)])


def task_pairs(first: ArrayLike, second: ArrayLike) -> TaskPairs:
    """Return what >= 2 common tasks of an environment say, from each model's mean score of each, in the same order.

    The variance is that of the paired differences (Miller 2024, section 4). Where these are only -1, 0 and 1, as with
    one sample of each task that succeeds or fails, or all equal, it is that of Bonett and Price (2012), who add a task
    that either model wins: otherwise a dozen tasks with the same outcome would prove that two models are the same.
    """
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    apart: NDArray[np.float64] = ours - theirs
    n = apart.size
    mean = float(apart.mean())
    centre, variance = mean, float(apart.var(ddof=1)) / n
    if np.isin(apart, (-1.0, 0.0, 1.0)).all() or np.ptp(apart) < _NO_SPREAD:
        centre = float(apart.sum()) / (n + 2)
        variance = ((float((apart**2).sum()) + 2) / (n + 2) - centre**2) / (n + 2)
    covariance = float(((ours - ours.mean()) * (theirs - theirs.mean())).sum()) / (n - 1)
    return TaskPairs(n, mean, centre, variance, float(ours.var(ddof=1)), float(theirs.var(ddof=1)), covariance)


def mean_difference(environments: Sequence[TaskPairs]) -> PairedDifference:
    """Return the mean of the differences in >= 1 environments, each counting the same.

    Degrees of freedom are Satterthwaite's.
    """
    count = len(environments)
    centre = math.fsum(each.centre for each in environments) / count
    difference = math.fsum(each.difference for each in environments) / count
    parts = [each.variance / count**2 for each in environments]
    variance = math.fsum(parts)
    degrees = 1 / math.fsum(
        (part / variance) ** 2 / (each.tasks - 1) for part, each in zip(parts, environments, strict=True)
    )
    error = math.sqrt(variance)
    half = t_point(max(1.0, degrees)) * error
    unpaired = math.fsum((e.first_variance + e.second_variance) / e.tasks for e in environments) / count**2
    return PairedDifference(
        tasks=sum(each.tasks for each in environments),
        environments=count,
        difference=difference,
        low=min(difference, max(-1.0, centre - half)),
        high=max(difference, min(1.0, centre + half)),
        p_value=two_sided_p(centre / error, degrees),
        correlation=_correlation(environments),
        gain=unpaired / variance if unpaired > 0 else None,
    )


def _correlation(environments: Sequence[TaskPairs]) -> float | None:
    first = math.fsum(each.first_variance for each in environments)
    second = math.fsum(each.second_variance for each in environments)
    if min(first, second) < _NO_SPREAD**2:
        return None
    covariance = math.fsum(each.covariance for each in environments)
    return max(-1.0, min(1.0, covariance / (math.sqrt(first) * math.sqrt(second))))
