"""Whether a model has begun to score worse: a test that is valid after every sample, for ever.

Each sample is compared with its expected score: the model's mean in the environment, shrunk towards the model's earlier
scores on the same task as far as these have been informative. A bettor bets that the sample falls short of it
(Waudby-Smith and Ramdas 2024). On a steady model its capital can grow only by luck; restarted at every sample and
summed, it is an e-detector (Shin, Ramdas and Rinaldo 2024): if the expectation is right, false alarms come no more
often than once per `threshold` of staked time.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect
from dataclasses import dataclass, field
from typing import Final

from headgate.core.events import ScoreDropped

FALSE_ALARMS_PER_YEAR: Final = 0.05
"""Expected false alarms for one steady model, over all of its environments."""

DROPS: Final = (0.1, 0.2, 0.4, 0.8)
"""Relative drops of the score that are bet on. Any drop in between is found nearly as fast as with a bet of its own."""

PULLS: Final = (0.05, 0.3, 2.0, 12.0)
"""Weights of the mean against a task's own samples, in samples; their mixture is learnt. A fifth is the mean alone."""

FEWEST: Final = 100
"""Samples of a pair before any bet on it."""

FEWEST_ALIKE: Final = 30
"""Samples with about the same expectation before any bet on another one of them."""

EDGES: Final = (0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97)
"""Boundaries between groups of similar expectations; the mean error of each group is learnt, and corrected for."""

LEAST: Final = 0.02
"""Expectations stay at least this far from 1, and before they are corrected also from 0."""

MEMORY: Final = 4_000.0
"""How many samples of a pair the mean and the corrections remember."""

TASK_MEMORY: Final = 32.0
"""How many samples of a task are remembered."""

MOST_TASKS: Final = 4_096
"""Most tasks of an environment that are tracked; those of a longer list repeat too rarely to be told apart."""

CAUTION: Final = 0.3
"""The expectation is lowered by this many standard errors of its correction."""

PRIOR: Final = 20.0
"""Weight of the prior that no correction is needed, in samples."""

_FLOOR: Final = 1e-5
"""Smallest weight of an expectation, so that none is ruled out for good."""

_LONGEST_STAKE_DAYS: Final = 1.0
_D0, _D1, _D2, _D3 = DROPS
_P0, _P1, _P2, _P3 = PULLS
_MOST: Final = 1.0 - LEAST
_DAY_S: Final = 86_400.0


class ScoreChange:
    """Detects when one model begins to score worse, in one environment or in all; then it restarts from there.

    Feed it the model's scored samples in order of time. Alarms come from an average of e-detectors, half of the weight
    on all environments together and half shared among the single ones, so that the bound applies to the model. Pure;
    a sample costs some microseconds, and each task seen takes 8 bytes.
    """

    __slots__ = ("_all", "_environments", "_levels", "_model", "_sum", "threshold")

    def __init__(self, environments: int, model: str = "") -> None:
        """Begin without data on a model that is sampled in this number of environments, at least 1."""
        self._model = model
        self.threshold = 365.0 / FALSE_ALARMS_PER_YEAR
        """Evidence at which an alarm is raised, in days."""
        self._environments = max(1, environments)
        self._levels: dict[str, _Level] = {}
        self._all = _Evidence()
        self._sum = 0.0

    def add(self, environment: str, index: int, score: float, at: float) -> ScoreDropped | None:
        """Add the next sample, of task `index`, that ended `at` (seconds since the epoch); return a drop if detected.

        The drop's `before` is the expected mean of the `samples` since it most likely began, and `after` their actual
        mean. These samples were selected for being low, so the interval overstates small drops.
        """
        level = self._levels.get(environment)
        if level is None:
            level = self._levels[environment] = _Level()
        expected = level.expected(index)
        if level.may_bet():
            bet = (expected - score) / (1.0 - expected)
            own = level.evidence
            self._sum -= own.total
            own.add(bet, expected, score, at)
            self._sum += own.total
            if self._environments > 1:
                self._all.add(bet, expected, score, at)
        level.learn(score)
        if self.evidence < self.threshold:
            return None
        return self._alarm(environment, level)

    @property
    def evidence(self) -> float:
        """The evidence for a drop now, in days; without a drop its mean is at most the days that have passed."""
        share = 1.0 / (self._environments * len(DROPS))
        return self._sum * share if self._environments == 1 else (self._sum * share + self._all.total / len(DROPS)) / 2

    def validate(self) -> None:
        """Assert that evidence adds up and is below the threshold, and the invariants of each environment."""
        assert self.evidence < self.threshold
        assert math.isclose(self._sum, sum(one.evidence.total for one in self._levels.values()), abs_tol=1e-6)
        for level in self._levels.values():
            level.validate()

    def _alarm(self, environment: str, level: _Level) -> ScoreDropped:
        own = level.evidence.total / self._environments
        is_own = self._environments == 1 or own >= self._all.total
        drop = (level.evidence if is_own else self._all).drop(self._model, environment if is_own else "")
        for name in [environment] if is_own else list(self._levels):
            shown = self._levels[name].evidence
            self._levels[name] = _Level(2.0 + shown.count, 1.0 + shown.scored)
        self._all = _Evidence()
        self._sum = sum(one.evidence.total for one in self._levels.values())
        return drop


@dataclass(slots=True)
class _Evidence:
    """The capital of bettors on drops of different sizes, and the run of samples that supports a drop most."""

    bettors: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    total: float = 0.0
    last: float | None = None
    run: float = 1.0
    count: int = 0
    since: float = 0.0
    expected: float = 0.0
    scored: float = 0.0
    squares: float = 0.0

    def add(self, bet: float, expected: float, score: float, at: float) -> None:
        days = 0.0 if self.last is None else min(max(0.0, at - self.last) / _DAY_S, _LONGEST_STAKE_DAYS)
        self.last = at
        # Unrolled: this runs for every sample, and a loop takes twice as long.
        first, second, third, fourth = self.bettors
        self.bettors = first, second, third, fourth = (
            (1.0 + _D0 * bet) * (first + days),
            (1.0 + _D1 * bet) * (second + days),
            (1.0 + _D2 * bet) * (third + days),
            (1.0 + _D3 * bet) * (fourth + days),
        )
        self.total = first + second + third + fourth
        self.run *= 1.0 + _D1 * bet
        if self.run <= 1.0:
            self.run, self.count = 1.0, 0
            self.since = self.expected = self.scored = self.squares = 0.0
            return
        if not self.count:
            self.since = at
        self.count += 1
        self.expected += expected
        self.scored += score
        self.squares += (score - expected) ** 2

    def drop(self, model: str, environment: str) -> ScoreDropped:
        count = max(1, self.count)
        before, after = self.expected / count, self.scored / count
        apart = after - before
        # As if one more sample were off by 0.5: a few equal samples do not prove that there is no spread.
        variance = (max(0.0, self.squares - count * apart**2) + 0.25) / count
        half = 1.96 * math.sqrt(variance / count)
        low, high = max(-1.0, apart - half), min(1.0, apart + half)
        return ScoreDropped(model, environment, before, after, low, high, self.since, self.count)


def _chance(share: float) -> float:
    """Return a share limited to [LEAST, 1 - LEAST]."""
    return LEAST if share < LEAST else min(share, _MOST)


@dataclass(slots=True)
class _Level:
    """The expected scores of a model in one environment, and the evidence that it falls short of them."""

    _count: float = 2.0
    _sum: float = 1.0
    _tasks: array[float] = field(default_factory=lambda: array("f"))
    _weights: tuple[float, float, float, float, float] = (0.2, 0.2, 0.2, 0.2, 0.2)
    _counts: list[float] = field(default_factory=lambda: [0.0] * (len(EDGES) + 1))
    _corrections: list[float] = field(default_factory=lambda: [0.0] * (len(EDGES) + 1))
    _ways: tuple[float, float, float, float, float] = (0.2, 0.2, 0.2, 0.2, 0.2)
    _expected: float = 0.0
    _alike: float = 0.0
    _group: int = 0
    _index: int = 0
    evidence: _Evidence = field(default_factory=_Evidence)

    @property
    def mean(self) -> float:
        return self._sum / self._count

    def expected(self, index: int) -> float:
        """Return a cautious (low) expectation of a task's next sample; `learn` must then be called with its score."""
        mean, tasks, place = self.mean, self._tasks, 2 * index
        count, total = (tasks[place], tasks[place + 1]) if place < len(tasks) else (0.0, 0.0)
        self._index = index
        alone = _chance(mean)
        if count:
            self._ways = v, w, x, y, z = (
                _chance((total + _P0 * mean) / (count + _P0)),
                _chance((total + _P1 * mean) / (count + _P1)),
                _chance((total + _P2 * mean) / (count + _P2)),
                _chance((total + _P3 * mean) / (count + _P3)),
                alone,
            )
            a, b, c, d, e = self._weights
            found = a * v + b * w + c * x + d * y + e * z
        else:
            self._ways = alone, alone, alone, alone, alone
            found = alone
        self._expected = found
        self._group = group = bisect(EDGES, found)
        self._alike = alike = self._counts[group]
        # `LEAST` is not a lower bound here, so that nothing is bet on a model that always fails.
        found = min(max(found + self._corrections[group] / (alike + PRIOR), 0.0), _MOST)
        return max(found - CAUTION * math.sqrt(found * (1.0 - found) / (alike + PRIOR)), 0.0)

    def may_bet(self) -> bool:
        """Return whether there are enough samples, of the pair and with a similar expectation, to bet."""
        return self._alike >= FEWEST_ALIKE and self._count >= FEWEST + 2

    def learn(self, score: float) -> None:
        """Learn from the score of the sample for which `expected` was last called."""
        v, w, x, y, z = self._ways
        if score == 0.0:
            v, w, x, y, z = 1.0 - v, 1.0 - w, 1.0 - x, 1.0 - y, 1.0 - z
        elif score != 1.0:
            v, w, x, y, z = (way**score * (1.0 - way) ** (1.0 - score) for way in self._ways)
        if v != z or w != z or x != z or y != z:  # else all expectations were equal, and their weights stay
            a, b, c, d, e = self._weights
            a, b, c, d, e = a * v, b * w, c * x, d * y, e * z
            whole = a + b + c + d + e
            self._weights = (
                max(a / whole, _FLOOR),
                max(b / whole, _FLOOR),
                max(c / whole, _FLOOR),
                max(d / whole, _FLOOR),
                max(e / whole, _FLOOR),
            )
        kept, group = min(1.0, MEMORY / (self._alike + 1.0)), self._group
        self._counts[group] = self._alike * kept + 1.0
        self._corrections[group] = self._corrections[group] * kept + score - self._expected
        kept = min(1.0, MEMORY / (self._count + 1.0))
        self._count, self._sum = self._count * kept + 1.0, self._sum * kept + score
        if self._index < MOST_TASKS:
            self._learn_task(self._index, score)

    def _learn_task(self, index: int, score: float) -> None:
        tasks, place = self._tasks, 2 * index
        if place >= len(tasks):
            tasks.frombytes(bytes(tasks.itemsize * (place + 2 - len(tasks))))
        kept = min(1.0, TASK_MEMORY / (tasks[place] + 1.0))
        tasks[place], tasks[place + 1] = tasks[place] * kept + 1.0, tasks[place + 1] * kept + score

    def validate(self) -> None:
        assert min(self.evidence.bettors) >= 0.0
        assert 0.0 < self.mean < 1.0
        assert 0.99 < sum(self._weights) < 1.01
