"""Decides which of several models score higher on a fixed set of tasks, before all of the tasks were sampled."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headgate.core.errors import InvalidInputError

Floats = NDArray[np.float64]
Verdict = Literal["better", "worse", "alike", "not worse", "not better", "open"]

_LEVEL: Final = 0.05
_STAKES: Final = (2.5, 5.0)
"""Differences of full means for which bets are optimal, in standard errors of a full run; tuned on simulated tables."""

_ENDLESS_STAKES: Final = (0.4, 0.2, 0.1, 0.05, 0.025)
"""The same for endless rows, in standard deviations of a row."""

_RISK: Final = 0.9
"""Largest share of its capital that a bet risks."""

_PRIOR_SQUARE: Final = 0.5
"""Squared difference of a row that is assumed to be seen before the first."""

_BLOCK: Final = 16
"""Number of rows that are predicted by the same fit."""

_COMPONENTS: Final = 2
_OPEN: Final = 9
_VERDICTS: Final[dict[int, Verdict]] = {
    1: "better", -1: "worse", 0: "alike", 2: "not worse", -2: "not better", _OPEN: "open",
}  # fmt: skip
_ORDER: Final = np.array([1, -1, 0, 2, -2])
_STRICT: Final = 3
"""The first this many verdicts say whether two models differ; the others only which one may come first."""

_CANDIDATES: Final = 25
_ROUNDS: Final = 2
"""Rounds of refinement of a limit; each spreads the candidates between two neighbours of the last round."""

_REPLAYS: Final = 10
_SIGNS: Final = np.array([1.0, -1.0, -1.0, 1.0])
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class PairDecision:
    """The state of a comparison of two models.

    Attributes:
        first: index of one model.
        second: index of the other.
        verdict: the first model against the second on all rows: `better`, `worse`, `alike` (their means differ by at
            most `indifference`), `not worse` (by more than `indifference`; it comes first), `not better`, or `open`.
        certainty: the verdict is right with at least this probability, whenever it was made; 1 if all rows are known,
            0 while it is open.
        rows: number of rows seen.
        difference: difference of the means on these rows.
        low: lower limit of the 95 % confidence sequence for the difference on all rows.
        high: its upper limit.
    """

    first: int
    second: int
    verdict: Verdict
    certainty: float
    rows: int
    difference: float
    low: float
    high: float


class PairwiseRanking:
    """Decides for each pair of models which has the higher mean over all rows of a table. Pure.

    A row is a task, or one task of each environment; a cell is a model's score of it, in [0, 1]. The full table is what
    a full run would fill. Rows are taken in a random order that is the same for every model, so that they are a sample
    without replacement, and each comparison is on the same rows. For each possible limit of a difference (0 from above
    and below, `indifference` from below, -`indifference` from above) a bettor bets against it on the next row; if the
    limit held, the capital would be a supermartingale. This is the test of Waudby-Smith and Ramdas (2020, "Confidence
    sequences for sampling without replacement"): the mean that the remaining rows would need for a false limit to hold
    becomes ever less plausible, and at the end only the truth is left. The bets are a mixture of two, each optimal
    against one alternative.

    A pair is decided when the capitals against all that its verdict denies have grown by a factor of the number of open
    pairs divided by `level`. That is Holm's procedure on anytime p-values; any verdict is wrong with probability at
    most `level`. Verdicts are valid at any time, and sampling may stop on them. By default a pair is decided once it is
    known which model may come first, as it is not worse by more than `indifference` (the indifference zone of Bechhofer
    1954). With `is_strict`, it is decided once its models are told apart or shown to be alike, which takes up to four
    times as many rows.

    Rows may also be endless: the first ones of an infinite source. Then limits apply to the mean of that source, do not
    move, and nothing ever becomes certain. All rows count, even after a verdict, which may become a stronger one; each
    pair is decided at `level` divided by the number of all pairs.

    Models that are complete from the beginning are known. They predict the others' scores (by ridge regression on the
    mean and two principal components of their scores), and bets are placed only on the deviations from the prediction,
    as in doubly robust estimators: a bad prediction costs rows, not validity.

    Attributes:
        indifference: differences up to this need not be told apart.
    """

    def __init__(
        self,
        scores: ArrayLike,
        indifference: float,
        *,
        is_strict: bool = False,
        level: float = _LEVEL,
        pairs: Sequence[tuple[int, int]] | None = None,
        family: int = 0,
        is_endless: bool = False,
    ) -> None:
        """Begin with a table.

        Args:
            scores: models × rows, NaN where a score is not known yet; rows in the order in which they are taken.
            indifference: in (0, 1).
            is_strict: whether to decide a pair only once its models differ or are alike.
            level: largest probability that any verdict is wrong.
            pairs: pairs of models to compare; all by default.
            family: from how many pairs these were selected, if by their scores; endless rankings correct for it.
            is_endless: whether verdicts are about all tasks of the kind instead of the rows of the table.

        Raises:
            InvalidInputError: there are fewer than two models, no rows, or `indifference` is not between 0 and 1.
        """
        table = np.array(scores, dtype=np.float64)
        if not 0 < indifference < 1:
            raise InvalidInputError(
                f"indifference must be above 0 and below 1 (got {indifference:g})",
                next_step="It is a difference of mean scores: 0.02 leaves 0.71 and 0.73 untold apart.",
            )
        if table.ndim != 2 or table.shape[0] < 2:
            models = table.shape[0] if table.ndim == 2 else 0
            raise InvalidInputError(f"a ranking needs two models or more (got {models})")
        if not table.shape[1]:
            raise InvalidInputError("the models have no task in common: there is nothing to rank them by")
        self._verdicts = _ORDER[:_STRICT] if is_strict else _ORDER
        self.rows, self.indifference, self._level = table.shape[1], indifference, level
        self._is_endless = is_endless
        self._stakes = np.array(_ENDLESS_STAKES if is_endless else _STAKES)
        self._scores = np.where(np.isfinite(table), table, np.nan)
        self._filled = np.zeros(len(table), dtype=np.int64)
        every = np.triu_indices(len(table), 1) if pairs is None else zip(*pairs, strict=True)
        self._first, self._second = (np.array(side, dtype=np.int64) for side in every)
        count = self._first.size
        self._family = max(family, count)
        self._seen = np.zeros(count, dtype=np.int64)
        self._sum = np.zeros(count)
        self._apart, self._square = np.zeros(count), np.full(count, _PRIOR_SQUARE)
        self._limits = np.array([0.0, 0.0, indifference, -indifference])
        self._capital = np.zeros((count, _SIGNS.size, self._stakes.size))
        self._evidence = np.zeros((count, _SIGNS.size))
        self._verdict = np.full(count, _OPEN)
        self._certainty = np.zeros(count)
        self._dropped, self._ended = np.zeros(count, dtype=np.bool_), np.zeros(len(table), dtype=np.bool_)
        self._expected, self._to_come = np.zeros_like(table), np.zeros_like(table)
        self._features = None if is_endless else self._known(table)
        self.advance()

    @property
    def models(self) -> int:
        """Number of models."""
        return len(self._scores)

    def add(self, model: int, row: int, score: float) -> None:
        """Add a score; `advance` draws the conclusions.

        Raises:
            ValueError: it is not in [0, 1].
        """
        if not 0.0 <= score <= 1.0:
            raise ValueError(f"a score must be in [0, 1] (got {score})")
        self._scores[model, row] = score

    def drop(self, model: int, *, keeps_rows: bool = False) -> None:
        """Expect no more scores of a model: its open pairs stay open, unless it keeps its rows and they decide them."""
        self._ended[model] = True
        if keeps_rows:
            self.advance()
        else:
            self._dropped |= (self._first == model) | (self._second == model)

    def drop_unseen(self) -> None:
        """Drop the pairs of which no row was seen: they stay open."""
        self._dropped |= self._seen == 0

    def advance(self) -> None:
        """Draw the conclusions from all complete rows, in order."""
        for model in range(self.models):
            self._fill(model)
        reach = np.minimum(self._filled[self._first], self._filled[self._second])
        while (ready := (self._is_open | (self._is_endless & ~self._dropped)) & (self._seen < reach)).any():
            row = int(self._seen[ready].min())
            self._play(np.flatnonzero(ready & (self._seen == row)), row)
            if not self._is_endless:
                self._decide()
        if self._is_endless:
            self._decided_at(self._family, ~self._dropped)
        last = np.where(self._ended, self._filled, self.rows + 1)
        self._dropped |= self._seen >= np.minimum(last[self._first], last[self._second])

    @property
    def _is_open(self) -> NDArray[np.bool_]:
        still: NDArray[np.bool_] = (self._verdict == _OPEN) & ~self._dropped
        return still

    @property
    def open_pairs(self) -> int:
        """Number of pairs that are not decided yet."""
        return int(self._is_open.sum())

    def open_models(self) -> NDArray[np.bool_]:
        """Return for each model whether it has an open pair, and so needs its next rows."""
        needed = np.zeros(self.models, dtype=np.bool_)
        needed[self._first[self._is_open]] = needed[self._second[self._is_open]] = True
        return needed & ~self._ended

    def furthest(self, reached: Sequence[int]) -> list[int]:
        """Return for each model the largest number in `reached` of those that it has an open pair with; -1 without."""
        is_open, numbers, found = self._is_open, np.array(reached), np.full(self.models, -1)
        np.maximum.at(found, self._first[is_open], numbers[self._second[is_open]])
        np.maximum.at(found, self._second[is_open], numbers[self._first[is_open]])
        return [int(number) for number in found]

    def next(self, count: int) -> list[tuple[int, int]]:
        """Return the next `count` cells to sample, as (model, row): row by row, for models with an open pair."""
        needed = np.flatnonzero(self.open_models())
        missing = np.argwhere(np.isnan(self._scores[needed]).T)
        return [(int(needed[place]), int(row)) for row, place in missing[:count]]

    def worth(self) -> Floats:
        """Return for each model how many pairs its next row is expected to decide, by an optimistic estimate.

        The rows that a pair needs depend on how far its difference may be (one standard error beyond the observed one)
        from the nearest limit that a verdict denies. The model with fewer rows is credited with the pair.
        """
        is_open, found = self._is_open, np.zeros(self.models)
        first, second, seen = self._first[is_open], self._second[is_open], self._seen[is_open]
        spread = self._spread(self._apart[is_open], self._square[is_open], seen)
        gap = np.abs(self._sum[is_open]) / np.maximum(1, seen) + self.indifference + spread / np.sqrt(seen + 1)
        missing = math.log(self._family / self._level) - np.maximum(0.0, self._evidence[is_open, 2:].max(axis=1))
        each = np.minimum(1.0, gap**2 / (2 * spread**2 * np.maximum(1.0, missing)))
        lead = self._filled[second] - self._filled[first]
        behind = np.clip(0.5 + lead / np.maximum(8.0, 0.1 * self._filled[first]), 0.0, 1.0)
        np.add.at(found, first, each * behind)
        np.add.at(found, second, each * (1 - behind))
        return found

    def decisions(self) -> list[PairDecision]:
        """Return the state of each pair."""
        return [self.decision(pair) for pair in range(self._first.size)]

    def decision(self, pair: int) -> PairDecision:
        """Return the state of a pair, by its number."""
        first, second, rows = int(self._first[pair]), int(self._second[pair]), int(self._seen[pair])
        low, high = self._interval(pair)
        difference = float(self._sum[pair]) / rows if rows else 0.0
        verdict = _VERDICTS[int(self._verdict[pair])]
        return PairDecision(first, second, verdict, float(self._certainty[pair]), rows, difference, low, high)

    def decided(self) -> dict[int, tuple[int, int]]:
        """Return the numbers of the pairs that have a verdict, and their two models."""
        pairs = np.flatnonzero(self._verdict != _OPEN)
        return {int(pair): (int(self._first[pair]), int(self._second[pair])) for pair in pairs}

    def forecast(self, samples: int, rng: np.random.Generator) -> float | None:
        """Return how many open pairs the next `samples` would decide, on average; None if no row of any was seen.

        Future rows are drawn from the rows taken so far, jointly for all open models; this is repeated 10 times.
        """
        is_open = self._is_open & (self._seen > 0)
        if not is_open.any():
            return None if (self._verdict == _OPEN).any() else 0.0
        seen = np.full(self.models, self.rows)  # by the shortest of a model's open pairs
        for side in (self._first, self._second):
            np.minimum.at(seen, side[is_open], self._seen[is_open])
        return sum(self._replayed(samples, seen, rng) for _ in range(_REPLAYS)) / _REPLAYS

    def validate(self) -> None:
        """Assert that no pair is ahead of its models, and that complete pairs are decided."""
        assert (self._seen <= np.minimum(self._filled[self._first], self._filled[self._second])).all()
        assert self._is_endless or not (self._is_open & (self._seen == self.rows)).any()
        assert ((self._certainty >= 1 - self._level) | (self._verdict == _OPEN)).all()

    # Predictions from known models.

    def _known(self, table: Floats) -> Floats | None:
        """Return rows × features from the complete models, whose expected scores are their own; None without any."""
        complete = np.flatnonzero(np.isfinite(table).all(axis=1))
        if not complete.size or complete.size == len(table):
            return None
        for model in complete:
            self._expected[model] = table[model]
            self._to_come[model] = np.cumsum(table[model][::-1])[::-1]
        scored = table[complete]
        mean = scored.mean(axis=0)
        parts = np.linalg.svd((scored - mean) - (scored - mean).mean(axis=1, keepdims=True), full_matrices=False)[2]
        features: Floats = np.column_stack([np.ones(self.rows), mean, *(parts[:_COMPONENTS] * math.sqrt(self.rows))])
        return features

    def _fill(self, model: int) -> None:
        """Update how far a model's rows are complete, and the predictions for its next rows."""
        filled, scores = int(self._filled[model]), self._scores[model]
        if self._features is None:
            missing = np.isnan(scores[filled:])
            self._filled[model] = filled + int(missing.argmax() if missing.any() else missing.size)
            return
        while filled < self.rows and np.isfinite(scores[filled]):
            if filled % _BLOCK == 0 and not np.array_equal(self._expected[model], self._scores[model]):
                self._predict(model, filled, self._features)
            filled += 1
        self._filled[model] = filled

    def _predict(self, model: int, row: int, features: Floats) -> None:
        before = features[:row]
        prior = np.eye(features.shape[1])[1]  # predicts the mean score of the known models
        weights = before.T @ before + np.eye(prior.size)
        fit = prior + np.linalg.solve(weights, before.T @ (self._scores[model, :row] - before @ prior))
        expected = np.clip(features[row:] @ fit, 0.0, 1.0)
        self._expected[model, row : row + _BLOCK] = expected[:_BLOCK]
        self._to_come[model, row : row + _BLOCK] = np.cumsum(expected[::-1])[::-1][:_BLOCK]

    # Bets.

    def _play(self, pairs: NDArray[np.int64], row: int) -> None:
        first, second, left = self._first[pairs], self._second[pairs], self.rows - row
        apart = self._scores[first, row] - self._scores[second, row]
        surprise = apart - (self._expected[first, row] - self._expected[second, row])
        to_come = self._to_come[first, row] - self._to_come[second, row]
        required = self._required(self._limits, self._sum[pairs, None] + to_come[:, None], left)
        spread = self._spread(self._apart[pairs], self._square[pairs], row)
        self._capital[pairs] += self._gain(surprise[:, None], required, _SIGNS, spread[:, None], left)
        self._sum[pairs] += apart
        self._apart[pairs] += surprise
        self._square[pairs] += surprise**2
        self._seen[pairs] += 1
        capital = np.logaddexp.reduce(self._capital[pairs], axis=-1) - math.log(self._stakes.size)
        if self._is_endless:
            self._evidence[pairs] = np.maximum(self._evidence[pairs], capital)
            return
        out = (self.rows * self._limits - self._sum[pairs, None]) * _SIGNS < 1 - left - _ROUNDING
        self._evidence[pairs] = np.where(out, np.inf, capital)

    def _required(self, limits: Floats, told: Floats, left: int | Floats) -> Floats:
        """Return the mean of future rows, beyond their expectation, for which limits would hold.

        Args:
            limits: limits of the difference.
            told: sum of the differences so far and of the expected future ones.
            left: number of future rows.
        """
        return limits if self._is_endless else (self.rows * limits - told) / left

    def _spread(self, total: Floats, square: Floats, rows: int | Floats | NDArray[np.int64]) -> Floats:
        """Return the standard deviation of surprises after `rows` rows."""
        count = np.asarray(rows) + 1.0
        variance = np.maximum(square / count - (total / count) ** 2, 1 / (count + 20))
        return np.sqrt(variance)

    def _gain(self, surprise: Floats, required: Floats, sign: Floats, spread: Floats, left: int | Floats) -> Floats:
        """Return the growth of the log capitals, one for each of the stakes.

        Args:
            surprise: the row's difference beyond its expectation, in [-2, 2].
            required: its mean if the limit held.
            sign: 1 for a bet on more, -1 for a bet on less.
            spread: standard deviation of surprises.
            left: number of future rows, including this one.
        """
        most = _RISK / (np.abs(required) + (1.0 if self._features is None else 2.0))
        scale = (1.0 if self._is_endless else math.sqrt(self.rows) / left) / spread
        stake = np.minimum(self._stakes * scale[..., None], most[..., None])
        gain: Floats = np.log1p(stake * (sign * (surprise - required))[..., None])
        return gain

    def _decide(self) -> None:
        """Decide pairs by Holm's procedure: each decided pair lowers the bar for the others."""
        whole = self._is_open & (self._seen == self.rows)
        mean = self._sum[whole] / self.rows
        alike = np.abs(mean) <= self.indifference + _ROUNDING
        self._verdict[whole] = np.where(alike, 0, np.sign(mean)).astype(np.int64)
        self._certainty[whole] = 1.0
        while (count := self.open_pairs) and self._decided_at(count, self._is_open):
            pass

    def _decided_at(self, count: int, asked: NDArray[np.bool_]) -> bool:
        """Decide pairs of `asked` at `level` divided by `count`; return whether any were decided."""
        above, below, not_above, not_below = self._evidence.T
        alike = np.minimum(not_above, not_below)
        claims = np.stack([np.minimum(above, not_below), np.minimum(below, not_above), alike, not_below, not_above])[
            : self._verdicts.size
        ]
        enough = claims >= math.log(count / self._level)
        hit, place = asked & enough.any(axis=0), enough.argmax(axis=0)  # the first one is the strongest
        self._verdict[hit] = self._verdicts[place[hit]]
        grown = claims[place[hit], np.flatnonzero(hit)]
        doubt = np.where(np.isinf(grown), 0.0, np.maximum(count * np.exp(-grown), np.finfo(float).eps))
        self._certainty[hit] = 1 - doubt  # 1 only if the remaining rows cannot change it
        return bool(hit.any())

    # Intervals and forecasts.

    def _interval(self, pair: int) -> tuple[float, float]:
        """Return the limits against which no bettor's capital has grown 2 / `level`-fold, rounded outward."""
        rows = int(self._seen[pair])
        if not rows:
            return -1.0, 1.0
        apart, expected, to_come = (
            (table[self._first[pair], :rows] - table[self._second[pair], :rows])[:, None]
            for table in (self._scores, self._expected, self._to_come)
        )
        surprise = apart - expected
        before = np.arange(rows, dtype=np.float64)[:, None]
        left = self.rows - before
        total, sums, squares = (np.cumsum(values, axis=0) - values for values in (apart, surprise, surprise**2))
        spread = self._spread(sums, squares + _PRIOR_SQUARE, before)
        mean = float(apart.mean())
        reach = np.array([-1.0, 1.0])
        if not self._is_endless:
            reach = (mean * rows + reach * (self.rows - rows)) / self.rows

        def outermost(end: float, sign: float) -> float:
            inside = mean
            for _ in range(_ROUNDS):
                limits = np.linspace(end, inside, _CANDIDATES)
                required = self._required(limits, total + to_come, left)
                gains = self._gain(surprise, required, np.array(sign), spread, left)
                capital = np.logaddexp.reduce(np.cumsum(gains, axis=0), axis=-1) - math.log(self._stakes.size)
                is_in = (capital < math.log(2 / self._level)).all(axis=0)
                is_in[-1] = True
                place = max(1, int(is_in.argmax()))
                end, inside = float(limits[place - 1]), float(limits[place])
            return end

        low, high = outermost(float(reach[0]), 1.0), outermost(float(reach[1]), -1.0)
        return max(-1.0, low), min(1.0, high)

    def _replayed(self, samples: int, seen: NDArray[np.int64], rng: np.random.Generator) -> int:
        other = copy.deepcopy(self)
        other.drop_unseen()  # there is nothing to draw their rows from
        before = other.open_pairs
        while samples > 0 and (cells := other.next(min(samples, int(4 * other.open_models().sum())))):
            drawn = {row: rng.random() for row in sorted({row for _, row in cells})}
            for model, row in cells:
                other.add(model, row, self._drawn(model, row, int(drawn[row] * seen[model])))
            samples -= len(cells)
            other.advance()
        return before - other.open_pairs

    def _drawn(self, model: int, row: int, like: int) -> float:
        """Return a score of `row` that is as far from its expectation as that of row `like`."""
        expected = self._expected[model, row] if self._features is not None else self._expected[model, like]
        return float(np.clip(expected + self._scores[model, like] - self._expected[model, like], 0.0, 1.0))
