"""The stages of a sample: its episode and, if a judge reads the answer, its judgements and their aggregate."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Final, NoReturn

from headgate.core import (
    NO_SPENDING,
    ErrorKind,
    Sample,
    Task,
    TaskId,
)
from headgate.core.errors import HostLostError
from headgate.core.events import TaskDeferred, TaskReturned, TaskStarted
from headgate.environments import EpisodeResult, converse
from headgate.run.acceptance import Acceptance
from headgate.run.dispatch import AGGREGATE, JUDGE, ROLLOUT
from headgate.run.figures import WorkerFigures
from headgate.run.health import Health
from headgate.run.judgements import Judgements
from headgate.run.judging import Judging
from headgate.run.outside_workers import Executor, TakenBack
from headgate.run.parts import Parts
from headgate.run.plan import ChatSource
from headgate.run.rows import MAX_ATTEMPTS, MODEL_LEFT, Row, failed_result, poison_result, sample_of
from headgate.run.settlement import Settling
from headgate.scheduling import RetryLaterError, RetryRules, RowGroup, TaskFailedError

RETRIES: Final = RetryRules(max_wait_s=60.0)
"""For judgements whose provider admits nothing: they are retried for as long as any storm is likely to last."""

MAX_LOSSES: Final = 4
"""A task that has lost more hosts than this may be what kills them: it is recorded as an environment error."""

_DEFERRABLE: Final = frozenset({ErrorKind.RATE_LIMITED, ErrorKind.DAILY_BUDGET, ErrorKind.ENGINE})

MAX_DEFERRALS: Final = 16
"""A task that was deferred this often and is refused again is recorded as what it is: rate limited."""


class Stages:
    """Does the work of tasks, and tracks how far each sample has come. Owned by the run.

    A sample of an environment that scores answers itself has one stage, the episode. If a judge reads the answer, it
    has three: the rollout, its judgements, and their aggregate, each with its own resources; so a judge that admits
    nothing holds up no rollout, and models that admit nothing hold up no judge. These samples wait here (`pending`)
    until the frontier opens them: at most `max_unjudged` are open, and pending ones take no room in the ready queue.

    A request may wait for admission (a cooldown, an open breaker, others ahead of it) or in back-off. Meanwhile it
    holds no slot of its provider and, after a second, no worker: a provider in a storm of 429s never blocks another's
    work. The dispatcher bounds how many leases are parked, so there are at most twice as many episodes as workers.

    An episode that ends only because its provider admits nothing goes back into the queue; a judgement is retried.
    A failed judgement never counts against the model. A sample becomes durable once; a row that does not get that far
    stays open in the journal, and the next run samples it again from its rollout.

    Attributes:
        figures: how busy the workers are.
        unjudged: answers that are waiting for the judge or being judged.
    """

    def __init__(
        self,
        parts: Parts,
        health: Health,
        acceptance: Acceptance,
        chats: ChatSource,
        judging: Judging | None,
        *,
        outside: Executor | None,
        writable: Callable[[], Awaitable[None]],
        ended: Callable[[Sample], None],
        settling: Settling,
        drop: Callable[[Iterable[Task], str], None],
        discard_put_off: Callable[[Callable[[Task], bool]], list[Task]],
        wake: Callable[[], None],
    ) -> None:
        """Prepare the stages.

        Args:
            parts: of the run.
            health: of the models.
            acceptance: receives each sample, once.
            chats: answers the requests.
            judging: the judge and its rule; None if no answer needs judging.
            outside: hands samples to outside workers; None if everything is played here.
            writable: returns once samples can be made durable.
            ended: called with each sample.
            settling: knows which models are given up; told of tasks that end without a sample although they had begun.
            drop: makes the loop forget ready tasks that were withdrawn.
            discard_put_off: takes tasks that wait for a batch's reply, or for a retry, out of the loop.
            wake: makes the loop check whether a sample can be opened.
        """
        self._parts = parts
        self._health = health
        self._acceptance = acceptance
        self._chats = chats
        self._judging = judging
        self._judgements = Judgements(parts, judging, chats) if judging is not None else None
        self._outside = outside
        self._writable = writable
        self._ended = ended
        self._settling = settling
        self._drop = drop
        self._discard_put_off = discard_put_off
        self.wake = wake
        self._running: dict[TaskId, Row] = {}
        self._places: dict[TaskId, tuple[Row, int]] = {}
        self._pending: dict[str, deque[Task]] = {}
        self._open_rows: Counter[str] = Counter()
        self._ahead: Row | None = None
        self._deferrals, self._losses = Counter[TaskId](), Counter[TaskId]()
        self._waiting: dict[TaskId, bool] = {}
        self.pending = 0
        self._is_full = False
        self.unjudged = 0
        self.figures = WorkerFigures(parts.settings.num_evaluation_workers, parts.now())

    @property
    def rollouts(self) -> int:
        """Episodes in progress."""
        return len(self._running)

    @property
    def tasks(self) -> list[Task]:
        """The journal's tasks of the episodes in progress."""
        return [row.task for row in self._running.values()]

    # Samples with more than one stage.

    def pend(self, task: Task) -> None:
        """Queue a sample until the frontier has room to open it."""
        self._pending.setdefault(task.model, deque()).append(task)
        self.pending += 1
        self.wake()

    def needs_judge(self, task: Task) -> bool:
        """Return whether a judge reads a task's answer."""
        return self._parts.environments[task.environment].spec.needs_judge

    def holds_back(self) -> bool:
        """Return whether so many samples wait to be opened that no more should fall due.

        There is hysteresis: once the limit is reached, this stays true until half of them are gone.
        """
        limit = self._parts.settings.max_unjudged
        self._is_full = self.pending >= (limit + 1) // 2 if self._is_full else self.pending >= limit
        return self._is_full

    def may_fall_due_again(self) -> bool:
        """Return whether samples that `holds_back` stopped may fall due again."""
        return self._is_full and self.pending < (self._parts.settings.max_unjudged + 1) // 2

    def next_rows(self) -> RowGroup | None:
        """Return the next sample for the frontier to open; rows that are not open yet cost nothing.

        It belongs to the model with the fewest open rows by weight: a model whose answers take long to judge holds up
        no other model, however few rows may be open.
        """
        if self._ahead is not None:
            self._ahead.ready_at = self._parts.now()  # the loop fetches one row ahead: that one was opened just now
            self._ahead = None
        judging, samplers = self._judging, self._parts.samplers
        if judging is None or not self._pending:
            return None
        first = self._first_pending()
        if not first:
            return None
        key = min(first, key=lambda key: self._open_rows[key] / samplers[key].model.weight)
        task = first[key]
        self._pending[key].remove(task)
        self.pending -= 1
        if not self._pending[key]:
            del self._pending[key]
        row = self._ahead = Row(task, samplers[key].model, self._parts.now())
        group = row.stages(judging.judge, self._parts.settings.judgements)
        self._open_rows[key] += 1
        row.stage_ids = tuple(stage.task_id for stage in group.tasks)
        for number, task_id in enumerate(row.stage_ids):
            self._places[task_id] = (row, number)
        return group

    def _first_pending(self) -> dict[str, Task]:
        """Return each model's first sample that waits to be opened and is not paused."""
        if not (controls := self._parts.controls).pauses:
            return {key: tasks[0] for key, tasks in self._pending.items()}
        found = {
            key: next((task for task in tasks if not controls.is_aside(task)), None)
            for key, tasks in self._pending.items()
        }
        return {key: task for key, task in found.items() if task is not None}

    def withdraw(self, condition: Callable[[Task], bool]) -> list[Task]:
        """Take out samples that are not opened yet, or open but not begun; return the journal's tasks of them."""
        gone: list[Task] = []
        for key in list(self._pending):
            kept = deque(task for task in self._pending[key] if not condition(task))
            gone += [task for task in self._pending[key] if condition(task)]
            if kept:
                self._pending[key] = kept
            else:
                del self._pending[key]
        self.pending -= len(gone)
        queue, aside = self._parts.dispatcher.queue, self._parts.dispatcher.aside
        for row in self.rows():
            is_ready = not row.started_at or row.stage_ids[0] in queue or row.stage_ids[0] in aside  # it was deferred
            if is_ready and not row.is_withdrawn and condition(row.task):
                row.is_withdrawn = True
                gone.append(row.task)
        gone += self._discard_put_off(condition)
        if self._parts.requests is not None:
            self._parts.requests.forget([task.task_id for task in gone])
        if self._outside is not None:
            self._outside.withdraw("its model has left, or needs no more samples", condition)
        if gone:
            left = {row.stage_ids[0] for row in self.rows() if row.is_withdrawn}
            self._drop(self._parts.dispatcher.discard_where(lambda task: task.task_id in left), "it was withdrawn")
        return gone

    def stage_of(self, task_id: TaskId) -> str:
        """Return which stage a task is: `rollout`, `judge` or `aggregate`; empty if it has ended."""
        place = self._places.get(task_id)
        if place is None:
            return ROLLOUT if task_id in self._running else ""
        row, number = place
        return ROLLOUT if number == 0 else AGGREGATE if number == len(row.stage_ids) - 1 else JUDGE

    def in_progress(self, task_id: TaskId) -> Row | None:
        """Return the row whose episode is this task; None if it is not in progress."""
        return self._running.get(task_id)

    def row_of(self, task_id: TaskId) -> Row | None:
        """Return the multi-stage row that a task belongs to; None if the row has ended."""
        place = self._places.get(task_id)
        return place[0] if place is not None else None

    def rows(self) -> list[Row]:
        """Return the open multi-stage rows, in the order in which they were opened."""
        return list({id(row): row for row, _ in self._places.values()}.values())

    def waiting_tasks(self) -> Iterable[Task]:
        """Return the journal's tasks that the frontier has not opened yet."""
        return (task for tasks in self._pending.values() for task in tasks)

    def trace_of(self, task: Task) -> str:
        """Return the trace id of a task's sample; empty if it has none yet."""
        place = self._places.get(task.task_id)
        row = place[0] if place is not None else self._running.get(task.task_id)
        return row.trace_id if row is not None else ""

    # The work of a task.

    async def work(self, task: Task) -> None:
        """Do the work of a task.

        Raises:
            RetryLaterError: if it could not be done now.
            TaskFailedError: if it failed for good.
        """
        place = self._places.get(task.task_id)
        if place is None:
            parts = self._parts
            ready_at = parts.ready_since.pop(task.task_id, None)
            if (sampler := parts.samplers.get(task.model)) is None:  # its model left after the task was dispatched
                parts.emit(TaskReturned(task.task_id, task.model, task.environment, MODEL_LEFT))
                self._release_budgets(task)
                await self._taken_out(task, MODEL_LEFT)
            row = Row(task, sampler.model, parts.now() if ready_at is None else ready_at)
            if self._outside is not None and task.environment in parts.outside:
                await self._hand_over(row, task, self._outside)
            else:
                await self._rollout(row, task)
        elif task.stage == ROLLOUT:
            await self._rollout(place[0], task)
        elif task.stage != AGGREGATE:
            await self._judge(place[0], task, place[1])
        else:
            self._aggregate(place[0])
            self._leave(place[0])

    async def _may_begin(self, row: Row) -> float:
        """Wait until samples can be made durable; return the time, at which the row's work begins."""
        parts = self._parts
        if parts.journal.problem:
            await self._writable()
        if parts.stopping.is_set() or row.is_withdrawn:
            raise TaskFailedError("its sample is not taken by this run")
        row.started_at = parts.now()
        row.queue_wait_s = max(0.0, row.started_at - row.ready_at)
        return row.started_at

    async def _rollout(self, row: Row, task: Task) -> None:
        parts = self._parts
        started_at = await self._may_begin(row)
        self._note_begun(row, task)
        try:
            if row.task.attempt > MAX_ATTEMPTS:
                result = poison_result(row.task)
            else:
                chat = self._chats.chat(row.model, task, parts.emit, trace_id=row.trace_id)
                environment = parts.environments[task.environment]
                try:
                    result = await converse(environment, task.index, task.seed, chat, model=task.model)
                except HostLostError as lost:
                    result = await self._without_host(row, task, lost)
            row.latency_s = parts.now() - started_at
            result = self._with_true_cause(task, result)
        except asyncio.CancelledError:
            parts.emit(TaskReturned(row.task.task_id, task.model, task.environment, "the campaign is stopping"))
            raise
        except RetryLaterError as later:
            self._note_in_batch(row, task, later)
            raise
        finally:
            self._note_ended(row, task)
        if result.questions and row.stage_ids:
            row.result = result
            self.unjudged += 1
        elif self._may_defer(row, task, result):
            await self._defer(row, task, result.error or "its provider admits nothing now")
        else:
            self._record(row, result)
        # Hold or free the model before releasing its worker: no task may go to a service that was just found down.
        if self._health.observe(task.model, result.error_kind, result.error, started_at, parts.now()):
            await self._health.remember(task.model)
        if row.is_recorded and row.stage_ids and result.score is None:
            raise TaskFailedError(result.error or "the episode failed")

    def _note_in_batch(self, row: Row, task: Task, later: RetryLaterError) -> None:
        """Note that a stage waits, if it does for its request in a batch: no death of the process counts against it."""
        if later.is_held is not None:
            self._acceptance.note_rested(row.task.task_id)
            self._parts.emit(TaskDeferred(row.task.task_id, task.model, task.environment, later.reason, 0))

    async def _without_host(self, row: Row, task: Task, lost: HostLostError) -> EpisodeResult:
        """Return the result of an episode that has lost too many hosts.

        Raises:
            RetryLaterError: if it has lost fewer: the task waits for another host.
        """
        self._losses[row.task.task_id] += 1
        if self._losses[row.task.task_id] <= MAX_LOSSES:
            await self._defer(row, task, lost.message)
        return failed_result(lost.message)

    def _note_begun(self, row: Row, task: Task) -> None:
        parts, at = self._parts, row.started_at
        self._running[task.task_id] = row
        parts.dequeued_recently.add(at)
        self.figures.started(at)
        self._acceptance.note_started(row.task.task_id)
        if parts.requests is not None:
            is_paid = parts.requests.batches is not None and parts.requests.batches.is_answered(task.task_id)
            parts.requests.budgets.begin(task.task_id, task.model, NO_SPENDING if is_paid else None)
        lease = parts.dispatcher.lease_of(task.task_id)
        about = (row.task.task_id, task.model, task.environment, row.queue_wait_s, row.trace_id)
        parts.emit(TaskStarted(*about, lease.lease_id if lease is not None else "", row.task.attempt))

    def _note_ended(self, row: Row, task: Task) -> None:
        parts, now, key = self._parts, self._parts.now(), task.task_id
        del self._running[key]
        if self._waiting.pop(key, False) and (lease := parts.dispatcher.lease_of(key)) is not None:
            parts.dispatcher.unpark(lease, now)
            self.figures.unparked(now)
        self.figures.ended(now, now - row.started_at)
        self._release_budgets(task)

    def _release_budgets(self, task: Task) -> None:
        """Release what a task reserved of its model's budgets, and settle a model that has left with its last task."""
        requests = self._parts.requests
        if requests is not None:
            requests.budgets.ended(task.task_id)
            # This task's own lease is the model's last one.
            if requests.is_settling and self._parts.dispatcher.in_flight(task.model) <= 1:
                requests.settle(task.model)

    async def _hand_over(self, row: Row, task: Task, outside: Executor) -> None:
        """Hand a sample to outside workers; while it waits for them it holds no worker of this process."""
        parts = self._parts
        budgets = None if parts.requests is None else parts.requests.budgets
        started_at = await self._may_begin(row)
        self._running[task.task_id] = row
        parts.dequeued_recently.add(started_at)
        if budgets is not None:
            budgets.begin(task.task_id, task.model)
        about = (task.task_id, task.model, task.environment)
        parts.emit(TaskStarted(*about, row.queue_wait_s, row.trace_id, "", task.attempt))
        try:
            sample = await outside.sample(row)
            if isinstance(sample, TakenBack):
                parts.emit(TaskReturned(*about, sample.reason))
                await self._taken_back(row, sample)
            if budgets is not None:
                sample, spent = budgets.priced(row.model, sample)
                if (account := budgets.account(row.model)).is_counted:
                    budgets.settle(task.task_id, account, spent)
        except asyncio.CancelledError:
            parts.emit(TaskReturned(*about, "the campaign is stopping"))
            raise
        finally:
            del self._running[task.task_id]
            self._release_budgets(task)
        self._acceptance.add(sample)
        self._ended(sample)
        kind = sample.error_kind and ErrorKind(sample.error_kind)
        if self._health.observe(task.model, kind or None, sample.error, started_at, parts.now()):
            await self._health.remember(task.model)

    async def _taken_back(self, row: Row, taken: TakenBack) -> NoReturn:
        """Postpone a sample whose job was taken back, or withdraw it from the run.

        Raises:
            RetryLaterError: if it will be handed over again.
            TaskFailedError: if not. A stopping run leaves it to the next one.
        """
        parts, task = self._parts, row.task
        if parts.stopping.is_set():
            raise TaskFailedError(taken.reason)
        if taken.wait_s is None or task.model in self._settling.given_up:
            await self._taken_out(task, taken.reason)
        parts.ready_since[task.task_id] = parts.now()
        raise RetryLaterError(taken.reason, taken.wait_s, is_failure=False)

    async def _taken_out(self, task: Task, reason: str) -> NoReturn:
        """Withdraw a task that was already dispatched; no run takes it up again.

        Raises:
            TaskFailedError: always.
        """
        self._settling.withdrawn((task,))
        await self._parts.journal.write(self._parts.journal.journal.withdraw, [task.task_id])
        raise TaskFailedError(reason)

    # Episodes that wait for their provider.

    def idle(self, task_id: str) -> None:
        """Lend out the worker of a task whose request waits."""
        key, parts = TaskId(task_id), self._parts
        if key in self._waiting:
            return
        lease, now = parts.dispatcher.lease_of(key), parts.now()
        if lease is None:
            return
        self._waiting[key] = is_parked = key in self._running and parts.dispatcher.park(lease, now)
        if is_parked:
            self.figures.parked(now)

    def busy(self, task_id: str) -> None:
        """Give a task its worker back when its request resumes."""
        key, parts = TaskId(task_id), self._parts
        lease = parts.dispatcher.lease_of(key)
        if self._waiting.pop(key, False) and lease is not None:
            now = parts.now()
            parts.dispatcher.unpark(lease, now)
            self.figures.unparked(now)

    def _with_true_cause(self, task: Task, result: EpisodeResult) -> EpisodeResult:
        """Return the result with the true cause if an episode timed out while its request waited for admission.

        Such a request was never sent, so its provider was not too slow.
        """
        if result.error_kind is not ErrorKind.PROVIDER_TIMEOUT or task.task_id not in self._waiting:
            return result
        error = f"{result.error}: its request was waiting for admission"
        return replace(result, error_kind=ErrorKind.RATE_LIMITED, error=error)

    def _may_defer(self, row: Row, task: Task, result: EpisodeResult) -> bool:
        """Return whether to run the task again instead of recording it, because only limits prevented its answer.

        These are the provider's limits, the model's 24 h budget, or the removal of its engine; the latter two stop
        the model, so that the task waits. An engine that died on its own may have died because of this very task.
        """
        requests = self._parts.requests
        if requests is None or result.error_kind not in _DEFERRABLE:
            return False
        if result.error_kind is ErrorKind.DAILY_BUDGET:
            if requests.budgets.is_hopeless(task.task_id):
                return False
            if not result.attempts:
                return True  # nothing was sent yet: deferring it costs nothing
        engines = requests.engines
        if result.error_kind is ErrorKind.ENGINE and engines is not None and not engines.has_failed(task.model):
            return True
        self._deferrals[row.task.task_id] += 1
        return self._deferrals[row.task.task_id] <= MAX_DEFERRALS

    async def _defer(self, row: Row, task: Task, reason: str) -> NoReturn:
        """Put a task whose provider admits nothing now, or whose host is lost, back into the queue.

        Raises:
            RetryLaterError: always, unless its model has left or the run is stopping: then it stays in the journal. A
                task of a model that was given up meanwhile is taken out, since it would wait forever.
        """
        parts = self._parts
        about = (row.task.task_id, task.model, task.environment, reason)
        if parts.stopping.is_set() or task.model not in parts.samplers:
            parts.emit(TaskReturned(*about))
            raise TaskFailedError(reason)
        if task.model in self._settling.given_up:
            parts.emit(TaskReturned(*about))
            await self._taken_out(row.task, reason)
        parts.emit(TaskDeferred(*about, self._deferrals[row.task.task_id] + self._losses[row.task.task_id]))
        self._acceptance.note_rested(row.task.task_id)  # no death of the process counts against it meanwhile
        row.ready_at = parts.now()
        if not row.stage_ids:
            parts.ready_since[task.task_id] = row.ready_at
        raise RetryLaterError(reason, 0.0, is_failure=False)

    async def _judge(self, row: Row, task: Task, number: int) -> None:
        if row.is_recorded or row.result is None or self._judgements is None:
            return  # the environment scored the answer itself
        try:
            await self._judgements.ask(row, task, number)
        except RetryLaterError as later:
            self._note_in_batch(row, task, later)
            raise
        finally:
            self._waiting.pop(task.task_id, None)

    def _aggregate(self, row: Row) -> None:
        if row.is_recorded or row.result is None or self._judgements is None:
            return
        self.unjudged -= 1
        self._record(row, self._judgements.verdict(row, row.result))

    # The end of a sample.

    def _record(self, row: Row, result: EpisodeResult) -> None:
        row.is_recorded = True
        del self._deferrals[row.task.task_id], self._losses[row.task.task_id]
        sample = sample_of(
            row.task,
            result,
            started_at=row.started_at,
            latency_s=row.latency_s,
            queue_wait_s=row.queue_wait_s,
            trace_id=row.trace_id,
            keep_conversation=self._parts.settings.keep_conversations,
            judge_costs=row.judge_costs,
        )
        if row.stage_ids:
            sample = replace(sample, finished_at=self._parts.now())
        self._acceptance.add(sample)
        self._ended(sample)

    def _leave(self, row: Row) -> None:
        """Forget a row that has ended."""
        self._open_rows[row.model.key] -= 1
        for task_id in row.stage_ids:
            del self._places[task_id]
