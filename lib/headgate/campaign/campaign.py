"""A campaign: demand, queue, workers, journal and store, run by one event-driven loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.campaign.acceptance import Acceptance
from headgate.campaign.figures import PairFigures, WorkerFigures
from headgate.campaign.plan import CampaignPlan
from headgate.campaign.samples import MAX_ATTEMPTS, health_of, poison_result, sample_of
from headgate.campaign.starting import restored, sampler_of
from headgate.campaign.status import campaign_status
from headgate.core import Clock, Model, Sample, Task, new_trace_id
from headgate.core.errors import HeadgateError
from headgate.core.events import (
    CampaignStarted,
    CampaignStopped,
    CampaignStopping,
    Emit,
    QueueResumed,
    RosterRefreshed,
    RosterRefreshFailed,
    SampleAccepted,
    SampleRefused,
    StatusReported,
    TaskProviderFailed,
    TaskReturned,
    TasksEnqueued,
    TaskStarted,
)
from headgate.core.status import CampaignStatus
from headgate.environments import converse
from headgate.sampling import Demand, FairBatches, LocalTaskProvider, ModelSampler, SlidingCount, TimerHeap
from headgate.scheduling import Backpressure, Dispatch, Dispatcher, Explanation
from headgate.storage import AlreadyTaken, Journal, JournalThread, Opening, Sink, SinkRules

STORE_ON_STOP_S: Final = 60.0
"""How long a stopping campaign tries to store its spool; what is left stays there, on disk."""

_WORKERS: Final = "workers"


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """What a campaign did."""

    status: CampaignStatus
    samples: int
    stored: int
    spooled: int
    open_tasks: int
    stopped_by: str


class Campaign:
    """Samples every model in every environment until it is stopped, its time is up, or its provider runs dry.

    Lives for one `run`. Everything that decides is pure and told the time; this class only moves results between them:
    demand from the samplers gets its sequence number from the journal, waits in its sampler's buffer, enters the ready
    queue, and starts as soon as the dispatcher grants a worker, in the same turn of the loop in which a worker came
    free. Finished samples go through acceptance into the spool, and through the sink into the store.
    """

    def __init__(self, plan: CampaignPlan, *, clock: Clock, emit: Emit, inline: bool = False) -> None:
        """Prepare a campaign.

        Args:
            plan: what to sample.
            clock: real, or virtual in a simulation.
            emit: where events go.
            inline: run the journal on the loop's own thread and without fsync, as simulations need.
        """
        self.plan = plan.checked()
        settings = plan.settings
        self._clock = clock
        self._emit = emit
        self._epoch_offset = clock.wall() - clock.monotonic()
        self._rules = plan.sampling_rules()
        self._rates = plan.rates() if plan.provider is None else {}
        journal = Journal(settings.journal, settings.campaign, fsync=not inline)
        self._journal = JournalThread(journal, inline=inline)
        self._holder = self._journal.journal.holder
        self._dispatcher = Dispatcher({_WORKERS: settings.num_evaluation_workers}, holder=self._holder)
        self._backpressure = Backpressure(
            settings.queue_warning_threshold,
            settings.queue_pause_threshold,
            settings.queue_resume_threshold,
            settings.queue_max_size,
        )
        self._batches = FairBatches(settings.batch_size, settings.batch_flush_interval)
        self.samplers: dict[str, ModelSampler] = {}
        self._local = LocalTaskProvider(self.samplers)
        self._provider = plan.provider if plan.provider is not None else self._local
        self._acceptance = Acceptance(
            self._journal, clock=clock, now=self.now, emit=emit, accepted=self._samples_accepted
        )
        self._sink = Sink(
            self._journal,
            plan.store,
            SinkRules(settings.sink_batch_size, settings.sink_max_wait),
            clock=clock,
            now=self.now,
            emit=emit,
        )
        self._pairs = PairFigures()
        self._workers = WorkerFigures(settings.num_evaluation_workers, self.now())
        self._enqueued_recently = SlidingCount(span_s=60.0, bucket_s=1.0)
        self._dequeued_recently = SlidingCount(span_s=60.0, bucket_s=1.0)
        self._running: dict[str, tuple[Task, asyncio.Task[None]]] = {}
        self._pause_ends = TimerHeap()
        self._ready_since: dict[str, float] = {}
        self._episodes: asyncio.TaskGroup | None = None
        self._ordinals = 0
        self._samples = 0
        self._open = 0
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._stop_reason = ""
        self._state = "starting"
        self._started_at = self.now()

    # The outside.

    def now(self) -> float:
        """Return the campaign's time: seconds since the epoch at start, monotonic from there on."""
        return self._clock.monotonic() + self._epoch_offset

    def stop(self, reason: str) -> None:
        """Take on no more work, drain what is in flight, and let `run` return. Legal more than once."""
        if not self._stop.is_set():
            self._stop_reason = reason
            self._stop.set()

    def status(self) -> CampaignStatus:
        """Return what the campaign looks like now."""
        open_tasks = [*self._dispatcher.queue.tasks(), *(task for task, _ in self._running.values())]
        return campaign_status(
            self.plan.settings.campaign,
            self._state,
            now=self.now(),
            started_at=self._started_at,
            samplers=self.samplers,
            dispatcher=self._dispatcher,
            backpressure=self._backpressure,
            buffered=self._batches.size,
            enqueued_last_minute=self._enqueued_recently.total(self.now()),
            dequeued_last_minute=self._dequeued_recently.total(self.now()),
            pairs=self._pairs.status(self._rates_in_force(), open_tasks, self.now()),
            workers=self._workers.status(self.now()),
            spooled=self._sink.spooled + self._acceptance.waiting,
            stored=self._sink.stored,
            samples=self._samples,
            open_tasks=self._open if self._state == "stopped" else len(open_tasks) + self._batches.size,
        )

    def _rates_in_force(self) -> dict[tuple[str, str], float]:
        return {(m, e): s.rate_per_day(e) for m, s in self.samplers.items() for e in s.environments}

    def why(self, task_id: str) -> Explanation:
        """Return which gate holds a task."""
        return self._dispatcher.why(task_id, self.now())  # type: ignore[arg-type]  # any string may be asked for

    async def run(self) -> CampaignResult:
        """Sample until stopped; return when everything is drained.

        Raises:
            InvalidRosterError: if the first roster cannot be read.
            StoreError: if the journal is new and the store's history cannot be read.
        """
        try:
            await self._start()
            async with asyncio.TaskGroup() as group:
                acceptance = group.create_task(self._acceptance.run())
                sink = group.create_task(self._sink.run())
                loops = [
                    group.create_task(loop) for loop in (self._demand_loop(), self._roster_loop(), self._status_loop())
                ]
                try:
                    await self._run_episodes()
                finally:
                    for task in loops:
                        task.cancel()
                await self._made_durable()
                acceptance.cancel()
                self._sink.finish()
                await asyncio.wait([sink], timeout=STORE_ON_STOP_S)
                sink.cancel()
        finally:
            self._state = "stopped"
            self._open, spooled = await self._close()
        result = CampaignResult(self.status(), self._samples, self._sink.stored, spooled, self._open, self._stop_reason)
        self._emit(CampaignStopped(self.plan.settings.campaign, result.samples, result.stored, spooled, self._open))
        return result

    # Start and stop.

    async def _start(self) -> None:
        models = (await self.plan.roster.load()).models
        await restored(self._journal, self.plan.store, self.now())
        await self._admit_models(models)
        adopted = await self._adopt()
        self._state = "running"
        self._emit(
            CampaignStarted(
                campaign=self.plan.settings.campaign,
                models=len(self.samplers),
                environments=tuple(self.plan.environments),
                workers=self.plan.settings.num_evaluation_workers,
                resumed_samples_24h=sum(s.samples_24h(self.now()) for s in self.samplers.values()),
                reopened_tasks=adopted,
            )
        )

    async def _run_episodes(self) -> None:
        """Let episodes run until the stop, then give them the drain time."""
        async with asyncio.TaskGroup() as episodes:
            self._episodes = episodes
            self._fill_workers()
            try:
                async with asyncio.timeout(self.plan.duration_s):
                    await self._stop.wait()
            except TimeoutError:
                self.stop("the window is over")
            self._state = "draining"
            self._emit(CampaignStopping(self.plan.settings.campaign, self._stop_reason, len(self._running)))
            in_flight = [running for _, running in self._running.values()]
            if in_flight:
                await asyncio.wait(in_flight, timeout=self.plan.settings.drain_timeout_s)
            for running in in_flight:
                running.cancel()

    async def _made_durable(self) -> None:
        """Wait for the last samples to be durable, but not for ever: their tasks are open and run again."""
        try:
            async with asyncio.timeout(STORE_ON_STOP_S):
                await self._acceptance.drained()
        except TimeoutError:
            return

    async def _close(self) -> tuple[int, int]:
        journal = self._journal.journal
        left = await self._journal.call(lambda: (journal.open_count(), journal.spool_count()))
        self._journal.close()
        return left

    # Models.

    async def _admit_models(self, models: Sequence[Model]) -> tuple[list[str], list[str], int]:
        """Start samplers of new models, stop those of models that are gone, and return what changed."""
        wanted = {model.key: model for model in models}
        removed = [key for key in self.samplers if key not in wanted]
        withdrawn = 0
        for key in removed:
            del self.samplers[key]
            tasks = self._batches.take(key) + self._dispatcher.remove_model(key)
            await self._journal.call(self._journal.journal.withdraw, [task.task_id for task in tasks])
            for task in tasks:
                self._ready_since.pop(task.task_id, None)
                self._emit(TaskReturned(task.task_id, task.model, task.environment, "its model left the roster"))
            withdrawn += len(tasks)
        added = [key for key in wanted if key not in self.samplers]
        if added:
            past = await self._journal.call(self._journal.journal.history, self.now())
            for key in added:
                self.samplers[key] = sampler_of(
                    wanted[key], self._rates, self._rules, past, ordinal=self._ordinals, now=self.now()
                )
                self._ordinals += 1
        for key, model in wanted.items():
            self.samplers[key].model = model
            self._dispatcher.set_model(key, model.max_parallel)
            self._sync_pause(key)
        self._provider.roster_changed(models)
        self._local.touch([*added, *removed], self.now())
        return added, removed, withdrawn

    async def _roster_loop(self) -> None:
        while True:
            await self._clock.sleep(self.plan.settings.miner_refresh_interval)
            try:
                models = (await self.plan.roster.load()).models
            except HeadgateError as error:
                self._emit(RosterRefreshFailed(str(error), len(self.samplers)))
                continue
            added, removed, withdrawn = await self._admit_models(models)
            self._emit(RosterRefreshed(len(models), tuple(added), tuple(removed), withdrawn))
            self._wake.set()

    def _sync_pause(self, key: str) -> None:
        until = self.samplers[key].pause.paused_until
        self._pause_ends.set(key, until)
        if until is not None:
            self._dispatcher.hold(key, until)
        else:
            self._dispatcher.unhold(key)

    # Demand.

    async def _demand_loop(self) -> None:
        """Turn due times into queued tasks; sleeps until the next due time, flush, or change."""
        while True:
            self._wake.clear()
            now = self.now()
            await self._end_pauses(now)
            if not self._backpressure.is_paused and not self._acceptance.is_blocked:
                await self._take_demand(now)
            self._flush(now)
            self._fill_workers()
            self._stop_when_idle()
            wait_s = self._wait_s()
            if wait_s == 0:
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _take_demand(self, now: float) -> None:
        try:
            demand, happened = await self._provider.take(now) if self._is_due(now) else ((), ())
        except HeadgateError as error:
            next_at = self._provider.next_at(now)
            self._emit(TaskProviderFailed(str(error), (next_at or now) - now))
            return
        for event in happened:
            self._emit(event)
        if demand:
            await self._open_tasks(demand)

    async def _open_tasks(self, demand: Sequence[Demand]) -> None:
        known = [d for d in demand if d.model in self.samplers and d.environment in self.plan.environments]
        openings = [
            Opening(
                d.model,
                d.environment,
                d.due_at,
                d.interval_s,
                self.plan.environments[d.environment].spec.data_length,
                self.samplers[d.model].model.weight,
                d.sequence,
            )
            for d in known
        ]
        now = self.now()
        for opened in await self._journal.call(self._journal.journal.open, openings):
            sampler = self.samplers.get(opened.model)
            if isinstance(opened, AlreadyTaken):
                if sampler is not None and opened.last_due is not None and self._rates:
                    sampler.was_taken(opened.environment, opened.last_due)
                    self._local.touch([opened.model], now)
                continue
            if sampler is not None:
                self._pairs.fell_due(opened)
                self._batches.add(opened.model, opened, now)

    def _flush(self, now: float) -> None:
        """Let ready buffers into the queue as far as it has room; the rest stays in its buffer, in order."""
        if not self._room():
            return
        for model, tasks in self._batches.take_ready(now):
            room = self._room()
            if room:
                self._enqueue(model, tasks[:room], now)
            if room < len(tasks):
                self._batches.put_back(model, tasks[room:], now)

    def _room(self) -> int:
        return self._backpressure.room(len(self._dispatcher.queue))

    def _enqueue(self, model: str, tasks: Sequence[Task], now: float) -> None:
        added = self._dispatcher.enqueue(tasks)
        self._enqueued_recently.add(now, added)
        for task in tasks:
            self._ready_since[task.task_id] = now
        size = len(self._dispatcher.queue)
        self._emit(TasksEnqueued(model, added, size))
        changed = self._backpressure.update(size, now)
        if changed is not None:
            self._emit(changed)

    def _is_due(self, now: float) -> bool:
        at = self._provider.next_at(now)
        return at is not None and at <= now

    def _wait_s(self) -> float | None:
        """Return how long the demand loop has nothing to do; None until something wakes it."""
        now = self.now()
        times = [self._pause_ends.next_at(), self._batches.next_at() if self._room() else None]
        if not self._backpressure.is_paused and not self._acceptance.is_blocked:
            times.append(self._provider.next_at(now))
        return min((max(0.0, at - now) for at in times if at is not None), default=None)

    def _stop_when_idle(self) -> None:
        if not self.plan.stop_when_idle or self._provider.next_at(self.now()) is not None:
            return
        if not self._running and not len(self._dispatcher.queue) and not self._batches.size:
            self.stop("everything is done")

    # Workers.

    def _fill_workers(self) -> None:
        """Start episodes while the dispatcher grants workers."""
        if self._episodes is None or self._state != "running" or self._acceptance.is_blocked:
            return
        while True:
            now = self.now()
            granted = self._dispatcher.next(now)
            if not isinstance(granted, Dispatch):
                break
            self._dequeued_recently.add(now)
            self._workers.started(now)
            running = self._episodes.create_task(self._run_task(granted, now))
            self._running[granted.task.task_id] = (granted.task, running)
        resumed = self._backpressure.update(len(self._dispatcher.queue), self.now())
        if resumed is not None:
            self._emit(resumed)
            if isinstance(resumed, QueueResumed):
                self._wake.set()

    async def _run_task(self, dispatch: Dispatch, started_at: float) -> None:
        """Run one episode under its lease; the lease ends with it, whatever happens."""
        task = dispatch.task
        sample: Sample | None = None
        try:
            sample = await self._episode(task, self.samplers[task.model].model, started_at)
        except asyncio.CancelledError:
            self._emit(TaskReturned(task.task_id, task.model, task.environment, "the campaign is stopping"))
            raise
        finally:
            ended = self.now()
            del self._running[task.task_id]
            self._dispatcher.finished(task, dispatch.lease)
            self._workers.ended(ended, ended - started_at)
            if sample is not None:
                self._acceptance.add(sample)
                await self._observe(sample, started_at, ended)
            self._fill_workers()
            if self.plan.stop_when_idle:
                self._wake.set()

    async def _episode(self, task: Task, model: Model, started_at: float) -> Sample:
        trace_id = new_trace_id()
        queue_wait_s = started_at - self._ready_since.pop(task.task_id, started_at)
        self._emit(TaskStarted(task.task_id, task.model, task.environment, queue_wait_s, trace_id))
        if task.attempt > MAX_ATTEMPTS:
            result = poison_result(task)
        else:
            chat = self.plan.chats.chat(model, task, self._emit)
            result = await converse(self.plan.environments[task.environment], task.index, task.seed, chat)
        return sample_of(
            task,
            result,
            started_at=started_at,
            latency_s=self.now() - started_at,
            queue_wait_s=queue_wait_s,
            trace_id=trace_id,
            keep_conversation=self.plan.settings.keep_conversations,
        )

    async def _observe(self, sample: Sample, started_at: float, now: float) -> None:
        """Tell the model's sampler how the episode went; a pause holds its queued tasks, too."""
        sampler = self.samplers.get(sample.model)
        if sampler is None:
            return
        health = health_of(sample.error_kind)
        for event in sampler.observe(health, error=sample.error, started_at=started_at, now=now):
            self._emit(event)
            self._sync_pause(sample.model)
            await self._remember_pause(sample.model)
            self._local.touch([sample.model], now)
            self._wake.set()

    async def _end_pauses(self, now: float) -> None:
        """Let models run again whose pause is over; what they have queued goes first."""
        for model in self._pause_ends.pop_due(now):
            for event in self.samplers[model].end_pause(now) if model in self.samplers else ():
                self._emit(event)
                self._sync_pause(model)
                await self._remember_pause(model)
                self._local.touch([model], now)

    async def _remember_pause(self, model: str) -> None:
        """Keep the state of a model's pause across restarts."""
        pause, journal = self.samplers[model].pause, self._journal.journal
        if pause.level == 0:
            await self._journal.call(journal.clear_pause, model)
        else:
            await self._journal.call(journal.record_pause, model, pause.level, pause.paused_until or 0.0)

    # Samples.

    def _samples_accepted(self, samples: Sequence[Sample], accepted: set[str]) -> None:
        now = self.now()
        for sample in samples:
            if sample.task_id not in accepted:
                self._emit(
                    SampleRefused(sample.task_id, sample.model, sample.environment, "this process no longer holds it")
                )
                continue
            self._samples += 1
            self._pairs.done(sample)
            sampler = self.samplers.get(sample.model)
            if sampler is not None and sample.is_scored:
                sampler.scored(sample.environment, now)
            self._emit(SampleAccepted(sample))
        self._sink.note_accepted(len(accepted))
        self._fill_workers()

    async def _adopt(self) -> int:
        """Take over what dead processes of this journal left; return how many tasks."""
        found = await self._journal.call(self._journal.journal.adopt, list(self.plan.environments), list(self.samplers))
        now = self.now()
        tasks = [task for task in found if task.model in self.samplers]
        for task in tasks:
            self._pairs.fell_due(task)
            self._enqueue(task.model, [task], now)
        return len(tasks)

    async def _status_loop(self) -> None:
        while True:
            await self._clock.sleep(self.plan.settings.status_interval_s)
            if await self._adopt():
                self._fill_workers()
            await self._sink.look()
            self._open = await self._journal.call(self._journal.journal.open_count)
            self._emit(
                StatusReported(
                    samplers=len(self.samplers),
                    paused=sum(s.pause.is_paused(self.now()) for s in self.samplers.values()),
                    task_queue=len(self._dispatcher.queue) + self._batches.size,
                    result_queue=self._sink.spooled + self._acceptance.waiting,
                    enqueued=self._dispatcher.enqueued,
                    dequeued=self._dispatcher.dequeued,
                )
            )
