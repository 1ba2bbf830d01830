"""Samples by task: what two models have in common, environment by environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

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
