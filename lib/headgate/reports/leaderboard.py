"""The leaderboard: who is better than whom, and how surely, from samples of which some may share a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import polars as pl

from headgate.core import errors
from headgate.reports.comparing import Comparison, adjusted, comparison, letters_of, rank_of, versus_reference
from headgate.reports.statistics import Estimate, combined, distinct
from headgate.reports.task_scores import TaskScores
from headgate.statistics import (
    MeanEstimate,
    TooFewSamples,
    clustered_mean,
    pass_at_k,
)

COLUMNS: Final = ("task_id", "model", "environment", "index", "score", "success", "finished_at", "trace_id")
"""What a leaderboard reads of a sample."""

MAX_MODELS: Final = 200
"""Models that are compared at most: the pairs grow with their square, and Holm's correction with the pairs."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One model in one environment.

    Attributes:
        estimate: of its mean score.
        passes: k -> pass@k, or why there is none.
    """

    model: str
    environment: str
    estimate: MeanEstimate
    passes: Mapping[int, MeanEstimate | TooFewSamples]


@dataclass(frozen=True, slots=True)
class Standing:
    """One model over all of its environments.

    Attributes:
        rank: 1 and one for each model that is better by more than chance explains; None where it could be compared
            with nobody though there are others.
        groups: letters; two models that share one have not been told apart.
        mean: plain mean over its environments, with its interval.
        environments: that it has scores in.
        samples: scored ones.
        tasks: different ones among them.
        versus: comparison with the reference; None for the reference itself.
        passes: k -> mean over environments; None where one of them has too few samples.
    """

    rank: int | None
    model: str
    groups: tuple[str, ...]
    mean: Estimate
    environments: int
    samples: int
    tasks: int
    versus: Comparison | None
    passes: Mapping[int, Estimate | None]


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """What samples say about models.

    Attributes:
        environments: by name, in order.
        ks: of pass@k.
        against: the reference model; empty without models.
        is_chosen: whether somebody chose it; else it is the first by mean.
        standings: best first; models with scores in more of the environments go before.
        cells: models in that order, environments by name.
        pairs: every two models, the one that stands higher first, with p-values corrected for all of them.
    """

    environments: tuple[str, ...]
    ks: tuple[int, ...]
    against: str
    is_chosen: bool
    standings: tuple[Standing, ...]
    cells: tuple[Cell, ...]
    pairs: tuple[Comparison, ...]

    def problems(self) -> tuple[str, ...]:
        """Return what could not be told, a sentence each, the same sentence once."""
        found = [f"{pair.model} and {pair.against}: {pair.problem}" for pair in self.pairs if pair.problem]
        found += [
            f"{cell.model} in {cell.environment}: {made}"
            for cell in self.cells
            for made in cell.passes.values()
            if isinstance(made, TooFewSamples)
        ]
        return tuple(dict.fromkeys(found))


def build_leaderboard(samples: pl.DataFrame, *, against: str = "", ks: Sequence[int] = ()) -> Leaderboard:
    """Return the leaderboard of `samples`; those without a score count nowhere.

    Args:
        samples: with the columns `COLUMNS`; a task is what has the same environment and index.
        against: key or name of the model that the others are compared with; the first by mean when empty.
        ks: of pass@k.

    Raises:
        InvalidInputError: if a column is missing, there is no such model, a k is below 1, or there are too many models.
    """
    scores = TaskScores.of(_scored(samples))
    names = {environment: place for place, environment in enumerate(scores.environments)}
    cells = sorted(
        (_cell(model, environment, rows, ks) for (model, environment), rows in scores.samples.items()),
        key=lambda cell: names[cell.environment],
    )
    by_model: dict[str, list[Cell]] = {}
    for cell in cells:
        by_model.setdefault(cell.model, []).append(cell)
    if len(by_model) > MAX_MODELS:
        raise errors.InvalidInputError(
            f"a leaderboard compares at most {MAX_MODELS} models with each other (got {len(by_model)})",
            next_step="Choose environments or a later time, so that fewer models are in it.",
        )
    means = {model: _overall([cell.estimate for cell in own]) for model, own in by_model.items()}
    order = sorted(by_model, key=lambda model: (-len(by_model[model]), -means[model].mean, model))
    reference = _reference(order, against)
    pairs = adjusted([comparison(scores, one, other) for one, other in combinations(order, 2)])
    versus = versus_reference(scores, order, reference, pairs, is_chosen=bool(against))
    letters = letters_of(order, pairs)
    standings = tuple(
        Standing(
            rank=rank_of(model, pairs),
            model=model,
            groups=letters[model],
            mean=means[model],
            environments=len(by_model[model]),
            samples=sum(cell.estimate.samples for cell in by_model[model]),
            tasks=sum(cell.estimate.tasks for cell in by_model[model]),
            versus=versus.get(model),
            passes={k: _overall_pass(by_model[model], k) for k in ks},
        )
        for model in order
    )
    ordered = tuple(cell for model in order for cell in by_model[model])
    return Leaderboard(scores.environments, tuple(ks), reference, bool(against), standings, ordered, tuple(pairs))


def _scored(samples: pl.DataFrame) -> pl.DataFrame:
    missing = [name for name in COLUMNS if name not in samples.columns]
    if missing:
        raise errors.InvalidInputError(
            f"the samples lack the columns {', '.join(missing)}",
            next_step=f"A leaderboard reads {', '.join(COLUMNS)}.",
        )
    rows = distinct(samples.select(COLUMNS).with_columns(pl.col("score").cast(pl.Float64).fill_nan(None)))
    return rows.filter(pl.col("score").is_not_null())


def _cell(model: str, environment: str, rows: pl.DataFrame, ks: Sequence[int]) -> Cell:
    estimate = clustered_mean(rows["score"].to_numpy(), rows["index"].to_numpy())
    assert estimate is not None, "it is made of a sample"
    tasks = rows.group_by("index").agg(pl.col("success").sum().alias("successes"), pl.len().alias("samples"))
    tasks = tasks.sort("index")
    passes = {k: pass_at_k(tasks["successes"].to_list(), tasks["samples"].to_list(), k) for k in ks}
    return Cell(model, environment, estimate, passes)


def _overall(parts: Sequence[MeanEstimate]) -> Estimate:
    made = combined([Estimate(part.samples, part.mean, part.low, part.high, "clustered") for part in parts])
    assert made is not None, "a model is there because it has a cell"
    return made


def _overall_pass(cells: Sequence[Cell], k: int) -> Estimate | None:
    made = [cell.passes[k] for cell in cells]
    told = [part for part in made if isinstance(part, MeanEstimate)]
    return _overall(told) if len(told) == len(made) else None


def _reference(order: Sequence[str], against: str) -> str:
    if not against:
        return order[0] if order else ""
    found = [model for model in order if against in {model, model.partition("@")[0]}]
    if len(found) != 1:
        what = "several models are called" if found else "there is no scored model"
        raise errors.InvalidInputError(
            f"{what} {against!r}", next_step=f"There are {', '.join((found or list(order))[:20]) or 'none at all'}."
        )
    return found[0]
