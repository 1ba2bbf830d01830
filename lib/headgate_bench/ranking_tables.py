"""Tables of models × tasks, drawn or recorded, and rules that rank models by a part of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headgate.config import Settings
from headgate.environments import BaselineKind, baseline_episode, environment
from headgate.sampling import ranking_shares
from headgate.statistics import ConfidenceSequence, PairwiseRanking, Verdict

Floats = NDArray[np.float64]

_LEVEL: Final = 0.05
_ROUNDING: Final = 1e-9
_ROWS_AT_ONCE: Final = 4
_KINDS: Final[tuple[BaselineKind, ...]] = ("random", "greedy", "solver")
_RECORDED: Final = Path(__file__).with_name("small_models.parquet")
_FAQ_ACTIVE: Final = 0.5
"""Share of the budget over which FAQ moves from learning the model's factors to the least variance."""

_FAQ_UNIFORM: Final = 0.1

_LOOK_ROWS: Final = 16
"""Rows that a model takes at its plain rate between two checks of what the ranking needs."""


@dataclass(frozen=True, slots=True)
class Table:
    """The result of a full run.

    Attributes:
        scores: models × rows, in the order in which rows are taken.
        tokens: cost of each cell, likewise models × rows.
        known: number of models, the first ones, that were run earlier, at no cost.
    """

    scores: Floats
    tokens: Floats
    known: int = 0

    @property
    def compared(self) -> int:
        """Number of pairs of models in which at least one was not run earlier."""
        models = len(self.scores)
        return (models * (models - 1) - self.known * (self.known - 1)) // 2


@dataclass(frozen=True, slots=True)
class Setting:
    """How the tables of a setting are drawn: by a two-parameter item response model, with one special feature.

    Attributes:
        name: name in reports.
        models: models in each table.
        rows: tasks per model in a full run.
        spread: standard deviation of the models' abilities; that of the tasks' difficulties is 1.5.
        slope: slope of a typical task.
        known: models that were run earlier.
        special: `clusters` of tasks that share a difficulty and suit models differently, an `outlier` model that is
            good where others are bad, `graded` scores, or a model that is `changing` while it is sampled.
        holds: whether the assumptions of the guarantee hold.
    """

    name: str
    models: int
    rows: int
    spread: float = 1.0
    slope: float = 1.0
    known: int = 0
    special: str = ""
    holds: bool = True

    def table(self, rng: np.random.Generator, rows: float = 1.0) -> Table:
        """Draw a table with this share of the rows."""
        count = max(8, round(self.rows * rows))
        ability = rng.normal(0.0, self.spread, self.models)[:, None]
        difficulty, slope = rng.normal(0.0, 1.5, count), self.slope * np.exp(rng.normal(0.0, 0.3, count))
        if self.special == "clusters":
            cluster = rng.integers(20, size=count)
            difficulty = rng.normal(0.0, 1.4, 20)[cluster] + rng.normal(0.0, 0.5, count)
            ability = ability + rng.normal(0.0, 0.5, (self.models, 20))[:, cluster]
        shift = np.zeros((self.models, count))
        if self.special == "outlier":
            shift[-1] = 2.0 * difficulty  # it solves the tasks that the others do not
        if self.special == "changing":
            shift[-1] = np.linspace(-0.3, 0.3, count)
        chances = 1.0 / (1.0 + np.exp(-slope * (ability + shift - difficulty)))
        scores = (rng.random(chances.shape) < chances).astype(np.float64)
        if self.special == "graded":
            scores = np.asarray(rng.beta(4.0 * chances, 4.0 * (1.0 - chances)), dtype=np.float64)
        return Table(scores, _tokens(rng, scores), self.known)


@dataclass(frozen=True, slots=True)
class Played:
    """Tables of real tasks: eight models of graded strength, each of which plays a task like one of the baselines.

    A model of strength *s* plays a task like the solver with probability *s*², like the random one with (1 - *s*)²,
    else like the greedy one.

    Attributes:
        scores: baselines (random, greedy, solver) × environments × tasks.
    """

    scores: Floats
    name: str = "baselines of graded strength"
    known: int = 0
    holds: bool = True

    @classmethod
    async def of(cls, names: Sequence[str], tasks: int) -> Self:
        """Play the first `tasks` tasks of each environment with all baselines."""
        found = [environment(name) for name in names]
        return cls(
            np.array(
                [
                    [
                        [(await baseline_episode(one, kind, index)).score or 0.0 for index in range(tasks)]
                        for one in found
                    ]
                    for kind in _KINDS
                ]
            )
        )

    def table(self, rng: np.random.Generator, rows: float = 1.0) -> Table:
        """Draw models and the order of the tasks; a row is one task of each environment."""
        _, environments, tasks = self.scores.shape
        skill = rng.uniform(0.1, 0.9, (8, 1, 1))
        chosen = rng.binomial(len(_KINDS) - 1, skill, (8, environments, tasks))
        scores = np.take_along_axis(self.scores, chosen, axis=0).mean(axis=1)
        scores = scores[:, rng.permutation(tasks)[: max(8, round(tasks * rows))]]
        return Table(scores, _tokens(rng, scores))


@dataclass(frozen=True, slots=True)
class Recorded:
    """Scores of real language models on real tasks, as sampled by `scripts/ranking_table.py`.

    Attributes:
        scores: models × environments × tasks.
        tokens: tokens of prompts and answers, likewise models × environments × tasks.
    """

    scores: Floats
    tokens: Floats
    name: str = "small language models"
    known: int = 0
    holds: bool = True

    @classmethod
    def read(cls) -> Self:
        """Read the table that is built into the benchmarks: it has every task once for every model."""
        axes = ("model", "environment", "task")
        frame = pl.read_parquet(_RECORDED).sort(axes)
        shape = [frame[axis].n_unique() for axis in axes]
        scores, tokens = (frame[name].to_numpy().astype(np.float64).reshape(shape) for name in ("score", "tokens"))
        return cls(scores, tokens)

    def table(self, rng: np.random.Generator, rows: float = 1.0) -> Table:
        """Draw the order of the tasks only; a row is one task of each environment."""
        tasks = self.scores.shape[2]
        order = rng.permutation(tasks)[: max(8, round(tasks * rows))]
        return Table(self.scores.mean(axis=1)[:, order], self.tokens.sum(axis=1)[:, order])


def _tokens(rng: np.random.Generator, scores: Floats) -> Floats:
    models, rows = scores.shape
    lengths: Floats = 500.0 * rng.lognormal(0.0, 0.5, (models, 1)) * rng.lognormal(0.0, 0.8, rows)
    return lengths


SETTINGS: Final = (
    Setting("10 models × 3 000 tasks", 10, 3_000),
    Setting("20 models × 3 000 tasks", 20, 3_000),
    Setting("10 models × 1 000 tasks", 10, 1_000),
    Setting("10 models × 300 tasks", 10, 300),
    Setting("far apart", 6, 1_000, spread=2.0),
    Setting("all close together", 6, 1_000, spread=0.1),
    Setting("clusters of tasks", 10, 3_000, special="clusters"),
    Setting("one unlike all others", 10, 3_000, special="outlier"),
    Setting("graded scores", 10, 1_000, special="graded"),
    Setting("a new one beside 20 known × 1 000 tasks", 21, 1_000, known=20),
    Setting("a new one beside 20 known × 3 000 tasks", 21, 3_000, known=20),
    Setting("a new one unlike the known", 21, 1_000, known=20, special="outlier"),
    Setting("one that changes meanwhile", 10, 1_000, special="changing", holds=False),
)


@dataclass(frozen=True, slots=True)
class Ranked:
    """The result of a rule on a table.

    Attributes:
        share: tokens spent, as a share of those of a full run.
        wrong: pairs whose verdict the full table contradicts.
        pairs: decided pairs.
        cells: cells taken per model.
        held: intervals that contain the difference over all tasks; None for rules without intervals.
    """

    share: float
    wrong: int
    pairs: int
    cells: NDArray[np.int64]
    held: int | None = None


Kind = Setting | Played | Recorded

Rule = Callable[[Table, float, NDArray[np.int64]], Ranked]
"""Takes a table, the indifference, and the number of cells per model that the first rule took."""


def sequential(table: Table, indifference: float, _: NDArray[np.int64]) -> Ranked:
    """Rank with `headgate.statistics.PairwiseRanking`, four rows of each open model at a time."""
    return _sequential(table, indifference, table.known)


def strict(table: Table, indifference: float, _: NDArray[np.int64]) -> Ranked:
    """Rank likewise until all pairs of models are either told apart or shown to be alike."""
    return _sequential(table, indifference, table.known, is_strict=True)


def told_the_truth(table: Table, indifference: float, _: NDArray[np.int64]) -> Ranked:
    """Return a bound: strict decisions by a rule that knows all differences and needs evidence for single pairs only.

    On average, a test of level α that decides correctly needs rows with log(1/α) of evidence for the truth against the
    nearest limit that the verdict rules out (Wald 1945); n rows of a finite table give n / (1 - n/rows) times the
    evidence of one. Known models predict with the fit of the full table. No real rule can reach this: the differences
    are unknown, and verdicts on many pairs need more evidence.
    """
    models, rows = table.scores.shape
    means, needed = table.scores.mean(axis=1), np.zeros(models)
    rest = table.scores - _predicted(table)
    for second in range(table.known or 1, models):
        for first in range(second):
            gap = abs(float(means[first] - means[second]))
            distance = max(gap, indifference - gap)
            times = 2 * math.log(1 / _LEVEL) * float((rest[first] - rest[second]).var()) / (rows * distance**2)
            needed[[first, second]] = np.maximum(needed[[first, second]], times / (1 + times))
    cells = np.ceil(needed * rows - _ROUNDING).astype(np.int64)
    cells[: table.known] = 0
    return Ranked(_share(table, cells), 0, table.compared, cells)


def _predicted(table: Table) -> Floats:
    """Return the best prediction of all scores from known models, by their mean and two factors; 0 without any."""
    if not table.known:
        return np.zeros_like(table.scores)
    known = table.scores[: table.known]
    mean = known.mean(axis=0)
    features = np.column_stack([np.ones(mean.size), mean, *_components(known, mean)])
    predicted: Floats = (features @ np.linalg.lstsq(features, table.scores.T, rcond=None)[0]).T
    predicted[: table.known] = known
    return predicted


def without_predictions(table: Table, indifference: float, _: NDArray[np.int64]) -> Ranked:
    """Rank likewise, but without predictions from known models: their scores are revealed row by row."""
    return _sequential(table, indifference, 0)


def _sequential(table: Table, indifference: float, known: int, *, is_strict: bool = False) -> Ranked:
    scores = np.full_like(table.scores, np.nan)
    scores[:known] = table.scores[:known]
    ranking = PairwiseRanking(scores, indifference, is_strict=is_strict)
    cells = np.zeros(len(scores), dtype=np.int64)
    new = np.arange(len(scores)) >= table.known
    while (needed := ranking.open_models())[new].any():
        for model, row in ranking.next(_ROWS_AT_ONCE * int(needed.sum())):
            ranking.add(model, row, table.scores[model, row])
            cells[model] += 1
        ranking.advance()
    means, wrong, held, pairs = table.scores.mean(axis=1), 0, 0, 0
    for one in ranking.decisions():
        if one.second < table.known:
            continue  # both are known
        full = float(means[one.first] - means[one.second])
        wrong += contradicts(full, one.verdict, indifference)
        held += one.low - 1e-3 <= full <= one.high + 1e-3
        pairs += 1
    return Ranked(_share(table, cells), wrong, pairs, cells, held)


def tokens_by_rates(table: Table, indifference: float, *, uniform: float) -> list[float]:
    """Return the tokens spent when one pair was ranked, two pairs, and so on, with samples that arrive by rates.

    The rows are the start of an endless source. Sampling ends with the table's rows, or when every pair is ranked.

    Args:
        table: a table without known models.
        indifference: indifference of the verdicts.
        uniform: `allocation_uniform` of `allocation: ranking`; with 1, all models get their plain rates.
    """
    models, rows = table.scores.shape
    ranking = PairwiseRanking(np.full((models, rows), np.nan), indifference, is_endless=True)
    due, taken = np.zeros(models), np.zeros(models, dtype=np.int64)
    found: list[float] = []
    shares = np.ones(models)
    while ranking.open_pairs and taken.max() < rows:
        due = np.minimum(due + shares * _LOOK_ROWS, rows)
        for model in range(models):
            for row in range(taken[model], int(due[model])):
                ranking.add(model, row, float(table.scores[model, row]))
        ranking.advance()
        taken = due.astype(np.int64)
        spent = [float(tokens[:count].sum()) for tokens, count in zip(table.tokens, taken, strict=True)]
        found += [sum(spent)] * (table.compared - ranking.open_pairs - len(found))
        if uniform < 1:
            shares = _shares(table, taken, np.array(spent) / np.maximum(1, taken), indifference, uniform)
    return found


def _shares(table: Table, taken: NDArray[np.int64], costs: Floats, indifference: float, uniform: float) -> Floats:
    seen = [{"": dict(enumerate(scores[:count]))} for scores, count in zip(table.scores, taken, strict=True)]
    boost = float(Settings.model_fields["low_sample_multiplier"].default)
    *_, shares = ranking_shares(seen, costs.tolist(), indifference=indifference, uniform=uniform, most=boost)
    assert shares is not None, "the last one is the answer"
    return shares


def uniform(table: Table, _: float, __: NDArray[np.int64]) -> Ranked:
    """Take everything."""
    cells = np.full(len(table.scores), table.scores.shape[1])
    return Ranked(1.0, 0, table.compared, cells)


def half_width(table: Table, indifference: float, _: NDArray[np.int64]) -> Ranked:
    """Stop each model when its mean is known to within `indifference`, like `target_half_width`."""
    cells = np.zeros(len(table.scores), dtype=np.int64)
    for model, scores in enumerate(table.scores):
        known = ConfidenceSequence()
        for score in scores:
            if known.half_width <= indifference:
                break
            known.add(float(score))
        cells[model] = known.count
    return _by_means(table, indifference, cells)


def successive_elimination(table: Table, indifference: float, _: NDArray[np.int64]) -> Ranked:
    """Stop each model when its interval overlaps no other or is narrow (Even-Dar et al. 2006, Heckel et al. 2019)."""
    models, rows = table.scores.shape
    cells, means = np.zeros(models, dtype=np.int64), np.zeros(models)
    active, totals = np.ones(models, dtype=np.bool_), np.zeros(models)
    for row in range(rows):
        cells[active] += 1
        totals[active] += table.scores[active, row]
        means = totals / np.maximum(1, cells)
        radius = np.sqrt(np.log(4.0 * models * np.maximum(1, cells) ** 2 / _LEVEL) / (2.0 * np.maximum(1, cells)))
        meets = np.abs(means[:, None] - means) < radius[:, None] + radius
        np.fill_diagonal(meets, False)
        active &= meets.any(axis=1) & (2 * radius > indifference)
        if not active.any():
            break
    return _by_means(table, indifference, cells)


def ucb_e(table: Table, indifference: float, taken: NDArray[np.int64]) -> Ranked:
    """Spend as many cells as the first rule on the candidates for the best model (Audibert and Bubeck 2010, a = 1)."""
    models, rows = table.scores.shape
    cells, totals = np.ones(models, dtype=np.int64), table.scores[:, 0].copy()
    for _ in range(int(taken.sum()) - models):
        bound = np.where(cells < rows, totals / cells + np.sqrt(1.0 / cells), -math.inf)
        model = int(bound.argmax())
        totals[model] += table.scores[model, cells[model]]
        cells[model] += 1
    return _by_means(table, indifference, cells)


def faq(table: Table, indifference: float, taken: NDArray[np.int64]) -> Ranked:
    """Estimate each new model from as many tasks as the first rule took, chosen actively (FAQ, Wu et al. 2026).

    The published rule: tasks are drawn with replacement, by a mixture of their predicted standard deviation and their
    information about the model's factors, tempered and mixed with a uniform share; the estimate is the mean of AIPW
    terms. The factors are those of the known models' scores. Its settings, which the paper tunes for each budget, are
    in the middle of its grid. It has no stopping rule. A task that is drawn again costs nothing.
    """
    rows, full = table.scores.shape[1], table.scores.mean(axis=1)
    items, start, spread = _factors(table.scores[: table.known])
    rng, found, costs = np.random.default_rng(rows), full.copy(), 0.0
    cells = np.full(len(full), rows)
    for model in range(table.known, len(full)):
        budget, ability, known = max(1, int(taken[model])), start.copy(), spread.copy()
        terms, seen = np.zeros(budget), np.zeros(rows, dtype=np.bool_)
        for step in range(budget):
            expected = 1.0 / (1.0 + np.exp(-np.clip(items @ ability, -30.0, 30.0)))
            weight = np.maximum(expected * (1.0 - expected), _ROUNDING)
            told = items @ known @ (items.T @ weight) / rows
            variance = np.einsum("ij,jk,ik->i", items, known, items)
            gain = weight * told**2 / (1.0 + weight * variance) + _ROUNDING**2
            active = max(0.0, 1.0 - (step + 1) / (_FAQ_ACTIVE * budget))
            chosen = (1.0 - active) * np.sqrt(weight) / np.sqrt(weight).sum() + active * gain / gain.sum()
            chances = (1.0 - _FAQ_UNIFORM) * chosen / chosen.sum() + _FAQ_UNIFORM / rows
            row = int(rng.choice(rows, p=chances))
            surprise = table.scores[model, row] - expected[row]
            terms[step], seen[row] = expected.mean() + surprise / (chances[row] * rows), True
            moved = known @ items[row]
            known = known - weight[row] * np.outer(moved, moved) / (1.0 + weight[row] * items[row] @ moved)
            ability = ability + known @ items[row] * surprise
        found[model], cells[model] = terms.mean(), int(seen.sum())
        costs += float(table.tokens[model, seen].sum())
    return _compared(found, table, indifference, cells, costs / float(table.tokens[table.known :].sum()))


def _components(scores: Floats, mean: Floats) -> Floats:
    """Return the two main principal components of the scores less row means and model means, scaled to 1 per row."""
    beyond = scores - mean
    parts = np.linalg.svd(beyond - beyond.mean(axis=1, keepdims=True), full_matrices=False)[2][:2]
    return np.asarray(parts * math.sqrt(mean.size), dtype=np.float64)


def _factors(scores: Floats) -> tuple[Floats, Floats, Floats]:
    """Return rows × factors, and the mean and covariance of the known models' coefficients, in logits."""
    models, _ = scores.shape
    mean = np.clip(scores.mean(axis=0), 0.5 / models, 1.0 - 0.5 / models)
    items = np.column_stack([np.ones(mean.size), np.log(mean / (1.0 - mean)), *_components(scores, mean)])
    abilities = np.zeros((models, items.shape[1]))
    for _ in range(8):  # Newton's steps of a ridge regression
        expected = 1.0 / (1.0 + np.exp(-np.clip(abilities @ items.T, -30.0, 30.0)))
        for model, slope in enumerate((scores - expected) @ items - abilities):
            weight = expected[model] * (1.0 - expected[model])
            abilities[model] += np.linalg.solve((items.T * weight) @ items + np.eye(items.shape[1]), slope)
    return items, abilities.mean(axis=0), np.cov(abilities.T)


def _by_means(table: Table, indifference: float, cells: NDArray[np.int64]) -> Ranked:
    """Return the verdicts by the mean of each model's first `cells` cells."""
    cells = cells.copy()
    cells[: table.known] = table.scores.shape[1]
    found = np.array([scores[: max(1, count)].mean() for scores, count in zip(table.scores, cells, strict=True)])
    return _compared(found, table, indifference, cells, _share(table, cells))


def _compared(found: Floats, table: Table, indifference: float, cells: NDArray[np.int64], share: float) -> Ranked:
    full, wrong, pairs = table.scores.mean(axis=1), 0, 0
    for second in range(table.known or 1, len(cells)):
        for first in range(second):
            apart = float(found[first] - found[second])
            verdict: Verdict = "not worse" if apart >= 0 else "not better"
            wrong += contradicts(float(full[first] - full[second]), verdict, indifference)
            pairs += 1
    return Ranked(share, wrong, pairs, cells)


def contradicts(full: float, verdict: Verdict, indifference: float) -> bool:
    """Return whether the difference over all tasks, first minus second, contradicts a verdict."""
    return {
        "better": full < -_ROUNDING,
        "worse": full > _ROUNDING,
        "alike": abs(full) > indifference + _ROUNDING,
        "not worse": full < -indifference - _ROUNDING,
        "not better": full > indifference + _ROUNDING,
        "open": True,
    }[verdict]


def _share(table: Table, cells: NDArray[np.int64]) -> float:
    new = slice(table.known, None)
    spent = sum(float(tokens[:count].sum()) for tokens, count in zip(table.tokens[new], cells[new], strict=True))
    return spent / float(table.tokens[new].sum())
