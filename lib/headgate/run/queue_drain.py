"""Drains a job queue: watches its jobs, collects the completed ones, and reports when nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, cast

from headgate.config import Settings
from headgate.core import Clock
from headgate.core.errors import StoreError
from headgate.core.events import CampaignStopped, CampaignStopping, Event, RowsQuarantined, StoreFailed
from headgate.core.tasks import first_ended
from headgate.durable.locks import temporary_folder
from headgate.jobqueue import JobState
from headgate.jobqueue.wire_servers import LaneOut
from headgate.run.job_collector import JobCollector, ScoreTally
from headgate.run.job_samples import model_of_team, stored_name
from headgate.run.plan import ChatSource, RunPlan
from headgate.run.run import Run
from headgate.storage import SampleStore
from headgate.telemetry import EventStream, LogSink

_T = TypeVar("_T")

_NOBODY: Final = cast("ChatSource", None)
"""Never used: every sample is already there."""


@dataclass(frozen=True, slots=True)
class DrainRules:
    """When to look, store and end.

    Attributes:
        poll_s: seconds between two looks at the queue.
        store_every_s: approximate limit of a sample's wait for its batch to be stored.
        batch_size: number of samples that are stored at once, without that wait.
        duration_s: end after this time even if jobs remain: 0 after one look; None for no limit.
    """

    poll_s: float = 5.0
    store_every_s: float = 60.0
    batch_size: int = 300
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """The progress of one task of a team.

    Attributes:
        unserved: pending jobs that no open policy server serves, so no worker gets them.
        scores: scores of the samples collected so far, by all runs.
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
    """The progress of a queue.

    Attributes:
        workers: workers that hold a job now.
        collected: samples that this run has stored.
        waiting: samples that are fetched but not stored.
    """

    states: dict[JobState, int] = field(default_factory=dict)
    workers: int = 0
    collected: int = 0
    waiting: int = 0
    tasks: tuple[TaskProgress, ...] = ()

    def count(self, state: JobState) -> int:
        """Return the number of jobs in a state."""
        return self.states.get(state, 0)

    @property
    def jobs(self) -> int:
        """The number of all jobs."""
        return sum(self.states.values())

    @property
    def open_jobs(self) -> int:
        """The number of jobs that are pending or in progress."""
        return self.count(JobState.PENDING) + self.count(JobState.IN_PROGRESS)

    @property
    def unserved(self) -> int:
        """The number of pending jobs that no open policy server serves, so no worker gets them."""
        return sum(task.unserved for task in self.tasks)

    @property
    def unscored(self) -> int:
        """The number of results without a score, of all runs."""
        return sum(task.scores.unscored for task in self.tasks)

    @property
    def share(self) -> float:
        """The finished share of the jobs, from 0 to 1."""
        return 1.0 - self.open_jobs / self.jobs if self.jobs else 1.0


@dataclass(frozen=True, slots=True)
class DrainResult:
    """The outcome of a drain.

    Attributes:
        stored: number of samples that this run stored.
        known: number of completed jobs that were in the store before.
        quarantined: number of samples that the store refused.
        stopped_by: why it ended, in a few words.
        is_drained: whether no job was left.
    """

    progress: QueueProgress
    stored: int
    known: int
    quarantined: int
    stopped_by: str
    is_drained: bool

    def document(self) -> dict[str, Any]:
        """Return it as JSON values, as both the command and the flow report it."""
        told = ("stored", "known", "quarantined", "stopped_by", "is_drained")
        return {name: getattr(self, name) for name in told} | {"unscored": self.progress.unscored}


OnProgress = Callable[[QueueProgress], Awaitable[None]]


async def drain_queue(
    collector: JobCollector,
    rules: DrainRules,
    *,
    store: SampleStore,
    clock: Clock,
    stop: asyncio.Event,
    on_progress: OnProgress | None = None,
) -> DrainResult:
    """Collect results until no job is pending or in progress, a stop is requested, or the time is over.

    It is a run whose samples outside workers have already taken. However it ends, fetched samples are stored before it
    returns. Its journal is temporary: queue and store know what is left to do.

    Args:
        collector: the queue's collector.
        rules: when to look, store and end.
        store: where the samples go.
        clock: source of time.
        stop: set to request a stop.
        on_progress: called after each look.

    Raises:
        JobQueueError: when the queue refuses, or does not answer for longer than its client's patience.
        StoreError: when the store still fails at the end; the next run collects what it did not accept.
        InvalidInputError: when the store has samples of another queue with this one's name.
    """
    drain = _Drain(collector, rules, store, clock, EventStream(clock, [LogSink()]))
    if await _unless(stop, collector.look()) is None:
        collector.end("stopped before the queue was read")
    elif rules.duration_s == 0.0:
        collector.end("its time is over")
    spooled = await drain.run(stop, on_progress) if collector.environments or not collector.ended_by else 0
    if on_progress is not None:
        await on_progress(drain.progress)
    if collector.failure is not None:
        raise collector.failure
    if spooled:
        raise StoreError(
            f"the sample store accepts nothing: {spooled} samples stay in the queue ({drain.store_error})",
            next_step="Check the store's address, rights and free space, and run this again.",
        )
    is_drained = collector.statistics is not None and not drain.progress.open_jobs
    progress = drain.progress
    return DrainResult(progress, drain.stored, collector.known, drain.quarantined, collector.ended_by, is_drained)


@dataclass(slots=True)
class _Drain:
    """One drain. Owned by `drain_queue`."""

    collector: JobCollector
    rules: DrainRules
    store: SampleStore
    clock: Clock
    stream: EventStream
    campaign: Run | None = None
    quarantined: int = 0
    store_error: str = ""

    @property
    def stored(self) -> int:
        return 0 if self.campaign is None else self.campaign.stored

    @property
    def progress(self) -> QueueProgress:
        return progress_of(self.collector, self.stored, self.quarantined)

    async def run(self, stop: asyncio.Event, on_progress: OnProgress | None) -> int:
        """Pass the queue's samples on until it ends; return how many samples the store has not accepted."""
        rules, collector = self.rules, self.collector
        with temporary_folder("headgate-drain-") as folder:
            settings = Settings(
                campaign=collector.rules.campaign,
                journal=folder,
                sink_batch_size=rules.batch_size,
                sink_max_wait=rules.store_every_s,
                roster_refresh_s=rules.poll_s or 1.0,
                early_stop=False,
            )
            plan = RunPlan(
                settings,
                collector,
                collector.environments,
                self.store,
                _NOBODY,
                provider=collector,
                executor=collector,
                is_last=True,
                stop_when_idle=True,
            )
            self.campaign = Run(plan, clock=self.clock, emit=self._emit, inline=True)
            beside = [asyncio.create_task(self._end_at(stop)), asyncio.create_task(self._tell(on_progress))]
            try:
                result = await self.campaign.run()
            finally:
                for one in beside:
                    one.cancel()
                told = await asyncio.gather(*beside, return_exceptions=True)
            if flaws := [one for one in told if isinstance(one, Exception)]:
                raise flaws[0]
        return result.spooled

    async def _end_at(self, stop: asyncio.Event) -> None:
        """End the run when a stop is requested, or its time is over."""
        duration_s = self.rules.duration_s
        if duration_s is None:
            await stop.wait()
        else:
            await _unless(stop, self.clock.sleep(duration_s))
        self.collector.end("stopped by request" if stop.is_set() else "its time is over")
        if self.campaign is not None:
            self.campaign.look()

    async def _tell(self, on_progress: OnProgress | None) -> None:
        while on_progress is not None:
            await on_progress(self.progress)
            await self.clock.sleep(self.rules.poll_s)

    def _emit(self, event: Event) -> None:
        if isinstance(event, CampaignStopping):
            event = replace(event, reason=self.collector.ended_by)  # the run itself has done everything that it had
        elif isinstance(event, CampaignStopped):
            event = replace(event, stopped_by=self.collector.ended_by)
        elif isinstance(event, RowsQuarantined):
            self.quarantined += event.rows
        elif isinstance(event, StoreFailed):
            self.store_error = event.error
        self.stream.emit(event)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, _T]) -> _T | None:
    """Return the result of `work`, or None, with `work` cancelled, as soon as `stop` is set."""
    async with first_ended(work, stop.wait()) as (working, _):
        result: _T | None = working.result() if working.done() else None
        return result


def progress_of(collector: JobCollector, stored: int, quarantined: int) -> QueueProgress:
    """Return the progress of a queue, from its own figures and the collected scores."""
    statistics, waiting = collector.statistics, collector.fresh - stored - quarantined
    if statistics is None:
        return QueueProgress(collected=stored, waiting=waiting)
    lanes: dict[tuple[str, str], list[LaneOut]] = {}
    for lane in statistics.lanes:
        lanes.setdefault((lane.team, lane.task), []).append(lane)
    return QueueProgress(
        dict(statistics.jobs),
        statistics.workers,
        stored,
        waiting,
        tuple(_task_progress(lanes[key], collector.scores) for key in sorted(lanes)),
    )


def _task_progress(lanes: Sequence[LaneOut], scores: Mapping[tuple[str, str], ScoreTally]) -> TaskProgress:
    team, task = lanes[0].team, lanes[0].task
    return TaskProgress(
        team,
        task,
        **{state.value: sum(getattr(lane, state.value) for lane in lanes) for state in JobState},
        unserved=sum(lane.pending for lane in lanes if not lane.is_served),
        scores=scores.get((model_of_team(team), stored_name(task)), ScoreTally()),
    )
