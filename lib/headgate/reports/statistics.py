"""Means with 95 % intervals, in one place: every table and figure of a report takes them from here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headgate.core import student_limits, wilson_limits
from headgate.statistics import MIN_COMMON_TASKS, PairedDifference, mean_difference, task_pairs


@dataclass(frozen=True, slots=True)
class TaskScores:
    """Scored samples, and each model's mean score of each task.

    Attributes:
        environments: by name, in order.
        samples: (model, environment) -> its samples.
        means: environment -> model -> mean score by task, in one order for all models; NaN where it has none.
    """

    environments: tuple[str, ...]
    samples: Mapping[tuple[str, str], pl.DataFrame]
    means: Mapping[str, Mapping[str, NDArray[np.float64]]]

    @classmethod
    def of(cls, scored: pl.DataFrame) -> TaskScores:
        """Return scored samples by task."""
        ordered = scored.sort("model", "environment", "index", "task_id")
        samples = {(str(m), str(e)): rows for (m, e), rows in ordered.group_by("model", "environment")}
        environments = tuple(sorted({environment for _, environment in samples}))
        means: dict[str, dict[str, NDArray[np.float64]]] = {environment: {} for environment in environments}
        places = {
            environment: np.unique(ordered.filter(pl.col("environment") == environment)["index"].to_numpy())
            for environment in environments
        }
        for (model, environment), rows in samples.items():
            means[environment][model] = _means(rows, places[environment])
        return cls(environments, dict(sorted(samples.items())), means)

    def difference(self, first: str, second: str) -> tuple[PairedDifference | None, Mapping[str, int]]:
        """Return how much better `first` is over the environments with enough common tasks, each counting the same.

        None where there is no such environment. Beside it stand the environments that it leaves out, of those in which
        one of the two has scores, with the number of common tasks there.
        """
        parts, left_out = [], {}
        for environment, means in self.means.items():
            if first not in means or second not in means:
                if first in means or second in means:
                    left_out[environment] = 0
                continue
            is_common = ~(np.isnan(means[first]) | np.isnan(means[second]))
            common = int(is_common.sum())
            if common >= MIN_COMMON_TASKS:
                parts.append(task_pairs(means[first][is_common], means[second][is_common]))
            else:
                left_out[environment] = common
        return (mean_difference(parts) if parts else None), left_out


def _means(rows: pl.DataFrame, places: NDArray[np.int64]) -> NDArray[np.float64]:
    at = np.searchsorted(places, rows["index"].to_numpy())
    counts = np.bincount(at, minlength=places.size)
    sums = np.bincount(at, weights=rows["score"].to_numpy(), minlength=places.size)
    means: NDArray[np.float64] = np.full(places.size, np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return means


Method = Literal["wilson", "t", "clustered", "none", "combined"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean of scores in [0, 1] with its 95 % interval.

    `method` says how the interval was made: `wilson` where every score is 0 or 1, `t` otherwise, `none` where one
    score alone says nothing about the spread (the interval is then [0, 1]), `clustered` where it allows for tasks that
    repeat, `combined` for a mean of means.
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
    """Return the estimate of `n` >= 1 scores of which only mean and sample variance are known."""
    if is_binary:
        return Estimate(n, mean, *wilson_limits(n, mean), "wilson")
    if n == 1:
        return Estimate(n, mean, 0.0, 1.0, "none")
    return Estimate(n, mean, *student_limits(n, mean, variance), "t")


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
