"""When models have been sampled enough to be ranked against each other, and whose samples contribute most to that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headgate.core.events import ModelsRanked
from headgate.statistics import PairDecision, PairwiseRanking

NEXT_SAMPLES: Final = 1_000
"""Samples for which the report forecasts decisions."""

_LEAD: Final = 20
"""Rows by which a model may be ahead of all others with which it is still compared: with fewer, models wait for each
other more often; with more, they take more rows in vain beside one that stands still."""

_MOST_ROWS: Final = 4_000
_ROWS_AT_ONCE: Final = 32
_REACH: Final = 10
_NEW: Final = 20
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class RankingReport:
    """The progress of a ranking.

    Attributes:
        next_decides: how many of the open pairs the next 1 000 samples are expected to decide; None if nothing is known
            of any of them, or no samples of theirs are to come.
        indifference: differences of means that were not to be told apart.
        unscored: models without any score; their pairs are open.
    """

    pairs: tuple[ModelsRanked, ...] = ()
    next_decides: float | None = 0.0
    indifference: float = 0.0
    unscored: tuple[str, ...] = ()

    @property
    def open(self) -> int:
        """Number of pairs that are not decided."""
        return sum(pair.verdict == "open" for pair in self.pairs)


class RankingStop:
    """Decides which models of a matrix need no more samples. Pure; owned by the campaign.

    A row of the ranking is one task of each environment, in the matrix's order; a model's score for a row is the mean
    over environments. A task that ends without a score counts as 0, as in the leaderboard.
    """

    def __init__(self, indifference: float, rows: Mapping[tuple[str, int], int]) -> None:
        """Prepare it.

        Args:
            indifference: means that differ by no more than this need not be distinguished; in (0, 1).
            rows: (environment, sequence) of each task -> its row.
        """
        self._indifference, self._rows = indifference, rows
        self._count = 1 + max(rows.values(), default=-1)
        self._environments = len({environment for environment, _ in rows})
        self._sums: dict[str, NDArray[np.float64]] = {}
        self._ended: dict[str, NDArray[np.int64]] = {}
        self._seen: set[tuple[str, str, int]] = set()
        self._scored: set[str] = set()
        self._models: list[str] = []
        self._left: set[str] = set()
        self._ranking: PairwiseRanking | None = None
        self._told: set[tuple[str, str]] = set()

    def has(self, environment: str, sequence: int) -> bool:
        """Return whether a task is part of the ranking."""
        return (environment, sequence) in self._rows

    def past(self, model: str, environment: str, sequence: int, score: float | None) -> int | None:
        """Note how a task ended; return its row if that completes the row."""
        row = self._rows.get((environment, sequence))
        if row is None or (model, environment, sequence) in self._seen:
            return None
        self._seen.add((model, environment, sequence))
        if score is not None:
            self._scored.add(model)
        sums = self._sums.setdefault(model, np.zeros(self._count))
        ended = self._ended.setdefault(model, np.zeros(self._count, dtype=np.int64))
        sums[row] += score or 0.0
        ended[row] += 1
        return row if ended[row] == self._environments else None

    def join(self, models: Sequence[str], complete: Collection[str] = ()) -> None:
        """Include these models in the ranking, beside those that are `complete`: these get no more samples.

        Raises:
            InvalidInputError: if there is only one model, or no task.
        """
        self._models += [model for model in models if model not in self._models]
        self._left -= set(models)
        empty = np.full(self._count, np.nan)
        table = [
            np.where(self._ended[model] == self._environments, self._sums[model] / self._environments, np.nan)
            if model in self._sums
            else empty
            for model in self._models
        ]
        self._ranking = PairwiseRanking(np.array(table), self._indifference)
        for model in {*self._left, *complete}:
            self._ranking.drop(self._models.index(model), keeps_rows=model not in self._left)

    def recount(self, cells: Iterable[tuple[str, str, int, float | None]], complete: Collection[str] = ()) -> None:
        """Recompute the ranking from the ended tasks that count now: model, environment, sequence and score of each."""
        self._sums, self._ended, self._seen, self._scored = {}, {}, set(), set()
        for cell in cells:
            self.past(*cell)
        if self._models:
            self.join((), complete)

    def leave(self, model: str) -> None:
        """Remove a model from the ranking."""
        if self._ranking is not None and model in self._models:
            self._left.add(model)
            self._ranking.drop(self._models.index(model))

    def ended(self, model: str, environment: str, sequence: int, score: float | None) -> None:
        """Note how a task ended."""
        row = self.past(model, environment, sequence, score)
        if row is not None and self._ranking is not None and model in self._models:
            self._ranking.add(self._models.index(model), row, float(self._sums[model][row]) / self._environments)
            self._ranking.advance()

    @property
    def open_pairs(self) -> int:
        """Number of pairs of models that are not decided."""
        return 0 if self._ranking is None else self._ranking.open_pairs

    def settled(self) -> list[str]:
        """Return the models that need no more samples."""
        if self._ranking is None:
            return []
        return [model for model, is_open in zip(self._models, self._ranking.open_models(), strict=True) if not is_open]

    def limits(self, reached: Callable[[str], int]) -> dict[str, int]:
        """Return the row at which each model waits for those with which it is still compared, for models with any.

        A row says something of a pair only once both models have it. `reached` returns how many a model has begun.
        """
        if self._ranking is None:
            return {}
        furthest = self._ranking.furthest([reached(model) for model in self._models])
        return {model: row + _LEAD for model, row in zip(self._models, furthest, strict=True) if row >= 0}

    def news(self) -> list[ModelsRanked]:
        """Return the pairs that were decided since the last call."""
        if self._ranking is None:
            return []
        found = {(self._models[m], self._models[n]): pair for pair, (m, n) in self._ranking.decided().items()}
        fresh = [names for names in found if names not in self._told and self._scored.issuperset(names)]
        self._told.update(fresh)
        return [self._named(self._ranking.decision(found[names])) for names in fresh]  # an interval takes milliseconds

    def report(self) -> RankingReport:
        """Return the state of every pair of models, and a forecast."""
        if self._ranking is None:
            return RankingReport()
        samples = NEXT_SAMPLES // max(1, self._environments)
        foreseen = self._ranking.forecast(samples, np.random.default_rng(0))
        unscored = tuple(model for model in self._models if model not in self._scored)
        foreseen = foreseen if self.open_pairs or not unscored else None
        return RankingReport(tuple(map(self._named, self._ranking.decisions())), foreseen, self._indifference, unscored)

    def _named(self, one: PairDecision) -> ModelsRanked:
        first, second = self._models[one.first], self._models[one.second]
        is_told = self._scored.issuperset((first, second))  # failures alone, as of an outage, decide nothing
        verdict, certainty = (one.verdict, one.certainty) if is_told else ("open", 0.0)
        return ModelsRanked(first, second, verdict, certainty, one.rows, one.difference, one.low, one.high)


def ranking_shares(
    scores: Sequence[Mapping[str, Mapping[int, float]]],
    tokens: Sequence[float],
    *,
    indifference: float,
    uniform: float,
    most: float,
) -> Iterator[NDArray[np.float64] | None]:
    """Yield None while computing, and finally each model's share of every environment's samples (1 is an even share).

    Shares average 1. What exceeds `uniform` is distributed by how many pairs a model's next task in each environment
    is expected to decide, per token, on tasks like these. The model with the highest mean so far, and models with
    fewer than 20 such tasks, get at least 1. Each model is compared with those at most 10 places away in the order of
    means, on its first 4 000 tasks.

    Args:
        scores: each model's scores by environment and sequence; one missing before the last sequence counts as 0.
        tokens: mean tokens per sample of each model.
        indifference: see `RankingStop`; in (0, 1).
        uniform: smallest share, in (0, 1].
        most: largest share.
    """
    environments = {name for one in scores for name in one}
    tables = []
    for one in scores:
        tables.append(_rows_of(one, environments))
        yield None
    order = sorted(range(len(scores)), key=lambda n: -float(tables[n].mean()) if tables[n].size else 0.0)
    length = max((table.size for table in tables), default=0)
    if len(scores) < 2 or not length:
        yield np.ones(len(scores))
        return
    pairs = [(m, n) for place, m in enumerate(order) for n in order[place + 1 : place + 1 + _REACH]]
    ranking = PairwiseRanking(np.full((len(scores), length), np.nan), indifference, pairs=pairs, is_endless=True)
    for start in range(0, length, _ROWS_AT_ONCE):
        for model, table in enumerate(tables):
            for row, score in enumerate(table[start : start + _ROWS_AT_ONCE], start):
                ranking.add(model, row, float(score))
        ranking.advance()
        yield None
    sizes = np.array([table.size for table in tables])
    least = np.where(sizes < _NEW, 1.0, uniform)
    least[order[0]] = 1.0
    worth = ranking.worth() / np.asarray(tokens)
    yield _filled_up(least, worth, max(1.0, most)) if worth.any() else np.ones(len(scores))


def _rows_of(scores: Mapping[str, Mapping[int, float]], environments: Collection[str]) -> NDArray[np.float64]:
    """Return a model's mean over environments for each sequence that it has reached in all of them."""
    lengths = [1 + max(scores.get(name) or {-1: 0.0}) for name in environments]
    count = min(min(lengths, default=0), _MOST_ROWS)
    found = np.zeros(count)
    for name in environments:
        found += [scores[name].get(row, 0.0) for row in range(count)] if count else 0.0
    return found / max(1, len(lengths))


def _filled_up(least: NDArray[np.float64], worth: NDArray[np.float64], most: float) -> NDArray[np.float64]:
    """Return shares from `least` to `most` that average 1; what exceeds `least` goes by worth, as far as possible."""
    shares = least.copy()
    for _ in range(2 * least.size):
        room, left = most - shares, least.size - shares.sum()
        if left < _ROUNDING:
            break
        wanted = np.where(room > _ROUNDING, worth, 0.0)
        if not wanted.any():
            wanted = (room > _ROUNDING).astype(np.float64)
        if not wanted.any():
            break
        shares += np.minimum(room, left * wanted / wanted.sum())
    return shares
