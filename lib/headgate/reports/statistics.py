"""Comparisons of models on their common tasks, with corrected p-values, ranks and letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headgate.statistics import (
    MIN_COMMON_TASKS,
    MeanEstimate,
    PairedDifference,
    holm,
    indistinct_groups,
    mean_by_task,
    mean_difference,
    task_pairs,
)


@dataclass(frozen=True, slots=True)
class TaskScores:
    """Scored samples, and each model's mean score of each task.

    Attributes:
        environments: sorted by name.
        samples: (model, environment) -> its samples.
        means: environment -> model -> mean score by task, in the same order for all models; NaN without a score.
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
        """Return how much better `first` is over the environments with enough common tasks, weighted equally.

        None if there is no such environment. The second value has the environments that it leaves out although one of
        the two has scores there, with their number of common tasks.
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


def estimates_by(scored: pl.DataFrame, *keys: str) -> dict[tuple[str, ...], MeanEstimate]:
    """Return the mean of each group of scored samples with its interval by task: `clustered_mean` of each, all at once.

    Args:
        scored: frame with the columns `keys`, `index` and `score`; samples with equal keys and index share a task.
        keys: columns that define a group; the result is sorted by them.
    """
    score, sizes, sums = pl.col("score"), pl.col("sizes"), pl.col("sums")
    deviation, leverage = score - score.mean().over(keys), sizes / sizes.sum().over(keys)
    share = leverage**2 / (1 - leverage)
    tasks = (
        scored.select(*keys, "index", "score")  # not lazy: streaming adds up in varying order
        .sort(*keys, "index", "score")  # a sum's last digit depends on its order
        .with_columns(deviation=deviation)
        .group_by(*keys, "index", maintain_order=True)
        .agg(
            sizes=pl.len().cast(pl.Float64),
            sums=pl.col("deviation").sum(),
            squares=(pl.col("deviation") ** 2).sum(),
            total=score.sum(),
            binary=score.is_in([0.0, 1.0]).all(),
        )
        .with_columns(leverage=leverage, share=share)
    )
    groups = tasks.group_by(keys, maintain_order=True).agg(
        n=sizes.sum().cast(pl.Int64),
        tasks=pl.len(),
        mean=pl.col("total").sum() / sizes.sum(),
        variance=pl.col("squares").sum() / (sizes.sum() - 1),
        is_binary=pl.col("binary").all(),
        clustered=(sums**2 / (1 - pl.col("leverage"))).sum() / sizes.sum() ** 2,
        degrees=1 / ((pl.col("leverage") ** 2).sum() + pl.col("share").sum() ** 2 - (pl.col("share") ** 2).sum()),
    )
    found = {}
    for row in groups.iter_rows():
        n, count, mean, variance, is_binary, clustered, degrees = row[len(keys) :]
        found[tuple(map(str, row[: len(keys)]))] = mean_by_task(
            n, count, mean, variance if n > 1 else 0.0, is_binary=is_binary, clustered=clustered,
            degrees=max(1.0, degrees),
        )  # fmt: skip
    return found


def distinct(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row per task: the scored one if there is one, else the one that ended first.

    A task is sampled once; a second row with its id is a copy, or the late result of a run.
    """
    order = [pl.col("score").is_null(), pl.col("finished_at"), pl.col("trace_id")]
    return samples.sort(order).unique(subset="task_id", keep="first", maintain_order=True)


_LEVEL: Final = 0.05


@dataclass(frozen=True, slots=True)
class Comparison:
    """One model against another on their common tasks.

    Attributes:
        difference: `model` minus `against`; None if they have too few common tasks.
        adjusted_p: p-value after Holm's correction for all comparisons of its family; None likewise.
        left_out: environment left out of the difference -> its number of common tasks, which is too low.
        problem: why there is no difference; empty otherwise.
    """

    model: str
    against: str
    difference: PairedDifference | None
    adjusted_p: float | None
    left_out: Mapping[str, int]
    problem: str = ""

    @property
    def is_told_apart(self) -> bool:
        """Whether the two differ by more than chance explains."""
        return self.adjusted_p is not None and self.adjusted_p <= _LEVEL


def comparison(scores: TaskScores, model: str, against: str) -> Comparison:
    """Return the comparison of `model` with `against`, not corrected yet."""
    difference, left_out = scores.difference(model, against)
    if difference is not None:
        return Comparison(model, against, difference, None, left_out)
    most = max(left_out.values())
    problem = f"too few common tasks ({most} in the environment with most, at least {MIN_COMMON_TASKS} are needed)"
    return Comparison(model, against, None, None, left_out, problem)


def adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with p-values corrected for all of them."""
    values = iter(holm([one.difference.p_value for one in comparisons if one.difference is not None]))
    return [one if one.difference is None else replace(one, adjusted_p=next(values)) for one in comparisons]


def versus_reference(
    scores: TaskScores, order: Sequence[str], reference: str, pairs: Sequence[Comparison], *, is_chosen: bool
) -> dict[str, Comparison]:
    """Return the comparison of each model with the reference.

    A reference chosen in advance requires one comparison per model. One that is the best by these samples could have
    been any model, so its comparisons are corrected for all pairs of models.
    """
    found = [comparison(scores, model, reference) for model in order if model != reference]
    if is_chosen:
        return {one.model: one for one in adjusted(found)}
    corrected = {frozenset((pair.model, pair.against)): pair.adjusted_p for pair in pairs}
    return {one.model: replace(one, adjusted_p=corrected[frozenset((one.model, reference))]) for one in found}


def ranks_of(models: Sequence[str], pairs: Sequence[Comparison]) -> dict[str, int | None]:
    """Return 1 plus the number of better models for each; None for one of several without any comparison."""
    told = [pair for pair in pairs if pair.difference is not None]
    compared = {model for pair in told for model in (pair.model, pair.against)}
    better = Counter(
        pair.against if pair.difference.difference > 0 else pair.model
        for pair in told
        if pair.is_told_apart and pair.difference is not None
    )
    return {model: 1 + better[model] if model in compared or len(models) == 1 else None for model in models}


def letters_of(count: int, apart: Collection[tuple[int, int]]) -> list[tuple[str, ...]]:
    """Return the group letters of 0 to `count` - 1; no two that share a letter are a pair in `apart`."""
    groups = indistinct_groups(count, apart)
    return [tuple(_letter(n) for n, group in enumerate(groups) if place in group) for place in range(count)]


def _letter(number: int) -> str:
    """Return A to Z, then AA, AB, and so on."""
    head, last = divmod(number, 26)
    return (_letter(head - 1) if head else "") + chr(ord("A") + last)
