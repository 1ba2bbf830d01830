"""The test of `headgate.statistics.ScoreChange`, vectorised over many models with one environment each, for replays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headgate.statistics import change

Floats = NDArray[np.float64]

_PULLS: Final = np.array(change.PULLS)[:, None]
_DROPS: Final = np.array(change.DROPS)[:, None]
_EDGES: Final = np.array(change.EDGES)


@dataclass(frozen=True, slots=True)
class Kind:
    """How the scores of simulated models are generated.

    Attributes:
        name: name in reports.
        tasks: tasks of the environment, taken in turn; 0 for tasks that never repeat.
        differs: probability that the result of a task differs from its usual one; None for tasks of any difficulty.
        noise: standard deviation of a graded score around the task's mean; 0 for scores of 0 and 1.
    """

    name: str
    tasks: int
    differs: float | None = None
    noise: float = 0.0


KINDS: Final = (
    Kind("tasks that never come back", 0),
    Kind("tasks of any difficulty", 200),
    Kind("1 result in 20 differs", 200, differs=0.05),
    Kind("1 result in 50 differs", 200, differs=0.02),
    Kind("1 result in 200 differs", 200, differs=0.005),
    Kind("graded, give or take 0.2", 200, noise=0.2),
    Kind("graded, give or take 0.1", 200, noise=0.1),
)


class Scores:
    """Scores of simulated models, one per model at a time; their means are uniform between 0.1 and 0.95."""

    def __init__(self, kind: Kind, models: int, seed: int) -> None:
        self._kind = kind
        self._rng = rng = np.random.default_rng(seed)
        means = rng.uniform(0.1, 0.95, models)
        shape = (max(1, kind.tasks), models)
        if not kind.tasks:
            self._chances = np.broadcast_to(means, shape).copy()
        elif kind.differs is not None:
            solved = rng.random(shape) < means
            self._chances = np.where(solved, 1.0 - kind.differs, kind.differs)
        else:
            self._chances = rng.beta(np.broadcast_to(means, shape), np.broadcast_to(1.0 - means, shape))

    def drop(self, points: float) -> None:
        """Lower the mean score of every model by `points` (of 1) from now on; successes become failures."""
        means = self._chances.mean(axis=0)
        self._chances *= np.maximum(0.0, 1.0 - points / means)

    def next(self, number: int) -> Floats:
        """Return the scores of sample `number`."""
        chances: Floats = self._chances[number % len(self._chances)]
        if self._kind.noise:
            noise = self._kind.noise * self._rng.standard_normal(chances.size)
            return np.minimum(np.maximum(chances + noise, 0.0), 1.0)
        return (self._rng.random(chances.size) < chances).astype(np.float64)


class ManyScoreChanges:
    """Follows many models; for each it gives the same result as `ScoreChange(1)`, up to rounding."""

    def __init__(self, models: int, tasks: int, days: float) -> None:
        """Set up for models whose samples are `days` apart."""
        self._days = days
        self._tasks = tasks
        self._threshold = change.ScoreChange(1).threshold * len(change.DROPS)
        self._each = np.arange(models)
        self._count, self._sum = np.full(models, 2.0), np.ones(models)
        self._seen, self._solved = np.zeros((max(1, tasks), models)), np.zeros((max(1, tasks), models))
        self._weights = np.full((len(_PULLS) + 1, models), 1.0 / (len(_PULLS) + 1))
        self._ways = np.empty_like(self._weights)
        self._counts, self._corrections = (np.zeros((len(_EDGES) + 1, models)) for _ in range(2))
        self._capital = np.zeros((len(_DROPS), models))
        self._last = np.full(models, -1)
        self._squares = self._scores = 0.0

    @property
    def spread(self) -> float:
        """Root mean square of score minus expectation."""
        return float(np.sqrt(self._squares / max(1.0, self._scores)))

    def add(self, number: int, scores: Floats) -> NDArray[np.bool_]:
        """Take sample `number` of each model; return which raise an alarm. Their tests restart, but keep their data."""
        place = number % max(1, self._tasks)
        mean, seen, solved = self._sum / self._count, self._seen[place], self._solved[place]
        self._ways[:-1] = (solved + _PULLS * mean) / (seen + _PULLS)
        self._ways[-1] = mean
        _bounded(self._ways)
        found = (self._weights * self._ways).sum(axis=0)
        group = np.searchsorted(_EDGES, found, side="right")
        alike, corrections = self._counts[group, self._each], self._corrections[group, self._each]
        wanted = np.clip(found + corrections / (alike + change.PRIOR), 0.0, 1.0 - change.LEAST)
        wanted -= change.CAUTION * np.sqrt(wanted * (1.0 - wanted) / (alike + change.PRIOR))
        np.maximum(wanted, 0.0, out=wanted)
        alarms = self._bet(number, (alike >= change.FEWEST_ALIKE) & (self._count >= change.FEWEST + 2), wanted, scores)
        self._squares += float(((scores - wanted) ** 2).sum())
        self._scores += scores.size
        self._learn(scores)
        self._correct(group, alike, corrections, scores - found)
        if self._tasks:
            kept = np.minimum(1.0, change.TASK_MEMORY / (seen + 1.0))
            self._seen[place], self._solved[place] = seen * kept + 1.0, solved * kept + scores
        return alarms

    def _staked(self, number: int) -> Floats:
        """Return the days since the last bet on each model; 0 before the first."""
        return np.where(self._last < 0, 0.0, np.minimum(self._days * (number - self._last), 1.0))

    def _bet(self, number: int, ready: NDArray[np.bool_], wanted: Floats, scores: Floats) -> NDArray[np.bool_]:
        bet = (wanted - scores) / (1.0 - wanted)
        staked = (1.0 + _DROPS * bet) * (self._capital + self._staked(number))
        self._capital = np.where(ready, staked, self._capital)
        self._last[ready] = number
        alarms: NDArray[np.bool_] = self._capital.sum(axis=0) >= self._threshold
        if alarms.any():
            self._capital[:, alarms] = 0.0
        return alarms

    def _learn(self, scores: Floats) -> None:
        self._weights *= (
            self._ways**scores * (1.0 - self._ways) ** (1.0 - scores)
            if _graded(scores)
            else (1.0 - self._ways + scores * (2.0 * self._ways - 1.0))
        )
        self._weights /= self._weights.sum(axis=0)
        np.maximum(self._weights, 1e-5, out=self._weights)
        kept = np.minimum(1.0, change.MEMORY / (self._count + 1.0))
        self._count, self._sum = self._count * kept + 1.0, self._sum * kept + scores

    def _correct(self, group: NDArray[Any], alike: Floats, corrections: Floats, apart: Floats) -> None:
        kept = np.minimum(1.0, change.MEMORY / (alike + 1.0))
        self._counts[group, self._each] = alike * kept + 1.0
        self._corrections[group, self._each] = corrections * kept + apart


def _graded(scores: Floats) -> bool:
    return bool(((scores > 0.0) & (scores < 1.0)).any())


def _bounded(chances: Floats) -> Floats:
    np.maximum(chances, change.LEAST, out=chances)
    return np.minimum(chances, 1.0 - change.LEAST, out=chances)
