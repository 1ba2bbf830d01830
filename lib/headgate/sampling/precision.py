"""When a model has been sampled enough in an environment: once its mean is known to the precision asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from headgate.core import Task
from headgate.statistics import ConfidenceSequence

_Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Known:
    """The current estimate of a pair's mean.

    Attributes:
        tasks: number of distinct tasks behind it.
        low: lower bound of the 95 % confidence sequence; `high` is its upper bound.
    """

    tasks: int
    mean: float
    low: float
    high: float


@dataclass(slots=True)
class _Progress:
    known: ConfidenceSequence = field(default_factory=ConfidenceSequence)
    total: float = 0.0
    waiting: dict[str, int] = field(default_factory=dict)
    ended: dict[str, float | None] = field(default_factory=dict)
    scores: dict[int, float] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    is_settled: bool = False


class PrecisionStop:
    """Decides which pairs need no more samples. Pure; owned by the campaign.

    A pair is a model in an environment. It is settled once a confidence sequence bounds its mean to within
    `half_width`. Such a sequence stays valid when checked after every sample; an ordinary interval would too often be
    narrow enough too soon. Scores count in the order in which their tasks were opened, not in which they end, since
    short episodes, which end first, may differ from long ones. Each task counts once; one without a score is skipped.
    """

    def __init__(self, half_width: float, min_tasks: int) -> None:
        if not 0 < half_width < 0.5:
            raise ValueError(f"half_width must be in (0, 0.5) (got {half_width})")
        if min_tasks < 1:
            raise ValueError(f"min_tasks must be >= 1 (got {min_tasks})")
        self._half_width = half_width
        self._min_tasks = min_tasks
        self._pairs: dict[_Pair, _Progress] = {}

    def past(self, model: str, environment: str, index: int, score: float) -> None:
        """Add a score from before this process started; call it in the order in which the tasks were opened."""
        pair = self._pair(model, environment)
        if index not in pair.taken and not pair.is_settled:
            pair.taken.add(index)
            self._add(pair, index, score)

    def recount(
        self, model: str, environment: str, counted: Mapping[int, float], gone: Collection[int]
    ) -> Known | None:
        """Recompute a pair from the samples that count now; return its estimate if that settles it. It stays settled.

        Args:
            model: the model's key.
            environment: the environment's name.
            counted: task index -> score of each task that the store counts, in the order in which they were opened.
            gone: indices of tasks whose sample no longer counts. A task in neither argument is not stored yet.
        """
        pair = self._pair(model, environment)
        if pair.is_settled:
            return None
        gone = set(gone) - set(counted)
        for task_id in pair.ended:
            if pair.waiting[task_id] in gone:
                pair.ended[task_id] = None
        waiting = set(pair.waiting.values())
        kept = {index: score for index, score in pair.scores.items() if index not in gone}
        scores = kept | {index: score for index, score in counted.items() if index not in waiting}
        pair.known, pair.total, pair.scores, pair.taken = ConfidenceSequence(), 0.0, {}, set(scores) | waiting
        for index, score in scores.items():
            self._add(pair, index, score)
        return self.known(model, environment) if pair.is_settled else None

    def opened(self, task: Task) -> None:
        """Note that a task was opened."""
        pair = self._pair(task.model, task.environment)
        if task.index not in pair.taken and not pair.is_settled:
            pair.taken.add(task.index)
            pair.waiting[task.task_id] = task.index

    def ended(self, model: str, environment: str, task_id: str, score: float | None) -> Known | None:
        """Note that a task ended, with or without a score; return its pair's estimate if that settles the pair."""
        pair = self._pair(model, environment)
        if pair.is_settled or task_id not in pair.waiting:
            return None
        pair.ended[task_id] = score
        while pair.waiting and (first := next(iter(pair.waiting))) in pair.ended:
            index, score = pair.waiting.pop(first), pair.ended.pop(first)
            if score is None:
                pair.taken.discard(index)  # the task may be opened again
            else:
                self._add(pair, index, score)
        return self.known(model, environment) if pair.is_settled else None

    def is_settled(self, model: str, environment: str) -> bool:
        """Return whether the pair needs no more samples."""
        pair = self._pairs.get((model, environment))
        return pair is not None and pair.is_settled

    def settled(self) -> Iterable[_Pair]:
        """Return the pairs that need no more samples."""
        return [key for key, pair in self._pairs.items() if pair.is_settled]

    def known(self, model: str, environment: str) -> Known:
        """Return the current estimate of a pair's mean."""
        pair = self._pair(model, environment)
        count = pair.known.count
        return Known(count, pair.total / count if count else 0.5, pair.known.low, pair.known.high)

    def _pair(self, model: str, environment: str) -> _Progress:
        return self._pairs.setdefault((model, environment), _Progress())

    def _add(self, pair: _Progress, index: int, score: float) -> None:
        if pair.is_settled:
            return
        pair.scores[index] = score
        pair.known.add(score)
        pair.total += score
        if pair.known.count >= self._min_tasks and pair.known.half_width <= self._half_width:
            pair.is_settled = True

    def validate(self) -> None:
        """Assert that ended tasks wait behind one that has not ended, and that settled pairs are precise."""
        for pair in self._pairs.values():
            assert set(pair.ended) <= set(pair.waiting)
            assert pair.is_settled or not pair.waiting or next(iter(pair.waiting)) not in pair.ended
            assert not pair.is_settled or pair.known.half_width <= self._half_width
            assert not pair.is_settled or pair.known.count >= self._min_tasks
            pair.known.validate()
