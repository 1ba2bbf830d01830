"""Which of several models score higher on a fixed set of tasks, decided before all of the tasks have been taken."""

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
"""Differences of full means that bettors believe in, in standard errors of a full run; chosen on drawn tables."""

_ENDLESS_STAKES: Final = (0.4, 0.2, 0.1, 0.05, 0.025)
"""Likewise where there is no full run, in standard deviations of a row."""

_RISK: Final = 0.9
"""Share of its capital that a bet risks at most."""

_PRIOR_SQUARE: Final = 0.5
"""Square of the difference of a row that counts as seen before the first."""

_BLOCK: Final = 16
"""Rows that are predicted by the same fit."""

_COMPONENTS: Final = 2
_OPEN: Final = 9
_VERDICTS: Final[dict[int, Verdict]] = {
    1: "better", -1: "worse", 0: "alike", 2: "not worse", -2: "not better", _OPEN: "open",
}  # fmt: skip
_ORDER: Final = np.array([1, -1, 0, 2, -2])
_STRICT: Final = 3
"""How many verdicts, from the first, say whether two models differ, and not only which one is to come first."""

_CANDIDATES: Final = 25
_ROUNDS: Final = 2
"""In which the candidates for a limit are spread between the last two."""

_REPLAYS: Final = 10
_SIGNS: Final = np.array([1.0, -1.0, -1.0, 1.0])
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class PairDecision:
    """What is known of two models.

    Attributes:
        first: place of one model.
        second: place of the other.
        verdict: of the first against the second on all rows: `better`, `worse`, `alike` (their means differ by
            `indifference` at most), `not worse` (by more than `indifference`; it comes first), `not better`, or `open`.
        certainty: at least this probability has the verdict been right, whenever it was made; 1 where all rows are
            known, 0 while it is open.
        difference: of the means on these rows.
        low: of the 95 % confidence sequence for the difference on all rows.
        high: likewise.
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
    """Decides for every two models which has the higher mean over all rows of a table. Pure.

    A row is a task, or one task of each environment; a cell is a model's score of it, in [0, 1]. The table is what a
    full run would fill. Rows are taken in an order that is random and the same for every model, so that the rows taken
    are a sample without replacement, and each comparison is of the same rows. For each limit that a difference might
    have (0 from above and below, `indifference` from below, -`indifference` from above) a bettor stakes on the next
    row against it; were the limit true, the capital would be a supermartingale. It is the test of Waudby-Smith and
    Ramdas (2020, "Confidence sequences for sampling without replacement"): what the remaining rows would have to
    average for the limit to hold moves away with every row, and at the end only the truth is left. The stakes are a
    mixture of two, each best against one alternative.

    A pair is decided when the capitals against what its verdict denies have grown by the number of open pairs, divided
    by `level`. That is Holm's procedure on anytime p-values; a wrong verdict in any pair has probability `level` at
    most. Verdicts may be looked at, and stopped by, at any time. By default a pair is decided as soon as it is known
    which model may come first: it is not worse by more than `indifference`, the indifference zone of Bechhofer (1954).
    Strictly, a pair is decided when its models are told apart or shown to be alike, which takes up to four times as
    many rows.

    Rows may also be endless: the first of a source of rows like them. Then a limit is of the mean of that source, does
    not move, and nothing is ever known for certain. All rows count, also after a verdict, which may become a stronger
    one; each pair is decided at `level` divided by all pairs.

    Models that are complete from the beginning are known. They predict the others' scores (a ridge regression on the
    mean and two principal components of what they scored), and only what differs from the prediction is staked on, as
    in the doubly robust estimators: a bad prediction costs rows, not validity.

    Attributes:
        indifference: differences up to it need not be told apart.
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
            is_strict: decide a pair only when its models differ for sure, or are alike.
            level: probability that any verdict is wrong.
            pairs: of models that are compared; every two by default.
            family: of how many pairs these were chosen, if scores had a say in it: endless ones are corrected for it.
            is_endless: verdicts are about all tasks of the kind, and not about the rows of the table.

        Raises:
            InvalidInputError: if there are fewer than two models, no rows, or `indifference` is not between 0 and 1.
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
        self._dropped = np.zeros(count, dtype=np.bool_)
        self._expected, self._to_come = np.zeros_like(table), np.zeros_like(table)
        self._features = None if is_endless else self._known(table)
        self.advance()

    @property
    def models(self) -> int:
        """How many models there are."""
        return len(self._scores)

    def add(self, model: int, row: int, score: float) -> None:
        """Take a score; `advance` draws the conclusions.

        Raises:
            ValueError: unless it lies in [0, 1].
        """
        if not 0.0 <= score <= 1.0:
            raise ValueError(f"a score must be in [0, 1] (got {score})")
        self._scores[model, row] = score

    def drop(self, model: int) -> None:
        """Leave a model out: what is open about it stays so."""
        self._dropped |= (self._first == model) | (self._second == model)

    def advance(self) -> None:
        """Draw the conclusions from the rows that are complete, in their order."""
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

    @property
    def _is_open(self) -> NDArray[np.bool_]:
        still: NDArray[np.bool_] = (self._verdict == _OPEN) & ~self._dropped
        return still

    @property
    def open_pairs(self) -> int:
        """How many pairs are to be decided."""
        return int(self._is_open.sum())

    def open_models(self) -> NDArray[np.bool_]:
        """Return of each model whether it has a pair that is open, and so needs its next rows."""
        needed = np.zeros(self.models, dtype=np.bool_)
        needed[self._first[self._is_open]] = needed[self._second[self._is_open]] = True
        return needed

    def next(self, count: int) -> list[tuple[int, int]]:
        """Return the next `count` cells to take, as (model, row): row by row, of models that have an open pair."""
        needed = np.flatnonzero(self.open_models())
        missing = np.argwhere(np.isnan(self._scores[needed]).T)
        return [(int(needed[place]), int(row)) for row, place in missing[:count]]

    def worth(self) -> Floats:
        """Return of each model how many pairs its next row is expected to decide, hoping for the best of each pair.

        A pair needs rows by how far its difference may lie, a standard error beyond what was seen, from the nearest
        limit that a verdict denies. Of two models the one that has fewer rows gets what the pair is worth.
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
        """Return what is known of each two models."""
        return [self.decision(pair) for pair in range(self._first.size)]

    def decision(self, pair: int) -> PairDecision:
        """Return what is known of a pair, by its number."""
        first, second, rows = int(self._first[pair]), int(self._second[pair]), int(self._seen[pair])
        low, high = self._interval(pair)
        difference = float(self._sum[pair]) / rows if rows else 0.0
        verdict = _VERDICTS[int(self._verdict[pair])]
        return PairDecision(first, second, verdict, float(self._certainty[pair]), rows, difference, low, high)

    def decided(self) -> list[int]:
        """Return the numbers of the pairs that have a verdict."""
        return [int(pair) for pair in np.flatnonzero(self._verdict != _OPEN)]

    def forecast(self, samples: int, rng: np.random.Generator) -> float:
        """Return how many open pairs the next `samples` would decide, on average.

        Rows to come are drawn from those that were taken: 10 times, all open models of a row together.
        """
        is_open = self._is_open
        seen = np.full(self.models, self.rows)  # by the shortest of a model's open pairs
        for side in (self._first, self._second):
            np.minimum.at(seen, side[is_open], self._seen[is_open])
        if not is_open.any() or not seen.all():
            return 0.0
        return sum(self._replayed(samples, seen, rng) for _ in range(_REPLAYS)) / _REPLAYS

    def validate(self) -> None:
        """Assert that no pair is ahead of its models, and that what is complete is decided."""
        assert (self._seen <= np.minimum(self._filled[self._first], self._filled[self._second])).all()
        assert self._is_endless or not (self._is_open & (self._seen == self.rows)).any()
        assert ((self._certainty >= 1 - self._level) | (self._verdict == _OPEN)).all()

    # What known models predict.

    def _known(self, table: Floats) -> Floats | None:
        """Return rows × features from the models that are complete, which expect what they scored; None without any."""
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
        """Note how far a model's rows are complete, and what is expected of the rows that follow."""
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
        prior = np.eye(features.shape[1])[1]  # what the known models score on average
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
        """Return what rows to come bring on average if limits hold, beyond what is expected of them.

        Args:
            limits: of the difference.
            told: what rows have brought so far, and what is expected of those to come, in all.
            left: rows to come.
        """
        return limits if self._is_endless else (self.rows * limits - told) / left

    def _spread(self, total: Floats, square: Floats, rows: int | Floats | NDArray[np.int64]) -> Floats:
        """Return the standard deviation of surprises after so many rows."""
        count = np.asarray(rows) + 1.0
        variance = np.maximum(square / count - (total / count) ** 2, 1 / (count + 20))
        return np.sqrt(variance)

    def _gain(self, surprise: Floats, required: Floats, sign: Floats, spread: Floats, left: int | Floats) -> Floats:
        """Return by how much the logarithms of the capitals grow, one for each of the stakes.

        Args:
            surprise: what the row brought beyond what was expected, in [-2, 2].
            required: what it would bring on average if the limit held.
            sign: 1 for a bet on more, -1 on less.
            spread: standard deviation of what rows bring.
            left: rows to come, this one included.
        """
        most = _RISK / (np.abs(required) + (1.0 if self._features is None else 2.0))
        scale = (1.0 if self._is_endless else math.sqrt(self.rows) / left) / spread
        stake = np.minimum(self._stakes * scale[..., None], most[..., None])
        gain: Floats = np.log1p(stake * (sign * (surprise - required))[..., None])
        return gain

    def _decide(self) -> None:
        """Decide pairs as Holm's procedure does: each one that is decided makes it easier for the others."""
        whole = self._is_open & (self._seen == self.rows)
        mean = self._sum[whole] / self.rows
        alike = np.abs(mean) <= self.indifference + _ROUNDING
        self._verdict[whole] = np.where(alike, 0, np.sign(mean)).astype(np.int64)
        self._certainty[whole] = 1.0
        while (count := self.open_pairs) and self._decided_at(count, self._is_open):
            pass

    def _decided_at(self, count: int, asked: NDArray[np.bool_]) -> bool:
        """Decide those pairs that are asked at `level` divided by `count`; return whether there are any."""
        above, below, not_above, not_below = self._evidence.T
        alike = np.minimum(not_above, not_below)
        claims = np.stack([np.minimum(above, not_below), np.minimum(below, not_above), alike, not_below, not_above])[
            : self._verdicts.size
        ]
        enough = claims >= math.log(count / self._level)
        hit, place = asked & enough.any(axis=0), enough.argmax(axis=0)  # the first of them says most
        self._verdict[hit] = self._verdicts[place[hit]]
        grown = claims[place[hit], np.flatnonzero(hit)]
        doubt = np.where(np.isinf(grown), 0.0, np.maximum(count * np.exp(-grown), np.finfo(float).eps))
        self._certainty[hit] = 1 - doubt  # 1 is of what the rest cannot turn
        return bool(hit.any())

    # What is told.

    def _interval(self, pair: int) -> tuple[float, float]:
        """Return the limits that no bettor's capital has grown 2 / `level`-fold against, rounded outward."""
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
        before = other.open_pairs
        while samples > 0 and (cells := other.next(min(samples, int(4 * other.open_models().sum())))):
            drawn = {row: rng.random() for row in sorted({row for _, row in cells})}
            for model, row in cells:
                other.add(model, row, self._drawn(model, row, int(drawn[row] * seen[model])))
            samples -= len(cells)
            other.advance()
        return before - other.open_pairs

    def _drawn(self, model: int, row: int, like: int) -> float:
        """Return a score of `row` that is as far from what is expected there as that of row `like`."""
        expected = self._expected[model, row] if self._features is not None else self._expected[model, like]
        return float(np.clip(expected + self._scores[model, like] - self._expected[model, like], 0.0, 1.0))
