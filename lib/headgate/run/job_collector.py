"""Collects the results of completed jobs into the sample store, each once."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import polars as pl

from headgate.core import Sample
from headgate.core.errors import InvalidInputError
from headgate.jobqueue import Happening
from headgate.jobqueue.wire import JobOut
from headgate.run.job_samples import (
    JobSampleRules,
    ended_at,
    sample_of_job,
    stored_name,
    task_id_of_job,
    with_result_of_file,
)
from headgate.statistics import MeanEstimate, independent_mean
from headgate.storage import SampleStore, StoredBatch

if TYPE_CHECKING:
    from headgate.jobqueue.generator import ResultFolder
    from headgate.jobqueue.worker import JobQueueClient

_log = logging.getLogger("headgate.campaign.jobs")

PAGE: Final = 1_000
LARGEST_BATCH: Final = 5_000
"""Rows of one batch at most, as the sampling has it."""

_SAME_TIME_S: Final = 1e-3
_COLUMNS: Final = ("task_id", "campaign", "stage", "model", "environment", "score", "finished_at")

_Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ScoreTally:
    """Scores of one team's task so far.

    Attributes:
        scored: samples with a score.
        unscored: samples without one.
        total: sum of the scores.
        squares: sum of their squares.
        is_binary: whether every score is 0 or 1.
    """

    scored: int = 0
    unscored: int = 0
    total: float = 0.0
    squares: float = 0.0
    is_binary: bool = True

    def with_score(self, score: float | None) -> ScoreTally:
        """Return the tally with one more sample."""
        if score is None:
            return replace(self, unscored=self.unscored + 1)
        return ScoreTally(
            self.scored + 1,
            self.unscored,
            self.total + score,
            self.squares + score * score,
            self.is_binary and score in {0.0, 1.0},
        )

    @property
    def estimate(self) -> MeanEstimate | None:
        """The mean with its 95 % interval, None before the first score."""
        if not self.scored:
            return None
        mean = self.total / self.scored
        spread = max(0.0, self.squares - self.total * mean)
        variance = spread / (self.scored - 1) if self.scored > 1 else 0.0
        return independent_mean(self.scored, mean, variance, is_binary=self.is_binary)


class JobCollector:
    """Turns completed jobs into stored samples. Owned by one run; its calls must not overlap.

    The store itself says what was collected before, so a run that was killed at any point is followed by one that
    stores what is missing and nothing twice, on whatever machine. What was fetched and is not stored yet is in memory
    alone: the queue keeps it. Two collectors at the same time may both store a job; readers and summaries count it
    once.

    Attributes:
        stored: samples that this collector stored.
        quarantined: samples that the store refused.
        known: completed jobs that were in the store before.
    """

    def __init__(
        self,
        source: JobQueueClient,
        store: SampleStore,
        rules: JobSampleRules,
        *,
        monotonic: Callable[[], float],
        results: ResultFolder | None = None,
    ) -> None:
        """Prepare the collector.

        Args:
            source: the queue.
            store: where the samples go.
            rules: how a job becomes a sample.
            monotonic: tells how long samples have been waiting.
            results: files of results, for jobs that were completed without one.
        """
        self._source = source
        self._store = store
        self._rules = rules
        self._monotonic = monotonic
        self._results = results
        self._after = 0
        self._history_after = 0
        self._servers: dict[str, str] = {}
        self._ended: dict[str, dict[str, float]] = {}
        self._tallies: dict[_Pair, ScoreTally] = {}
        self._waiting: list[Sample] = []
        self._waits_since: float | None = None
        self._batch: tuple[Sample, ...] = ()
        self.stored = 0
        self.quarantined = 0
        self.known = 0

    @property
    def waiting(self) -> int:
        """Samples that are fetched and not stored."""
        return len(self._waiting) + len(self._batch)

    @property
    def scores(self) -> Mapping[_Pair, ScoreTally]:
        """Scores by model and environment: of samples that are stored and of those that wait for it."""
        return self._tallies

    def waits_s(self, now: float) -> float:
        """Return for how long the oldest of them has been waiting."""
        return 0.0 if self._waits_since is None else now - self._waits_since

    async def fetch(self) -> int:
        """Fetch all jobs that were completed since the last call; return how many are not in the store.

        It can be cancelled and called again: what a page brought is taken whole or not at all.

        Raises:
            InvalidInputError: when the store's sample of a job is of another evaluation: of another queue.
            StoreError: when the store cannot be read.
            JobQueueError: what the queue answers.
        """
        fetched = 0
        while True:
            page = await self._source.results(self._after, PAGE)
            await self._learn({stored_name(finished.job.task) for finished in page.results})
            fresh = [finished.job for finished in page.results if not self._is_known(finished.job)]
            if fresh:
                await self._follow_reservations()
            self._take(fresh)
            self.known += len(page.results) - len(fresh)
            fetched += len(fresh)
            if page.next <= self._after:
                return fetched
            self._after = page.next

    async def store(self) -> int:
        """Store what waits; return how many samples that were.

        Raises:
            StoreError: if that failed; it may be called again, and stores nothing twice.
        """
        stored = 0
        while self.waiting:
            if not self._batch:
                self._batch, self._waiting = tuple(self._waiting[:LARGEST_BATCH]), self._waiting[LARGEST_BATCH:]
            done = await self._store.put_batch(batch_id_of(self._batch), self._batch)
            self._batch = ()
            stored += done.rows
            self.stored += done.rows
            self._tell_of_quarantine(done)
        self._waits_since = None
        return stored

    # Inside.

    def _is_known(self, job: JobOut) -> bool:
        ended = self._ended[stored_name(job.task)].get(task_id_of_job(job, self._rules))
        if ended is None:
            return False
        if abs(ended - ended_at(job)) > _SAME_TIME_S:
            raise InvalidInputError(
                f"the store has another evaluation of job {job.id!r} of queue {self._rules.queue!r}: it ended at "
                f"{ended:.3f} and not at {ended_at(job):.3f}",
                next_step="Give this queue a name of its own, or its samples another campaign.",
            )
        return True

    def _take(self, jobs: Sequence[JobOut]) -> None:
        for job in jobs:
            told = job if self._results is None else with_result_of_file(job, self._results)
            sample = sample_of_job(told, self._rules, self._servers.pop(job.id, ""))
            self._ended[sample.environment][sample.task_id] = sample.finished_at
            self._count(sample.model, sample.environment, sample.score)
            self._waiting.append(sample)
        if jobs and self._waits_since is None:
            self._waits_since = self._monotonic()

    async def _learn(self, environments: set[str]) -> None:
        """Read from the store what it has of environments that were not met before."""
        unread = sorted(environments - self._ended.keys())
        if not unread:
            return
        rows = (await self._store.scan(unread, columns=_COLUMNS)).frame
        ours = (pl.col("campaign") == self._rules.campaign) & (pl.col("stage") == self._rules.stage)
        self._ended |= {environment: {} for environment in unread}
        for task_id, _, _, model, environment, score, finished_at in rows.filter(ours).select(_COLUMNS).iter_rows():
            self._ended[environment][task_id] = finished_at
            self._count(model, environment, score)

    async def _follow_reservations(self) -> None:
        """Read which server each job was given; before its completion, which the history has at a later place."""
        while True:
            page = await self._source.history(self._history_after, PAGE, Happening.RESERVED)
            self._servers.update({entry.job_id: entry.resource_id for entry in page.entries})
            if page.next <= self._history_after:
                return
            self._history_after = page.next

    def _count(self, model: str, environment: str, score: float | None) -> None:
        pair = (model, environment)
        self._tallies[pair] = self._tallies.get(pair, ScoreTally()).with_score(score)

    def _tell_of_quarantine(self, done: StoredBatch) -> None:
        if done.quarantined_rows:
            self.quarantined += done.quarantined_rows
            _log.error(
                "%d samples of jobs broke a rule of the store and are in %s: %s",
                done.quarantined_rows,
                done.quarantine_path,
                done.reason,
            )


def batch_id_of(samples: Iterable[Sample]) -> str:
    """Return the id of a batch: the same for the same samples."""
    digest = hashlib.sha256("".join(sample.task_id for sample in samples).encode()).hexdigest()
    return f"jobqueue-{digest[:32]}"
