"""The campaign's own counts: what fell due and was done per pair, and how busy the workers were."""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.core import Sample, Task
from headgate.core.status import PairStatus, WorkerStatus
from headgate.sampling import SlidingCount

_MINUTE_S = 60.0
_KNOWN_ENDS = 20_000
"""The latest samples of a pair that an invalidation can still subtract; 160 KB."""


@dataclass(slots=True)
class _Pair:
    due: int = 0
    done: int = 0
    scored: int = 0
    errors: int = 0
    score_sum: float = 0.0
    square_sum: float = 0.0
    ends: array[float] = field(default_factory=lambda: array("d"))
    """When each of the latest scored samples finished."""
    invalid: Sequence[float] = ()
    """Scores of the samples that no longer count."""


class PairFigures:
    """Counts per model and environment since the campaign started."""

    def __init__(self) -> None:
        self._pairs: defaultdict[tuple[str, str], _Pair] = defaultdict(_Pair)
        self.due = 0

    def fell_due(self, task: Task) -> None:
        """Count a task that was opened, or taken over from another process."""
        self._pairs[task.model, task.environment].due += 1
        self.due += 1

    def done(self, sample: Sample) -> None:
        """Count an accepted sample."""
        pair = self._pairs[sample.model, sample.environment]
        pair.done += 1
        pair.errors += sample.error_kind is not None
        if sample.score is not None:
            pair.scored += 1
            pair.score_sum += sample.score
            pair.square_sum += sample.score**2
            pair.ends.append(sample.finished_at)
            if len(pair.ends) > _KNOWN_ENDS:
                del pair.ends[: _KNOWN_ENDS // 2]

    def forget(self, model: str) -> None:
        """Drop the counts of a model."""
        for key in [key for key in self._pairs if key[0] == model]:
            del self._pairs[key]

    def leave_out(self, invalid: Iterable[tuple[str, str, float, float, int]]) -> None:
        """Count exactly these samples (model, environment, wall time of end, score, index) as not scored."""
        found: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for model, environment, ended_at, score, _ in invalid:
            found[model, environment].append((ended_at, score))
        for key, pair in self._pairs.items():
            ours = set(pair.ends) if key in found else ()
            pair.invalid = [score for ended_at, score in found.get(key, ()) if ended_at in ours]

    def status(
        self, rates: Mapping[tuple[str, str], float], open_tasks: Iterable[Task], now: float
    ) -> tuple[PairStatus, ...]:
        """Return every pair that is or was sampled; `rates` are those in force."""
        oldest: dict[tuple[str, str], float] = {}
        for task in open_tasks:
            key = (task.model, task.environment)
            oldest[key] = min(oldest.get(key, task.due_at), task.due_at)
        lags = {key: max(0.0, now - due_at) for key, due_at in oldest.items()}
        keys = sorted(rates.keys() | self._pairs.keys())
        return tuple([self._status_of(key, rates.get(key, 0.0), lags.get(key, 0.0)) for key in keys])

    def _status_of(self, key: tuple[str, str], rate: float, lag_s: float) -> PairStatus:
        pair = self._pairs.get(key) or _Pair()
        scored, score_sum = pair.scored - len(pair.invalid), pair.score_sum - sum(pair.invalid)
        squares = pair.square_sum - sum(score**2 for score in pair.invalid)
        return PairStatus(*key, pair.due, pair.done, scored, pair.errors, score_sum, rate, lag_s, squares)


class WorkerFigures:
    """The busy time of all workers so far, and its value a minute ago."""

    def __init__(self, total: int, now: float) -> None:
        self._total = total
        self._started = self._changed = now
        self._active = 0
        self._parked = 0
        self._busy_s = 0.0
        self._finished = 0
        self._task_s = 0.0
        self._recent = SlidingCount(span_s=_MINUTE_S, bucket_s=1.0)
        self._past: deque[tuple[float, float]] = deque([(now, 0.0)])

    def resize(self, total: int, now: float) -> None:
        """Change the number of workers."""
        self._advance(now)
        self._total = total

    def started(self, now: float) -> None:
        """Note that an episode took a worker."""
        self._advance(now)
        self._active += 1

    def ended(self, now: float, seconds: float) -> None:
        """Note that an episode of `seconds` released its worker."""
        self._advance(now)
        self._active -= 1
        self._finished += 1
        self._task_s += seconds
        self._recent.add(now)

    def parked(self, now: float) -> None:
        """Note that an episode waits and lends its worker to others."""
        self._advance(now)
        self._active -= 1
        self._parked += 1

    def unparked(self, now: float) -> None:
        """Note that a waiting episode resumed or ended."""
        self._advance(now)
        self._active += 1
        self._parked -= 1

    def status(self, now: float) -> WorkerStatus:
        """Return the counts so far."""
        self._advance(now)
        then, busy_then = self._past[0]
        span = now - then
        return WorkerStatus(
            total=self._total,
            active=self._active,
            finished=self._finished,
            finished_last_minute=self._recent.total(now),
            busy_s=self._busy_s,
            elapsed_s=now - self._started,
            # Episodes that resume may briefly outnumber the workers.
            utilization_last_minute=min(1.0, (self._busy_s - busy_then) / (span * self._total)) if span > 0 else 0.0,
            mean_task_s=self._task_s / self._finished if self._finished else None,
            parked=self._parked,
        )

    def _advance(self, now: float) -> None:
        self._busy_s += self._active * (now - self._changed)
        self._changed = now
        if now - self._past[-1][0] >= 1.0:
            self._past.append((now, self._busy_s))
            while len(self._past) > 2 and self._past[1][0] <= now - _MINUTE_S:
                self._past.popleft()
