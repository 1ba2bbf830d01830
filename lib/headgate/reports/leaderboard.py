"""The leaderboard: which model is better, and with what certainty. All tables that rank models use its ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Final, Literal, get_args

import polars as pl

from headgate.core import errors, utc_text
from headgate.reports.costs import COST_COLUMNS, Cost, costs_by
from headgate.reports.ranking import INDIFFERENCE, neighbours_of
from headgate.reports.statistics import (
    Comparison,
    TaskScores,
    adjusted,
    comparison,
    distinct,
    estimates_by,
    letters_of,
    ranks_of,
    versus_reference,
)
from headgate.sampling import RankingReport
from headgate.statistics import (
    MeanEstimate,
    TooFewSamples,
    majority_at_k,
    mean_of_means,
    pass_at_k,
)
from headgate.telemetry import safe_text

MissingRule = Literal["bound", "exclude", "zero"]
"""How samples without a score count in a ranking; see `build_leaderboard`."""

MISSING_RULES: Final[tuple[MissingRule, ...]] = get_args(MissingRule)


@dataclass(frozen=True, slots=True)
class Missing:
    """A model's samples in all environments in which it was sampled.

    Attributes:
        scored: samples with a score.
        mean_if_zero: mean over these environments if every missing score were 0.
        mean_if_one: mean if every missing score were 1; the mean without errors lies between the two.
    """

    samples: int
    scored: int
    environments: int
    mean_if_zero: float
    mean_if_one: float

    @property
    def share(self) -> float:
        """Share of samples without a score."""
        return 1 - self.scored / self.samples


def bounds_table(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row per model: its counts, its mean over environments, and its possible means given missing scores.

    A mean over environments weighs each equally, as in the leaderboard; it leaves out those without a score.
    """
    scored, points = pl.col("score").count(), pl.col("score").sum()
    return (
        samples.group_by("model", "environment")
        .agg(
            pl.len().alias("samples"),
            scored.alias("scored"),
            pl.col("score").mean().alias("mean"),
            (points / pl.len()).alias("mean_if_zero"),
            ((points + pl.len() - scored) / pl.len()).alias("mean_if_one"),
        )
        .sort("model", "environment")  # a sum's last digit depends on its order
        .group_by("model", maintain_order=True)
        .agg(
            pl.col("samples", "scored").sum(),
            pl.len().alias("environments"),
            pl.col("mean", "mean_if_zero", "mean_if_one").mean(),
        )
    )


def could_move(order: Sequence[str], missing: Mapping[str, Missing]) -> frozenset[str]:
    """Return the models that could change places with another one because of missing scores.

    Two could change places if the lower one has the higher mean, or is scored in more environments, with all its
    missing scores 1 and those of the other 0.
    """
    found: set[str] = set()
    for place, above in enumerate(order):
        ours = missing[above]
        for below in order[place + 1 :]:
            theirs = missing[below]
            best, worst = (theirs.environments, theirs.mean_if_one), (ours.environments, ours.mean_if_zero)
            if best > worst and (ours.share or theirs.share):
                found |= {above, below}
    return frozenset(found)


_NEEDED: Final = ("task_id", "model", "environment", "index", "score", "success", "finished_at", "trace_id")

SERVED: Final[tuple[str, ...]] = ("served_model", "system_fingerprint")
"""Columns of a sample that name what answered."""

LEADERBOARD_COLUMNS: Final[tuple[str, ...]] = (*_NEEDED, "answer", *COST_COLUMNS, *SERVED)
"""The columns that a leaderboard needs."""

MOST_SERVED: Final = 5
"""Maximum served models named in a sentence, the latest ones."""

MAX_MODELS: Final = 200
"""More models are not compared with each other: pairs grow quadratically, and Holm's correction with the pairs."""


@dataclass(frozen=True, slots=True)
class NoAnswers:
    """Why there is no maj@k: no sample of the environment has an answer to vote on."""

    environment: str

    def __str__(self) -> str:
        return f"{self.environment} has no maj@k: it takes no answers out of replies that could be voted on"


@dataclass(frozen=True, slots=True)
class Cell:
    """One model in one environment.

    Attributes:
        passes: k -> pass@k, or why there is none.
        majorities: k -> maj@k, likewise.
    """

    model: str
    environment: str
    estimate: MeanEstimate
    passes: Mapping[int, MeanEstimate | TooFewSamples]
    majorities: Mapping[int, MeanEstimate | TooFewSamples | NoAnswers]


@dataclass(frozen=True, slots=True)
class Standing:
    """One model over all of its environments.

    Attributes:
        rank: 1 plus the number of models that are better by more than chance explains; None if it could not be
            compared with any other, or there are more than `MAX_MODELS`.
        could_move: whether missing scores could change its place.
        groups: letters; models that share one cannot be distinguished.
        mean: plain mean over its environments, with its interval; under `bound` the interval reaches from the low end
            with all missing scores 0 to the high end with all of them 1.
        samples: number of scored samples.
        tasks: number of distinct tasks compared: among the scored samples under `exclude`, else among all.
        missing: its samples without a score, and their possible effect.
        versus: comparison with the reference; None for the reference itself.
        passes: k -> mean of pass@k over environments; None if one of them has too few samples.
        majorities: k -> mean of maj@k likewise; None also if one of them has no answers.
        cost: cost of its samples; None if no sample's cost is known.
    """

    rank: int | None
    could_move: bool
    model: str
    groups: tuple[str, ...]
    mean: MeanEstimate
    environments: int
    samples: int
    tasks: int
    missing: Missing
    versus: Comparison | None
    passes: Mapping[int, MeanEstimate | None]
    majorities: Mapping[int, MeanEstimate | None]
    cost: Cost | None = None


@dataclass(frozen=True)
class Leaderboard:
    """What samples say about models.

    Attributes:
        environments: environments in which a model has a score, sorted by name.
        without_scores: environments in which no model has one.
        against: the reference model; empty without models.
        is_chosen: whether the reference was chosen; otherwise it is the first by mean.
        standings: best first; models with scores in more of the environments come first.
        cells: models in that order, environments by name.
        unscored: models without any score -> number of samples.
        pairs: every two models, the higher-placed one first, with p-values corrected for all pairs.
        most_compared: with more models than this, none are compared with each other.
        neighbours: verdicts on each model and the next one, in the order of `standings`.
        ended: wall times at which the first and the last sample ended; (None, None) without samples.
        served: a sentence for each model whose endpoint changed meanwhile.
    """

    environments: tuple[str, ...]
    without_scores: tuple[str, ...]
    ks: tuple[int, ...]
    against: str
    is_chosen: bool
    standings: tuple[Standing, ...]
    unscored: Mapping[str, int]
    cells: tuple[Cell, ...]
    pairs: tuple[Comparison, ...]
    missing: MissingRule
    most_compared: int = MAX_MODELS
    neighbours: RankingReport = field(default_factory=RankingReport)
    ended: tuple[float, float] | tuple[None, None] = (None, None)
    served: tuple[str, ...] = ()

    def left_out(self, model: str) -> tuple[str, ...]:
        """Return the environments that a model's mean leaves out, since it has no score there."""
        own = self._scored_in.get(model, ())
        return tuple(environment for environment in self.environments if environment not in own)

    @cached_property
    def _scored_in(self) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = {}
        for cell in self.cells:
            found.setdefault(cell.model, set()).add(cell.environment)
        return found

    @property
    def has_costs(self) -> bool:
        """Whether the cost of any model's samples is known."""
        return any(one.cost is not None for one in self.standings)

    def is_partial(self, one: Standing) -> bool:
        """Return whether a model's difference from the reference covers fewer tasks than the mean of either."""
        if one.versus is None or one.versus.difference is None:
            return False
        own = {standing.tasks for standing in self.standings if standing.model in {one.model, self.against}}
        return own != {one.versus.difference.tasks}

    def problems(self) -> tuple[str, ...]:
        """Return what could not be determined, a sentence each, without duplicates."""
        found = [f"{pair.model} and {pair.against}: {pair.problem}" for pair in self.pairs if pair.problem]
        found += [
            f"{cell.model} in {cell.environment}: {made}"
            for cell in self.cells
            for made in (*cell.passes.values(), *cell.majorities.values())
            if isinstance(made, TooFewSamples)
        ]
        made = (one for cell in self.cells for one in cell.majorities.values())
        found += [str(one) for one in made if isinstance(one, NoAnswers)]
        return tuple(dict.fromkeys(found))


def in_seconds(samples: pl.DataFrame) -> pl.DataFrame:
    """Return the samples with `finished_at` as a wall time in seconds, also if they have dates."""
    if samples.schema["finished_at"].is_temporal():
        return samples.with_columns(pl.col("finished_at").dt.epoch("us") / 1_000_000)
    return samples


def served_notes(samples: pl.DataFrame) -> tuple[str, ...]:
    """Return a sentence for each model whose endpoint has named several served models or fingerprints, and when."""
    if not set(SERVED) <= set(samples.columns):
        return ()
    by = pl.concat_str(pl.col(SERVED).cast(pl.String), separator=" ", ignore_nulls=True).alias("by")
    named = in_seconds(samples).select("model", "finished_at", by).filter(pl.col("by") != "")
    spans = named.group_by("model", "by").agg(pl.col("finished_at").min(), pl.len()).sort("model", "finished_at", "by")
    told: dict[str, list[str]] = {}
    for model, name, since, number in spans.iter_rows():
        when = utc_text(since)
        told.setdefault(model, []).append(f"{safe_text(name, limit_chars=100)} since {when} (samples: {number:,})")
    return tuple(
        f"The endpoint of {model} changed; answered by {', '.join(names[-MOST_SERVED:])}."
        for model, names in told.items()
        if len(names) > 1
    )


def build_leaderboard(
    samples: pl.DataFrame,
    *,
    against: str = "",
    ks: Sequence[int] = (),
    missing: MissingRule = "bound",
    most_compared: int = MAX_MODELS,
    indifference: float = INDIFFERENCE,
) -> Leaderboard:
    """Return the leaderboard of `samples`.

    Args:
        samples: frame with the columns `LEADERBOARD_COLUMNS`, of which `answer`, costs and `SERVED` may be missing;
            samples with the same environment and index belong to the same task.
        against: key or name of the reference model; the first by mean when empty.
        ks: the k of pass@k and maj@k.
        missing: how samples without a score count. `bound`: not in a mean; as 0 when models are ordered, compared and
            ranked, so that no model gains by failing; as 0 and 1 for the ends of an interval. `zero`: as 0 everywhere.
            `exclude`: nowhere.
        most_compared: more models than this are not compared with each other, and have no rank.
        indifference: for verdicts on neighbours: either may come first if their means differ by at most this. In
            (0, 1); 0 for no verdicts.

    Raises:
        InvalidInputError: if a column is missing, there is no such model or rule, or a k is below 1.
    """
    if missing not in MISSING_RULES:
        raise errors.InvalidInputError(f"missing must be one of {', '.join(MISSING_RULES)} (got {missing!r})")
    rows = _checked(samples)
    bounds, costs = bounds_table(rows).drop("mean").iter_rows(named=True), costs_by(rows, "model")
    lacking = {str(row.pop("model")): Missing(**row) for row in bounds}
    scored = rows.filter(pl.col("score").is_not_null())
    counted = rows.filter(pl.col("environment").is_in(scored["environment"].unique().to_list()))
    if missing == "bound":  # a model without any score has no place
        counted = counted.filter(pl.col("model").is_in(scored["model"].unique().to_list()))
    at_worst = scored if missing == "exclude" else counted.with_columns(pl.col("score").fill_null(0.0))
    low = _cells(at_worst, ks)
    by_model = low if missing == "zero" or at_worst.height == scored.height else _cells(scored, ks)
    means = {model: _overall(own) for model, own in by_model.items()}
    worst = means
    if missing == "bound" and at_worst.height > scored.height:
        high = _cells(counted.with_columns(pl.col("score").fill_null(1.0)))
        by_model = {model: _bounded(own, low[model], high[model]) for model, own in by_model.items()}
        worst, best = ({m: _overall(own) for m, own in side.items()} for side in (low, high))
        means = {m: replace(made, low=worst[m].low, high=best[m].high) for m, made in means.items()}
    order = sorted(by_model, key=lambda model: (-len(by_model[model]), -worst[model].mean, model))
    reference = _reference(order, against)
    compared = order if len(order) <= most_compared else []
    scores = TaskScores.of(at_worst if compared else at_worst.clear())
    pairs = adjusted([comparison(scores, one, other) for one, other in combinations(compared, 2)])
    versus = versus_reference(scores, compared, reference, pairs, is_chosen=bool(against))
    ranks, place = ranks_of(compared, pairs), {model: number for number, model in enumerate(compared)}
    apart = {(place[pair.model], place[pair.against]) for pair in pairs if pair.is_told_apart}
    letters = dict(zip(compared, letters_of(len(compared), apart), strict=True))
    uncertain = frozenset() if missing == "zero" else could_move(compared, lacking)
    standings = tuple(
        Standing(
            rank=ranks.get(model),
            could_move=model in uncertain,
            model=model,
            groups=letters.get(model, ()),
            mean=means[model],
            environments=len(by_model[model]),
            samples=sum(cell.estimate.samples for cell in by_model[model]),
            tasks=sum(cell.estimate.tasks for cell in low[model]),
            missing=lacking[model],
            versus=versus.get(model),
            passes={k: _overall_at([cell.passes[k] for cell in by_model[model]]) for k in ks},
            majorities={k: _overall_at([cell.majorities[k] for cell in by_model[model]]) for k in ks},
            cost=costs.get((model,)),
        )
        for model in order
    )
    environments = tuple(sorted(at_worst["environment"].unique()))
    return Leaderboard(
        environments=environments,
        without_scores=tuple(sorted(set(rows["environment"].unique()) - set(environments))),
        ks=tuple(ks),
        against=reference,
        is_chosen=bool(against),
        standings=standings,
        unscored={model: told.samples for model, told in lacking.items() if model not in by_model},
        cells=tuple(cell for model in order for cell in by_model[model]),
        pairs=tuple(pairs),
        missing=missing,
        most_compared=most_compared,
        neighbours=neighbours_of(at_worst, order, indifference) if indifference else RankingReport(),
        ended=rows.select(first=pl.col("finished_at").min(), last=pl.col("finished_at").max()).row(0),
        served=served_notes(rows),
    )


def _checked(samples: pl.DataFrame) -> pl.DataFrame:
    missing = [name for name in _NEEDED if name not in samples.columns]
    if missing:
        raise errors.InvalidInputError(
            f"the samples lack the columns {', '.join(missing)}",
            next_step=f"A leaderboard reads {', '.join(LEADERBOARD_COLUMNS)}.",
        )
    optional = {"answer": pl.String, **dict.fromkeys(COST_COLUMNS, pl.Int64), **dict.fromkeys(SERVED, pl.String)}
    samples = samples.with_columns(
        pl.lit(None, dtype=kind).alias(name) for name, kind in optional.items() if name not in samples.columns
    )
    samples = in_seconds(samples)
    return distinct(samples.select(LEADERBOARD_COLUMNS).with_columns(pl.col("score").cast(pl.Float64).fill_nan(None)))


def _cells(scored: pl.DataFrame, ks: Sequence[int] = ()) -> dict[str, list[Cell]]:
    """Return the cells of each model, environments by name."""
    by_task: dict[tuple[object, ...], pl.DataFrame] = {}
    if ks:
        tasks = scored.group_by("model", "environment", "index").agg(
            pl.col("success").sum().alias("successes"),
            pl.len().alias("samples"),
            pl.struct("answer", "success").sort_by("task_id").alias("votes"),  # ids are unrelated to time and score
        )
        by_task = tasks.sort("index").partition_by("model", "environment", as_dict=True, maintain_order=True)
    found: dict[str, list[Cell]] = {}
    voting = set(scored.filter(pl.col("answer").is_not_null())["environment"].unique()) if ks else set()
    for (model, environment), estimate in estimates_by(scored, "model", "environment").items():
        passes: dict[int, MeanEstimate | TooFewSamples] = {}
        majorities: dict[int, MeanEstimate | TooFewSamples | NoAnswers] = {}
        if (own := by_task.get((model, environment))) is not None:
            counts = own["successes"].to_list(), own["samples"].to_list()
            votes = [[(one["answer"], one["success"]) for one in task] for task in own["votes"].to_list()]
            for k in ks:
                passes[k] = pass_at_k(*counts, k)
                majorities[k] = majority_at_k(votes, k) if environment in voting else NoAnswers(environment)
        found.setdefault(model, []).append(Cell(model, environment, estimate, passes, majorities))
    return found


def _bounded(cells: Sequence[Cell], low: Sequence[Cell], high: Sequence[Cell]) -> list[Cell]:
    """Return cells with intervals valid for any values of the missing scores, and `ks` with these as failures."""
    found = {cell.environment: cell for cell in cells}
    return [
        replace(bad, estimate=replace(cell.estimate, low=bad.estimate.low, high=good.estimate.high))
        for bad, good in zip(low, high, strict=True)
        if (cell := found.get(bad.environment)) is not None
    ]


def _overall(cells: Sequence[Cell]) -> MeanEstimate:
    return mean_of_means([cell.estimate for cell in cells])


def _overall_at(cells: Sequence[MeanEstimate | TooFewSamples | NoAnswers]) -> MeanEstimate | None:
    told = [made for made in cells if isinstance(made, MeanEstimate)]
    return mean_of_means(told) if len(told) == len(cells) else None


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
