"""A run with a judge: rollouts, judgements and aggregates through one dispatch loop, samples into journal and store."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from headgate.campaign.acceptance import Acceptance
from headgate.campaign.budgets import restored_budgets
from headgate.campaign.collecting import rare_collections
from headgate.campaign.dispatching import task_policy
from headgate.campaign.early_stop import RosterEarlyStop
from headgate.campaign.judged.cells import opened_tasks
from headgate.campaign.judged.frontier import frontier_rules
from headgate.campaign.judged.inquiry import JudgedInquiry
from headgate.campaign.judged.plan import JudgedPlan
from headgate.campaign.judged.progress import JudgedProgress, JudgedResult
from headgate.campaign.judged.rows import AGGREGATE, JUDGE_CALLS, LOCAL, LOCAL_LANE, ROLLOUT, WORKERS, Row
from headgate.campaign.judged.stages import RETRIES, Stages
from headgate.campaign.starting import restored
from headgate.core import Clock, Sample, Task, TaskId
from headgate.core.events import CampaignStopping, Emit, JudgingStarted, JudgingStopped, SampleAccepted, SampleRefused
from headgate.scheduling import Dispatcher, DispatchLoop, RowGroup, Trace
from headgate.storage import Journal, JournalThread, Sink, SinkRules

STOP_WITHIN_S: Final = 60.0
"""How long a run that ends tries to store its spool; what is left stays there, on disk."""


class JudgedRun:
    """Takes the samples of a plan, each of them judged, until all are there or it is stopped. Lives for one `run`.

    Every sample is a row group of its own: a rollout, its judgements, and their aggregate, which wait in one queue for
    resources of their own. So a judge that admits nothing holds no rollout up, and models that admit nothing no judge.
    A sample becomes durable once, by its aggregate; a row that does not come that far is open in the journal, and is
    taken again from its rollout by the next run.
    """

    def __init__(self, plan: JudgedPlan, *, clock: Clock, emit: Emit, inline: bool = False) -> None:
        """Prepare a run.

        Args:
            plan: what to take, and who judges.
            clock: real, or virtual in a simulation.
            emit: where events go.
            inline: run the journal on the loop's own thread and without fsync, as simulations need.

        Raises:
            InvalidInputError: if the plan cannot be run.
            JournalError: if the journal cannot be opened.
        """
        self.plan = plan.checked()
        settings = plan.settings
        self._clock = clock
        self._emit = emit
        self._epoch_offset = clock.wall() - clock.monotonic()
        self._models = {model.key: model for model in plan.models}
        journal = Journal(settings.journal, settings.campaign, fsync=not inline)
        self._journal = JournalThread(journal, inline=inline, clock=clock, emit=emit)
        self._acceptance = Acceptance(
            self._journal,
            clock=clock,
            now=self.now,
            accepted=self._accepted,
            spending=None if plan.requests is None else plan.requests.budgets,
        )
        sink_rules = SinkRules(settings.sink_batch_size, settings.sink_max_wait)
        self._sink = Sink(self._journal, plan.store, sink_rules, clock=clock, now=self.now, emit=emit)
        self._stages = Stages(
            plan,
            now=self.now,
            monotonic=clock.monotonic,
            emit=emit,
            writable=self._writable,
            started=self._acceptance.note_started,
            record=self._record,
        )
        self._dispatcher = self._made_dispatcher(journal)
        self.inquiry = JudgedInquiry(
            self.plan,
            self._stages,
            self._dispatcher,
            self._journal,
            now=self.now,
            epoch_offset=self._epoch_offset,
            state=lambda: self._state,
            spooled=lambda: self._sink.spooled + self._acceptance.waiting,
            is_accepting=self._acceptance.is_waiting,
        )
        self._unblocked = asyncio.Event()
        self._journal.unblocked = self._unblocked.set
        self._early_stop = RosterEarlyStop.of(settings)
        self._stopping = asyncio.Event()
        self._stopped_by = ""
        self._stopped_early = False
        self._state = "running"
        self._due = 0
        self._recorded = 0
        self._scored = 0

    def now(self) -> float:
        """Return the run's time: seconds since the epoch at start, monotonic from there on."""
        return self._clock.monotonic() + self._epoch_offset

    def stop(self, reason: str) -> None:
        """Begin no further rollout, drain what is in progress, and let `run` return. Legal more than once."""
        if not self._stopped_by:
            self._stopped_by = reason
            self._state = "draining"
            in_flight = self._stages.rollouts + self._stages.unjudged
            self._emit(CampaignStopping(self.plan.settings.campaign, reason, in_flight))
            self._stages.is_stopping = True
            self._stopping.set()

    def progress(self) -> JudgedProgress:
        """Return how far the run has come."""
        return JudgedProgress(
            campaign=self.plan.settings.campaign,
            state=self._state,
            samples=self._due,
            recorded=self._recorded,
            rollouts=self._stages.rollouts,
            unjudged=self._stages.unjudged,
            stored=self._sink.stored,
            pairs=self.plan.figures.pairs(),
        )

    async def run(self) -> JudgedResult:
        """Take the samples; return when all of them are there, or everything is drained.

        Raises:
            StoreError: if the journal is new and the store's history cannot be read.
        """
        with rare_collections():
            try:
                loop = await self._prepared()
                async with asyncio.TaskGroup() as group:
                    acceptance = group.create_task(self._acceptance.run())
                    sink = group.create_task(self._sink.run())
                    in_step = group.create_task(self._in_step())
                    await self._followed(loop)
                    in_step.cancel()
                    await self._made_durable()
                    acceptance.cancel()
                    self._sink.finish()
                    await asyncio.wait([sink], timeout=STOP_WITHIN_S)
                    sink.cancel()
            finally:
                self._state = "stopped"
                if self.plan.requests is not None:
                    self.plan.requests.close("the run has ended")
                open_tasks, spooled = await self._close()
        return self._ended(open_tasks, spooled)

    # The loop and what it decides by.

    def _made_dispatcher(self, journal: Journal) -> Dispatcher:
        settings, judge = self.plan.settings, self.plan.judge
        workers = settings.num_evaluation_workers
        limits = {WORKERS: workers, JUDGE_CALLS: judge.max_parallel, LOCAL: workers}
        dispatcher = Dispatcher(limits, holder=journal.holder, policy=task_policy(settings), governed=(WORKERS,))
        for model in (*self.plan.models, judge):
            dispatcher.set_model(model.key, model.max_parallel)
        dispatcher.set_model(LOCAL_LANE, workers)
        return dispatcher

    async def _prepared(self) -> DispatchLoop:
        plan, settings = self.plan, self.plan.settings
        await restored(self._journal, plan.store, self.now())
        tasks, reopened = await opened_tasks(self._journal, plan.cells, self._models, plan.environments, self.now())
        self._due = len(tasks)
        self._emit(
            JudgingStarted(settings.campaign, plan.run_id, plan.judge.key, settings.judgements, self._due, reopened)
        )
        loop = DispatchLoop(
            self._dispatcher,
            self._row_groups(tasks),
            self._stages.work,
            clock=self._clock,
            frontier=frontier_rules(settings.max_unjudged),
            model_resource=WORKERS,
            retries=RETRIES,
            tolerant_stages=(AGGREGATE,),
            trace=Trace(self._emit, plan.wants, plan.run_id, self._stages.trace_of),
            health_every_s=settings.status_interval_s,
        )
        self._connect(loop)
        if plan.requests is not None:
            await restored_budgets(plan.requests.budgets, self._journal, plan.store, self.now())
        self.inquiry.loop = loop
        return loop

    def _row_groups(self, tasks: Sequence[Task]) -> Iterator[RowGroup]:
        """Give one row group per sample, as the loop asks for them: rows that are not open yet cost nothing.

        The next one is of the model with the fewest open rows by weight: answers that are long in judging hold up no
        other model's, however few rows may be open.
        """
        waiting: dict[str, deque[Task]] = {}
        for task in tasks:
            waiting.setdefault(task.model, deque()).append(task)
        while waiting and not self._stopping.is_set():
            key = min(waiting, key=lambda key: self._stages.open_rows[key] / self._models[key].weight)
            task = waiting[key].popleft()
            if not waiting[key]:
                del waiting[key]
            row = Row(task, self._models[key], self.now())
            group = row.stages(self.plan.judge, self.plan.settings.judgements)
            self._stages.add(row, group.tasks)
            yield group
            row.ready_at = self.now()  # the loop looks one group ahead: it opens this one when it asks for the next

    def _connect(self, loop: DispatchLoop) -> None:
        """Let admission close the lanes of models that admit nothing, and lend the workers of rollouts that wait."""
        requests = self.plan.requests
        if requests is None:
            return
        requests.budgets.own_only(self.plan.judge.key)
        for model in (*self.plan.models, self.plan.judge):
            requests.register(model)

        def idle(task_id: str) -> None:
            self._stages.idle_tasks.add(TaskId(task_id))
            if self._stages.stage_of(TaskId(task_id)) == ROLLOUT:
                loop.park(TaskId(task_id))

        def busy(task_id: str) -> None:
            self._stages.idle_tasks.discard(TaskId(task_id))
            loop.unpark(TaskId(task_id))

        requests.idle, requests.busy = idle, busy
        requests.ready = self._dispatcher.queued
        requests.free_workers = self._free
        requests.watch(self._dispatcher.set_pressure)

    async def _writable(self) -> None:
        """Return once the journal can be written: while its disk is full nothing begins that it could not keep."""
        while self._journal.is_blocked:
            self._unblocked.clear()
            await self._unblocked.wait()

    def _free(self) -> int:
        """Return how many rollouts and judgements could begin at once."""
        book = self._dispatcher.book
        return book.available(WORKERS) + book.available(JUDGE_CALLS)

    async def _in_step(self) -> None:
        if self.plan.requests is not None:
            await self.plan.requests.budgets.keep_in_step()

    async def _followed(self, loop: DispatchLoop) -> None:
        """Let the loop run to its end; a run that is stopped has the drain time to judge what it has answers to."""
        running = asyncio.ensure_future(loop.run())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await asyncio.wait([running], timeout=self.plan.settings.drain_timeout_s)
            if not running.done():
                loop.stop(self._stopped_by)
        finally:
            # Also when this run itself is cancelled: what is in progress is given back, and is open in the journal.
            stopping.cancel()
            running.cancel()
            await asyncio.wait([running, stopping])
        if not running.cancelled():
            running.result()

    # What becomes of samples.

    def _record(self, sample: Sample) -> None:
        self._acceptance.add(sample)
        self._look_at(sample)

    def _accepted(self, samples: Sequence[Sample], accepted: set[str]) -> None:
        for sample in samples:
            if sample.task_id not in accepted:
                reason = "this process no longer holds its task"
                self._emit(SampleRefused(sample.task_id, sample.model, sample.environment, reason))
                continue
            self._recorded += 1
            self._scored += sample.is_scored
            self.plan.figures.add(sample)
            self._emit(SampleAccepted(sample))
        self._sink.note_accepted(len(accepted))

    def _look_at(self, sample: Sample) -> None:
        """Stop when samples keep failing for good, whoever fails: models, environments, or the judge."""
        if self._early_stop is None:
            return
        reason = self._early_stop.ended(sample.model, has_failed=not sample.is_scored, models=self._models)
        if reason is not None and not self._stopping.is_set():
            self._stopped_early = True
            self.stop(reason)

    async def _made_durable(self) -> None:
        """Wait for the last samples to be durable, but not for ever: their tasks are open and run again."""
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await self._acceptance.drained()
        except TimeoutError:
            return

    async def _close(self) -> tuple[int, int]:
        journal = self._journal.journal
        if self.plan.requests is not None:
            await self.plan.requests.budgets.leave()
        left = (await self._journal.call(journal.open_count), await self._journal.call(journal.spool_count))
        self._journal.close()
        return left

    def _ended(self, open_tasks: int, spooled: int) -> JudgedResult:
        stopped_by = self._stopped_by or "everything is done"
        stored = self._sink.stored
        self._emit(
            JudgingStopped(
                self.plan.settings.campaign, self.plan.run_id, self._recorded, stored, spooled, open_tasks, stopped_by
            )
        )
        return JudgedResult(
            progress=self.progress(),
            samples=self._recorded,
            scored=self._scored,
            stored=stored,
            spooled=spooled,
            open_tasks=open_tasks,
            stopped_by=stopped_by,
            stopped_early=self._stopped_early,
            agreements=self.plan.figures.agreements(),
        )
