"""A run: demand, queue, stages, journal and store, driven by one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from headgate.core import Clock, ErrorKind, Sample, TaskId, new_run_id
from headgate.core.errors import InvalidRosterError
from headgate.core.events import (
    CampaignStarted,
    CampaignStopped,
    CampaignStopping,
    CapacityReported,
    Emit,
    SampleAccepted,
    SampleRefused,
    StatusReported,
)
from headgate.core.status import CampaignStatus
from headgate.core.tasks import first_ended
from headgate.run.acceptance import Acceptance
from headgate.run.batch_lane import single_reply
from headgate.run.budgets.keeper import restored_budgets
from headgate.run.controls import LOOK_EVERY_S, LOOK_EVERY_SIMULATED_S, Steering
from headgate.run.demand import DemandSide
from headgate.run.dispatch import AGGREGATE, JOBS, JUDGE_CALLS, LOCAL, WORKERS, dispatcher_of, frontier_rules
from headgate.run.early_stop import RosterEarlyStop, StallWatch
from headgate.run.garbage import rare_collections
from headgate.run.health import Health
from headgate.run.inquiry import Inquiry
from headgate.run.learning import SharedLearning, ToldNotices
from headgate.run.matrix import Cell
from headgate.run.membership import Membership, restored
from headgate.run.parts import Parts
from headgate.run.plan import RunPlan
from headgate.run.request_side import DAILY_BUDGET
from headgate.run.resampling import openings_of, recounted
from headgate.run.rows import health_of
from headgate.run.score_watch import ScoreWatch
from headgate.run.settlement import settling_of
from headgate.run.stages import RETRIES, Stages
from headgate.run.status import RunResult, model_status, queue_status, why_no_samples
from headgate.sampling import FairBatches, LocalTaskProvider, ModelSampler
from headgate.scheduling import EVERYTHING_DONE, Backpressure, DispatchLoop, Explanation, Trace
from headgate.storage import JOURNAL_REFUSED, Journal, JournalThread, Sink, SinkRules

STOP_WITHIN_S: Final = 60.0
"""How long a stopping run tries to store its spool; the rest stays in the spool, on disk."""


class Run:
    """Takes samples until it is stopped, its time is up, or its source runs dry. Lives for one `run`.

    A *source* says what is due: daily rates, a matrix, the tasks of a server, or pairings. The *stages* of a sample
    are its environment's: an episode and, if a judge reads the answer, its judgements and their aggregate. For every
    source and every environment, the path from a due time to the store is the same.

    Decision makers are pure and receive the time; the run carries out what they decide. Demand gets its sequence
    number from the journal (`DemandSide`), waits in its sampler's buffer, or for the frontier if it has several stages,
    enters the ready queue, and starts as soon as the dispatcher grants its resources (`DispatchLoop`, `Stages`).
    Finished samples become durable (`Acceptance`) and go from the spool into the store (`Sink`). `Membership` follows
    the roster, `Health` the pauses.
    """

    def __init__(self, plan: RunPlan, *, clock: Clock, emit: Emit, inline: bool = False) -> None:
        """Prepare a run.

        Args:
            plan: what to sample.
            clock: real, or virtual in a simulation.
            emit: where events go.
            inline: run the journal on the event loop's thread and without fsync, for simulations.

        Raises:
            InvalidInputError: if the plan cannot be run.
            JournalError: if the journal cannot be opened.
        """
        self.plan = plan.checked()
        settings, judging = plan.settings, plan.judging
        self._outside = outside = plan.executor
        self._clock = clock
        self._emit = emit
        self._is_simulated = inline
        self._epoch_offset = clock.wall() - clock.monotonic()
        rates = plan.rates() if plan.provider is None else {}
        judge = None if judging is None else judging.judge
        journal = Journal(settings.journal, settings.campaign, fsync=not inline, lease_s=settings.journal_lease_s)
        self.journal = JournalThread(journal, inline=inline, clock=clock, emit=emit)
        self.samplers: dict[str, ModelSampler] = {}
        local = LocalTaskProvider(self.samplers)
        self._parts = Parts(
            settings=settings,
            environments=plan.environments,
            clock=clock,
            now=self.now,
            emit=emit,
            journal=self.journal,
            dispatcher=dispatcher_of(
                settings,
                journal.holder,
                judge,
                jobs=None if outside is None else outside.limit,
                has_hosts=plan.hosts is not None,
            ),
            hosts=plan.hosts,
            backpressure=Backpressure(
                settings.queue_warning_threshold,
                settings.queue_pause_threshold,
                settings.queue_resume_threshold,
                settings.queue_max_size,
            ),
            # Tasks from a provider are already due: waiting for more would only delay them.
            batches=FairBatches(settings.batch_size, settings.batch_flush_interval if plan.provider is None else 0.0),
            samplers=self.samplers,
            local=local,
            provider=plan.provider if plan.provider is not None else local,
            requests=plan.requests,
            is_traced=plan.is_traced,
            is_judged=judge is not None,
            outside=frozenset() if outside is None else outside.played,
        )
        self._acceptance = Acceptance(
            self.journal,
            clock=clock,
            now=self.now,
            accepted=self._samples_accepted,
            spending=None if plan.requests is None else plan.requests.budgets,
        )
        self._settling = settling_of(self._parts, plan)
        self._scores = ScoreWatch(self._parts, plan.store)
        self._told = ToldNotices(self.journal)
        self._stall = StallWatch(settings.campaign, settings.stalled_after_s)
        self._health = Health(self._parts, self._settling)
        self._learning = SharedLearning(self._parts, self._health)
        self._unblocked = asyncio.Event()
        self._stages = Stages(
            self._parts,
            self._health,
            self._acceptance,
            plan.chats,
            judging,
            outside=self._outside,
            writable=self._writable,
            ended=self._check_early_stop,
            settling=self._settling,
            drop=lambda tasks, reason: self._loop.drop(tasks, reason),  # noqa: PLW0108 - the loop is built after them
            discard_put_off=lambda condition: self._loop.discard_put_off(condition),  # noqa: PLW0108 - likewise
            wake=lambda: self._loop.wake(),  # noqa: PLW0108 - likewise
        )
        self.run_id = plan.run_id or new_run_id()
        self._loop = self._new_loop()
        self._demand = DemandSide(self._parts, self._health, self._settling, self._stages)
        self._early_stop = RosterEarlyStop.of(settings)
        knowing = (self._parts.pairs, self._scores, self._early_stop, None if judging is None else judging.figures)
        self._membership = Membership(
            self._parts,
            plan.roster,
            plan.sampling_rules(),
            rates,
            self._health,
            self._settling,
            self._stages.withdraw,
            [one.forget for one in knowing if one is not None],
        )
        self.steering = Steering(
            self._parts,
            self._membership,
            self._stages,
            self._health,
            self._settling,
            self._outside,
            rates=rates,
            held=lambda: self._loop.held,
            stop=self.stop,
            recount=self._recount,
        )
        self.journal.unblocked = self._journal_unblocked
        sink_rules = SinkRules(settings.sink_batch_size, settings.sink_max_wait, is_last=plan.is_last)
        self._sink = Sink(self.journal, plan.store, sink_rules, clock=clock, now=self.now, emit=emit)
        self.inquiry = Inquiry(
            self._parts,
            self._stages,
            self._loop,
            judge,
            self._settling,
            run_id=self.run_id,
            state=lambda: self._state,
            spooled=lambda: self._sink.spooled + self._acceptance.waiting,
            is_accepting=self._acceptance.is_waiting,
            outside=self._outside,
        )
        self._stopped_early = False
        self._started_at = self.now()
        self._state = "starting"
        self._stop_reason = ""
        self._samples = self._scored = 0
        self._left_open = 0

    def _new_loop(self) -> DispatchLoop:
        plan, settings = self.plan, self.plan.settings
        is_matrix = plan.provider is not None and all(one.spec.needs_judge for one in plan.environments.values())
        return DispatchLoop(
            self._parts.dispatcher,
            self._stages.next_rows,
            self._stages.work,
            now=self.now,
            frontier=frontier_rules(settings.max_unjudged, is_adaptive=is_matrix),
            model_resource=WORKERS,
            retries=RETRIES,
            tolerant_stages=(AGGREGATE,),
            trace=Trace(self._emit, self.run_id, self._stages.trace_of) if plan.is_traced else None,
            health_every_s=settings.status_interval_s if plan.is_traced else None,
            is_done=self._is_drained,
            turned=self._turned,
        )

    def now(self) -> float:
        """Return the run's time: seconds since the epoch when it started, monotonic from then on."""
        return self._clock.monotonic() + self._epoch_offset

    def close(self) -> None:
        """Close the journal, as `run` does when it ends; for a run that was refused before it started."""
        self.journal.close()

    def stop(self, reason: str) -> None:
        """Start no further sample, drain what is in flight, and let `run` return. May be called more than once."""
        if self._parts.stopping.is_set():
            return
        self._stop_reason = reason
        self._state = "draining"
        in_flight = self._stages.rollouts + self._stages.unjudged
        self._emit(CampaignStopping(self.plan.settings.campaign, reason, in_flight))
        self._parts.stopping.set()
        self._parts.wake.set()
        if self._outside is not None:
            self._outside.withdraw("the run is stopping", lambda _: True)
        self._loop.drain()

    def look(self) -> None:
        """Wake the demand loop at once; for a source that has changed on its own."""
        self._parts.wake.set()

    @property
    def stored(self) -> int:
        """Samples that are visible in the store."""
        return self._sink.stored

    def why(self, task_id: TaskId) -> Explanation:
        """Return which gate holds a task."""
        return self._loop.why(task_id)

    async def run(self) -> RunResult:
        """Sample until stopped; return when everything is drained.

        Raises:
            InvalidRosterError: if the first roster cannot be read.
            StoreError: if the journal is new and the store's history cannot be read.
        """
        with rare_collections():
            return await self._run()

    async def _run(self) -> RunResult:
        try:
            await self._start()
            async with asyncio.TaskGroup() as group:
                acceptance = group.create_task(self._acceptance.run())
                sink = group.create_task(self._sink.run())
                beside = [self._demand.run(), self._membership.keep(), self._report(), self._stop_in_time()]
                beside += [self.journal.keep(), self._learning.keep(), self._scores.keep(), self._watch_stall()]
                beside.append(self._settling.allotment.keep())
                beside.append(self.steering.keep(LOOK_EVERY_SIMULATED_S if self._is_simulated else LOOK_EVERY_S))
                if self.plan.notices is not None:
                    beside.append(self.plan.notices.keep(self._told))
                if self._parts.requests is not None:
                    beside.append(self._parts.requests.budgets.keep_in_step())
                    if self._parts.requests.batches is not None:
                        beside.append(self._parts.requests.batches.run())
                if self._outside is not None:
                    beside.append(self._outside.run(lambda limit: self._parts.dispatcher.set_limit(JOBS, limit)))
                if self._parts.hosts is not None:
                    beside.append(self._parts.hosts.keep(self._parts.dispatcher))
                loops = [group.create_task(loop) for loop in beside]
                await self._run_loop()
                for task in loops:
                    task.cancel()
                await self._wait_until_durable()
                acceptance.cancel()
                self._sink.finish()
                await asyncio.wait([sink], timeout=STOP_WITHIN_S)
                sink.cancel()
        finally:
            self._state = "stopped"
            if self._parts.requests is not None:
                self._parts.requests.close("the campaign has ended")
            self._left_open, spooled, in_hand = await self._close()
        status = self.status()
        is_empty = not self._samples and self.plan.provider is None
        result = RunResult(
            status=status,
            samples=self._samples,
            scored=self._scored,
            stored=self._sink.stored,
            spooled=spooled,
            open_tasks=self._left_open,
            stopped_by=self._stop_reason,
            stopped_early=self._stopped_early,
            given_up=dict(self._settling.given_up),
            ranking=self._settling.report(),
            left_out=self._demand.left_out,
            in_hand=in_hand,
            empty_because=why_no_samples(status, self._parts.local.next_at(self.now())) if is_empty else "",
            agreements=self.plan.judging.figures.agreements() if self.plan.judging is not None else (),
        )
        name = self.plan.settings.campaign
        self._emit(CapacityReported(name, self.run_id, "end", self.inquiry.capacity()))
        left = (result.samples, result.stored, result.spooled, result.open_tasks)
        self._emit(CampaignStopped(name, *left, self.run_id, self._stop_reason))
        return result

    # Status.

    def status(self) -> CampaignStatus:
        """Return the run's status now."""
        parts, now = self._parts, self.now()
        open_tasks = [task for _, task in self.inquiry.open_tasks()]
        rates = {(m, e): s.rate_per_day(e) for m, s in self.samplers.items() for e in s.environments}
        return CampaignStatus(
            campaign=self.plan.settings.campaign,
            captured_at=now,
            started_at=self._started_at,
            state=self._state,
            models=tuple(model_status(sampler, parts, now) for sampler in self.samplers.values()),
            pairs=parts.pairs.status(rates, open_tasks, now),
            queue=queue_status(parts, now),
            workers=self._stages.figures.status(now),
            spooled=self._sink.spooled + self._acceptance.waiting,
            stored=self._sink.stored,
            samples=self._samples,
            open_tasks=self._left_open if self._state == "stopped" else len(open_tasks),
            requests=self.inquiry.requests(),
            outside=None if self._outside is None else self._outside.status(),
            batches=() if parts.requests is None or parts.requests.batches is None else parts.requests.batches.status(),
            unjudged=self._stages.unjudged,
            judged=() if self.plan.judging is None else self.plan.judging.figures.pairs(),
            journal_problem=parts.journal.problem,
            store_problem=self._sink.problem,
        )

    # The beginning and the end.

    async def _start(self) -> None:
        parts, judging, requests = self._parts, self.plan.judging, self._parts.requests
        if requests is not None:
            requests.idle, requests.busy = self._stages.idle, self._stages.busy
            requests.ready, requests.free_workers = parts.dispatcher.queued, self._free_workers
            if (batches := requests.batches) is not None:
                batches.go_on, batches.is_stopping = self._go_on, parts.stopping.is_set
                batches.sample_of = self._sample_of
                batches.single = single_reply(parts.environments)
            if requests.engines is not None:
                requests.engines.due, requests.engines.hopeless = self._due, self._engines_fail
                requests.engines.in_progress = self._parts.dispatcher.in_flight
            if judging is not None:
                requests.budgets.own_only.add(judging.judge.key)
                requests.register(judging.judge)
            requests.watch(self._pressed)
        rates = self.plan.rates() if self.plan.provider is None else {}
        await restored(self.journal, self.plan.store, self.now(), rates)
        await self._settling.restore(self.plan.store)
        await self.steering.load()
        await self._membership.load()
        if judging is not None and judging.judge.key in self.samplers:
            raise InvalidRosterError(f"the judge {judging.judge.key} is one of the models that it judges")
        if requests is not None:
            await restored_budgets(requests.budgets, self.journal, self.plan.store, self.now())
        await self._learning.share()
        again = []
        if self.plan.provider is None:  # a matrix opens these tasks itself
            tasks = await self.plan.store.to_resample(self.plan.settings.campaign)
            again = openings_of(tasks, self.plan.environments, self.now())
        adopted = await self._demand.adopt(again)
        self._state = "running"
        self._emit(
            CampaignStarted(
                campaign=self.plan.settings.campaign,
                models=len(self.samplers),
                environments=tuple(self.plan.environments),
                workers=self.plan.settings.num_evaluation_workers,
                resumed_samples_24h=sum(s.samples_24h(self.now()) for s in self.samplers.values()),
                reopened_tasks=adopted,
                run_id=self.run_id,
                judge="" if judging is None else judging.judge.key,
                judgements=0 if judging is None else self.plan.settings.judgements,
            )
        )
        self._emit(CapacityReported(self.plan.settings.campaign, self.run_id, "start", self.inquiry.capacity()))

    async def _run_loop(self) -> None:
        """Run the loop to its end; a stopped run has the drain timeout to finish what is in progress."""
        # Even if this run is cancelled, tasks in progress are given back and stay open in the journal.
        async with first_ended(self._loop.run(), self._parts.stopping.wait()) as (running, _):
            if not running.done():
                await asyncio.wait([running], timeout=self.plan.settings.drain_timeout_s)
            if not running.done():
                self._loop.stop(self._stop_reason)
        if not running.cancelled():
            running.result()

    def _is_drained(self) -> bool:
        """Return whether a stopped run has finished everything it began; called when nothing runs."""
        queue = self._parts.dispatcher.queue
        # Tasks that wait for a batch are in the journal, and the next run reads their replies.
        is_waiting = bool(self._loop.held) and self._loop.only_holds
        is_waiting = is_waiting and not queue.demand(JUDGE_CALLS) and not queue.demand(LOCAL)
        return self._parts.stopping.is_set() and (not self._stages.unjudged or is_waiting)

    def _turned(self) -> None:
        """React to a turn of the loop: backpressure, buffers that wait for a free worker, the end of a matrix."""
        parts = self._parts
        parts.close_spent_lanes()
        changed = parts.backpressure.update(parts.backlog(), self.now())
        if changed is not None:
            self._emit(changed)
            parts.wake.set()
        self._demand.turned()
        if self.plan.stop_when_idle and self._state == "running" and self._loop.is_idle and self._demand.is_dry():
            self.stop(EVERYTHING_DONE)

    async def _stop_in_time(self) -> None:
        if self.plan.duration_s is not None:
            await self._clock.sleep(self.plan.duration_s)
            self.stop("the window is over")

    async def _wait_until_durable(self) -> None:
        """Wait `STOP_WITHIN_S` at most for the journal to have the last samples, batches and notices, or else go on."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_WITHIN_S):
                await self._acceptance.drained()
                if (requests := self._parts.requests) is not None and requests.batches is not None:
                    await requests.batches.close()
                if self.plan.notices is not None:
                    await self.plan.notices.pass_on(self._told)
                await self._told.flush()

    async def _close(self) -> tuple[int, int, frozenset[Cell]]:
        journal, left_out = self.journal.journal, self._demand.left_out
        left = len(list(self.inquiry.open_tasks())), self._sink.spooled, left_out
        with contextlib.suppress(TimeoutError, *JOURNAL_REFUSED):  # an unreachable database must not block the end
            async with asyncio.timeout(STOP_WITHIN_S):
                if self._parts.requests is not None:
                    await self._parts.requests.budgets.leave()
                in_hand = left_out & await self.journal.call(journal.open_cells) if left_out else left_out
                counts = await self.journal.call(journal.open_count), await self.journal.call(journal.spool_count)
                left = (*counts, in_hand)
        if left[0] and self._stop_reason == EVERYTHING_DONE:
            self._stop_reason = "nothing is left to take here"  # other runs have the rest, or its models have left
        self.journal.close()
        return left

    # Calls from outside the run.

    def _pressed(self, model: str, reason: str | None, until: float | None) -> None:
        """Close or reopen a model's lane according to its endpoint's pressure."""
        # Answered tasks spend no more of a budget, so their lane stays open. Admission gives the monotonic time; the
        # dispatcher takes the run's.
        told = None if reason == DAILY_BUDGET and model in self._parts.answered else reason
        self._parts.dispatcher.set_pressure(model, told, None if until is None else until + self._epoch_offset)
        sampler, is_held = self.samplers.get(model), reason == DAILY_BUDGET
        if sampler is not None and sampler.is_held != is_held:
            sampler.is_held = is_held
            self._parts.local.touch([model], self.now())
            self._parts.wake.set()

    def _go_on(self, task_id: str) -> None:
        """Let a task continue whose request came back from its batch."""
        key = TaskId(task_id)
        if key in self._loop.held:
            if (row := self._stages.row_of(key)) is not None:
                row.ready_at = self.now()
            else:
                self._parts.ready_since[key] = self.now()
            self._loop.held[key] = self._parts.note_answered(self._loop.held[key])
            self._loop.go_on(key)

    def _sample_of(self, task_id: str) -> str:
        """Return the task id of the sample that a task or stage belongs to."""
        row = self._stages.row_of(TaskId(task_id))
        return task_id if row is None else row.task.task_id

    def _free_workers(self) -> int:
        """Return how many episodes and judgements could start now."""
        book = self._parts.dispatcher.book
        return sum(max(0, book.available(name)) for name in book.limits if name not in {LOCAL, JOBS})

    def _due(self, model: str) -> int:
        """Return how many samples of a model need an engine: those in progress, and those able to start."""
        dispatcher, requests = self._parts.dispatcher, self._parts.requests
        if requests is None or (lane := dispatcher.lanes.get(model)) is None:
            return 0
        is_held = lane.held_until is not None or requests.budgets.stop_of(model) is not None
        return dispatcher.in_flight(model) + (0 if is_held else dispatcher.queued(model))

    def _engines_fail(self, model: str, why: str) -> None:
        """Give up a model whose engines do not start, in a run that ends on its own."""
        if self.plan.stop_when_idle and self.plan.settings.early_stop and model not in self._settling.given_up:
            self._settling.give_up(model, f"its engine does not run: {why}")

    async def _writable(self) -> None:
        """Return once the journal can be written: while its disk is full, no work starts that it could not record."""
        while self.journal.problem:
            self._unblocked.clear()
            await self._unblocked.wait()

    def _journal_unblocked(self) -> None:
        self._unblocked.set()
        self._parts.wake.set()

    # Finished samples.

    def _samples_accepted(self, samples: Sequence[Sample], accepted: set[str]) -> None:
        now, judging = self.now(), self.plan.judging
        for sample in samples:
            if sample.task_id not in accepted:
                reason = "this process no longer holds its task"
                self._emit(SampleRefused(sample.task_id, sample.model, sample.environment, reason))
                continue
            self._samples += 1
            self._scored += sample.is_scored
            self._parts.pairs.done(sample)
            self._settling.accepted(sample)
            self._scores.accepted(sample)
            sampler = self.samplers.get(sample.model)
            if sampler is not None and sample.is_scored:
                sampler.scored(sample.environment, now)
            if judging is not None and self.plan.environments[sample.environment].spec.needs_judge:
                judging.figures.add(sample)
            self._emit(SampleAccepted(sample))
        if self._parts.requests is not None:
            self._parts.requests.forget(accepted)
        self._sink.note_accepted(
            len(accepted), sum(len(one.conversation) for one in samples if one.task_id in accepted)
        )

    async def _recount(self) -> None:
        await recounted(self._parts, self.plan.store, self._started_at)
        again = await self._settling.recount(self.plan.store)
        self._scores.recount()
        await self._demand.adopt(openings_of(again, self.plan.environments, self.now()))

    def _check_early_stop(self, sample: Sample) -> None:
        """Stop the run if its samples keep failing."""
        if self._early_stop is None:
            return
        if self.plan.provider is None and (
            sample.error_kind == ErrorKind.JUDGE or health_of(sample.error_kind) == "service_error"
        ):
            # Sampling by rates never ends: a service that is down pauses its model, and a judge that gives no verdict
            # must not end the sampling of environments without one.
            return
        lanes = self._parts.dispatcher.lanes
        reason = self._early_stop.ended(
            sample.model,
            has_failed=not sample.is_scored,
            models=self.samplers,
            is_held=lambda key: key in lanes and lanes[key].held_until is not None,
        )
        if reason is not None and not self._parts.stopping.is_set():
            self._stopped_early = True
            self.stop(reason)

    async def _watch_stall(self) -> None:
        while True:  # not in `_report`, which waits while the journal cannot be written
            await self._clock.sleep(self._parts.settings.status_interval_s)
            due, why = (0, "") if self._parts.stopping.is_set() else self.inquiry.due()
            if (told := self._stall.look(self.now(), self._samples, due, why)) is not None:
                self._emit(told)

    async def _report(self) -> None:
        """Report progress, and take over what other processes left, every status interval."""
        parts = self._parts
        while True:
            await self._clock.sleep(parts.settings.status_interval_s)
            if await self._demand.adopt():
                self._loop.wake()
            await self._told.flush()
            await self._sink.look()
            self._emit(
                StatusReported(
                    samplers=len(self.samplers),
                    paused=sum(s.pause.is_paused(self.now()) for s in self.samplers.values()),
                    task_queue=parts.backlog() + parts.batches.size,
                    result_queue=self._sink.spooled + self._acceptance.waiting,
                    enqueued=parts.dispatcher.enqueued,
                    dequeued=parts.dispatcher.dequeued,
                )
            )
