"""Drives a queue's jobs to their end: watches them, collects what is completed, and says when nothing is left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.core import Clock
from headgate.core.errors import StoreError
from headgate.jobqueue import JobState
from headgate.jobqueue.wire_servers import LaneOut, StatisticsOut
from headgate.run.job_collector import JobCollector, ScoreTally
from headgate.run.job_samples import model_of_team, stored_name

if TYPE_CHECKING:
    from headgate.jobqueue.worker import JobQueueClient

_log = logging.getLogger("headgate.campaign.jobs")

_STORE_PAUSE_S: Final = 2.0

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class DrainRules:
    """When to look, to store and to end.

    Attributes:
        poll_s: seconds between two looks at the queue.
        store_every_s: a sample waits no longer than about this for its batch.
        batch_size: samples that are stored at once without waiting so long.
        duration_s: end after so long even if jobs remain; None for as long as it takes.
        store_patience_s: at the end, how long a store that fails is tried again.
    """

    poll_s: float = 5.0
    store_every_s: float = 60.0
    batch_size: int = 300
    duration_s: float | None = None
    store_patience_s: float = 120.0


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How far one task of a team is.

    Attributes:
        unserved: pending jobs that no open policy server serves: nobody gets them.
        scores: of the samples collected so far, by all runs.
    """

    team: str
    task: str
    pending: int
    in_progress: int
    done: int
    dead: int
    unserved: int
    scores: ScoreTally


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a queue is.

    Attributes:
        states: jobs by state.
        workers: that hold a job now.
        collected: samples that this run stored.
        waiting: samples that are fetched and not stored.
        tasks: by team and task.
    """

    states: dict[JobState, int] = field(default_factory=dict)
    workers: int = 0
    collected: int = 0
    waiting: int = 0
    tasks: tuple[TaskProgress, ...] = ()

    def count(self, state: JobState) -> int:
        """Return how many jobs are in a state."""
        return self.states.get(state, 0)

    @property
    def jobs(self) -> int:
        """All jobs."""
        return sum(self.states.values())

    @property
    def open_jobs(self) -> int:
        """Jobs that are pending or in progress."""
        return self.count(JobState.PENDING) + self.count(JobState.IN_PROGRESS)

    @property
    def unserved(self) -> int:
        """Pending jobs that no open policy server serves: nobody gets them."""
        return sum(task.unserved for task in self.tasks)

    @property
    def share(self) -> float:
        """How much is done with, from 0 to 1."""
        return 1.0 - self.open_jobs / self.jobs if self.jobs else 1.0


@dataclass(frozen=True, slots=True)
class DrainResult:
    """What a drain did.

    Attributes:
        progress: at its end.
        stored: samples that this run stored.
        known: completed jobs that were in the store before.
        quarantined: samples that the store refused.
        stopped_by: why it ended, in a few words.
        is_drained: whether no job was left.
    """

    progress: QueueProgress
    stored: int
    known: int
    quarantined: int
    stopped_by: str
    is_drained: bool


OnProgress = Callable[[QueueProgress], Awaitable[None]]


async def drain_queue(
    source: JobQueueClient,
    collector: JobCollector,
    rules: DrainRules,
    *,
    clock: Clock,
    stop: asyncio.Event,
    on_progress: OnProgress | None = None,
) -> DrainResult:
    """Collect results until no job is pending or in progress, it is told to stop, or its time is over.

    Whatever ends it, what was fetched is stored before it returns.

    Args:
        source: the queue.
        collector: of the same queue.
        rules: when to look, to store and to end.
        clock: gives the time.
        stop: set to stop.
        on_progress: told after each look.

    Raises:
        JobQueueError: when the queue refuses, or does not answer for longer than its client is patient.
        StoreError: when the store goes on failing at the end; the next run collects what it did not take.
        InvalidInputError: when the store has samples of another queue under this one's name.
    """
    drain = _Drain(source, collector, rules, clock, stop, on_progress)
    try:
        stopped_by = await drain.run()
    finally:
        await drain.store_all()
    return DrainResult(
        drain.progress, collector.stored, collector.known, collector.quarantined, stopped_by, drain.is_drained
    )


@dataclass(slots=True)
class _Drain:
    """One drain. Owned by `drain_queue`."""

    source: JobQueueClient
    collector: JobCollector
    rules: DrainRules
    clock: Clock
    stop: asyncio.Event
    on_progress: OnProgress | None
    statistics: StatisticsOut | None = None
    has_told_of_store: bool = False

    @property
    def progress(self) -> QueueProgress:
        """How far the queue was at the last look."""
        return progress_of(self.statistics, self.collector)

    @property
    def is_drained(self) -> bool:
        """Whether there was a look, and no job was left at it."""
        return self.statistics is not None and not self.progress.open_jobs

    async def run(self) -> str:
        """Look until there is a reason to end, and return it."""
        began = self.clock.monotonic()
        while True:
            looked = await _unless(self.stop, self._look())
            if looked and self.is_drained:
                return "no job is left"
            if self.stop.is_set():
                return "stopped by request"
            if self._is_due():
                await self._try_to_store()
            if self.on_progress is not None:
                await self.on_progress(self.progress)
            left_s = self._left_s(began)
            if left_s <= 0:
                return "its time is over"
            await _unless(self.stop, self.clock.sleep(min(self.rules.poll_s, left_s)))

    async def store_all(self) -> None:
        """Store what was fetched; a store that fails is asked again for a while, unless the run is to stop."""
        until = self.clock.monotonic() + self.rules.store_patience_s
        while self.collector.waiting:
            try:
                await self.collector.store()
            except StoreError as error:
                if self.stop.is_set() or self.clock.monotonic() >= until:
                    raise
                self._tell_of_store(error)
                await _unless(self.stop, self.clock.sleep(_STORE_PAUSE_S))
        if self.on_progress is not None and self.statistics is not None:
            await self.on_progress(self.progress)

    async def _look(self) -> bool:
        # In this order: what these figures count as done is among the results.
        statistics = await self.source.statistics()
        await self.collector.fetch()
        self.statistics = statistics
        return True

    def _left_s(self, began: float) -> float:
        if self.rules.duration_s is None:
            return float("inf")
        return began + self.rules.duration_s - self.clock.monotonic()

    def _is_due(self) -> bool:
        collector, rules = self.collector, self.rules
        return collector.waiting >= rules.batch_size or collector.waits_s(self.clock.monotonic()) >= rules.store_every_s

    async def _try_to_store(self) -> None:
        try:
            await self.collector.store()
        except StoreError as error:
            self._tell_of_store(error)
        else:
            self.has_told_of_store = False

    def _tell_of_store(self, error: StoreError) -> None:
        if not self.has_told_of_store:
            _log.warning("The sample store accepts nothing (%s); results stay in the queue", error.message)
        self.has_told_of_store = True


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, _T]) -> _T | None:
    """Return what `work` gives, or None, with it cancelled, as soon as `stop` is set."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        return None
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


def progress_of(statistics: StatisticsOut | None, collector: JobCollector) -> QueueProgress:
    """Return how far a queue is, by its own figures and by the scores that were collected."""
    if statistics is None:
        return QueueProgress(collected=collector.stored, waiting=collector.waiting)
    lanes: dict[tuple[str, str], list[LaneOut]] = {}
    for lane in statistics.lanes:
        lanes.setdefault((lane.team, lane.task), []).append(lane)
    return QueueProgress(
        dict(statistics.jobs),
        statistics.workers,
        collector.stored,
        collector.waiting,
        tuple(_task_progress(lanes[key], collector.scores) for key in sorted(lanes)),
    )


def _task_progress(lanes: Sequence[LaneOut], scores: Mapping[tuple[str, str], ScoreTally]) -> TaskProgress:
    team, task = lanes[0].team, lanes[0].task
    return TaskProgress(
        team,
        task,
        sum(lane.pending for lane in lanes),
        sum(lane.in_progress for lane in lanes),
        sum(lane.done for lane in lanes),
        sum(lane.dead for lane in lanes),
        sum(lane.pending for lane in lanes if not lane.is_served),
        scores.get((model_of_team(team), stored_name(task)), ScoreTally()),
    )
