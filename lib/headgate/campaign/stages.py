"""The stages of a sample: its episode, and where a judge reads the answer its judgements and their aggregate."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from headgate.campaign.acceptance import Acceptance
from headgate.campaign.dispatching import AGGREGATE, JUDGE, JUDGE_CALLS, LOCAL, LOCAL_LANE, ROLLOUT, WORKERS
from headgate.campaign.figures import WorkerFigures
from headgate.campaign.health import Health
from headgate.campaign.judging import Judging, Verdicts
from headgate.campaign.parts import Parts
from headgate.campaign.plan import ChatSource
from headgate.campaign.samples import MAX_ATTEMPTS, poison_result, sample_of
from headgate.core import (
    ChatError,
    ErrorKind,
    Message,
    Model,
    Sample,
    Task,
    TaskId,
    new_trace_id,
    redacted,
    task_id_of,
)
from headgate.core.errors import EnvironmentFailedError
from headgate.core.events import AnswerJudged, JudgementMissing, TaskDeferred, TaskReturned, TaskStarted
from headgate.environments import EpisodeResult, JudgedEnvironment, Judgement, converse
from headgate.scheduling import RetryLaterError, RetryRules, RowGroup, TaskFailedError

RETRIES: Final = RetryRules(max_wait_s=60.0)
"""Of judgements whose provider admits nothing: they are tried again for as long as any storm is likely to last."""

MAX_DEFERRALS: Final = 16
"""A task whose provider admitted it in none of so many runs is recorded as what it is: rate limited."""

_SHOWN_CHARS: Final = 2_000
"""How much of a reply that could not be read its judge is shown again."""

_ROLLOUT_NEEDS: Final[Mapping[str, int]] = MappingProxyType({WORKERS: 1})
_JUDGE_NEEDS: Final[Mapping[str, int]] = MappingProxyType({JUDGE_CALLS: 1})
_LOCAL_NEEDS: Final[Mapping[str, int]] = MappingProxyType({LOCAL: 1})


@dataclass(slots=True)
class Row:
    """One sample on its way. Owned by the run; gone once it is recorded.

    Attributes:
        task: as the journal opened it; its sample has its identity.
        model: that answers.
        trace_id: on all events of the sample.
        ready_at: when its rollout was queued, in the run's time.
        started_at: when its rollout began.
        latency_s: how long its rollout took.
        queue_wait_s: how long its rollout waited for a worker.
        result: of the rollout; without one the row was given back, and is taken again by the next run.
        judgements: by number, those that could be read.
        problems: by number, why there is none, or none yet.
        fault: what the environment did wrong with a judge's reply.
        asked_again: numbers of judgements whose first reply could not be read.
        is_recorded: whether its sample was handed to the journal.
        is_withdrawn: whether it may not begin any more.
        stage_ids: its tasks, in the order of its stages; none where the journal's own task is the only one.
    """

    task: Task
    model: Model
    ready_at: float
    trace_id: str = field(default_factory=new_trace_id)
    started_at: float = 0.0
    latency_s: float = 0.0
    queue_wait_s: float = 0.0
    result: EpisodeResult | None = None
    judgements: dict[int, Judgement] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)
    fault: str | None = None
    asked_again: set[int] = field(default_factory=set)
    is_recorded: bool = False
    is_withdrawn: bool = False
    stage_ids: tuple[TaskId, ...] = ()

    def stages(self, judge: Model, judgements: int) -> RowGroup:
        """Return all stages of a judged row; the aggregate is the journal's own task."""
        rollout = replace(self.task, task_id=self._id(ROLLOUT), stage=ROLLOUT, resources=_ROLLOUT_NEEDS, depends_on=())
        judged = [
            replace(
                self.task,
                task_id=self._id(f"{JUDGE}.{number}"),
                stage=f"{JUDGE}.{number}",
                model=judge.key,
                resources=_JUDGE_NEEDS,
                depends_on=(rollout.task_id,),
            )
            for number in range(1, judgements + 1)
        ]
        aggregate = replace(
            self.task,
            stage=AGGREGATE,
            model=LOCAL_LANE,
            resources=_LOCAL_NEEDS,
            depends_on=(rollout.task_id, *(task.task_id for task in judged)),
        )
        return RowGroup(self.task.task_id, (rollout, *judged, aggregate))

    def _id(self, stage: str) -> TaskId:
        task = self.task
        return task_id_of(task.model, task.environment, task.sequence, f"{task.stage}/{stage}", task.campaign)


class Stages:
    """Does the work of tasks, and knows how far each sample has come. Owned by the run.

    A sample of an environment that scores answers itself has one stage, the episode. Where a judge reads the answer it
    has three: the rollout, its judgements, and their aggregate, each with resources of its own; so a judge that admits
    nothing holds no rollout up, and models that admit nothing no judge. These samples wait here (`pending`) until the
    frontier opens them: no more than `max_unjudged` are open, and what waits counts against no other sample's queue.

    A request waits for admission (a cooldown, an open breaker, others ahead of it) or in back-off. It holds no slot of
    its provider then, and after a second no worker either: a provider in a storm of 429s never idles another one's
    work. The dispatcher bounds how many leases are parked, so at most twice as many episodes exist as workers.

    An episode that ends only because its provider admits nothing goes back into the queue; a judgement is tried again.
    Nothing here holds a failed judgement against the model. A sample becomes durable once; a row that does not come
    that far is open in the journal, and is taken again from its rollout by the next run.

    Attributes:
        figures: how busy the workers are.
        rollouts: in progress.
        unjudged: answers that wait for the judge, or are with it.
    """

    def __init__(
        self,
        parts: Parts,
        health: Health,
        acceptance: Acceptance,
        chats: ChatSource,
        judging: Judging | None,
        *,
        writable: Callable[[], Awaitable[None]],
        ended: Callable[[Sample], None],
        drop: Callable[[Iterable[Task], str], None],
        wake: Callable[[], None],
    ) -> None:
        """Prepare the stages.

        Args:
            parts: of the run.
            health: of the models.
            acceptance: takes each sample, once.
            chats: who answers.
            judging: who judges; None where no answer needs it.
            writable: returns once samples can be made durable.
            ended: told of each sample.
            drop: has the loop forget ready tasks that were withdrawn.
            wake: has the loop look whether a sample can be opened.
        """
        self._parts = parts
        self._health = health
        self._acceptance = acceptance
        self._chats = chats
        self._judging = judging
        self._writable = writable
        self._ended = ended
        self._drop = drop
        self._wake = wake
        self._running: dict[TaskId, Row] = {}
        self._places: dict[TaskId, tuple[Row, int]] = {}
        self._pending: dict[str, deque[Task]] = {}
        self._open_rows: Counter[str] = Counter()
        self._ahead: Row | None = None
        self._deferrals: dict[TaskId, int] = {}
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
        """Have a sample opened when the frontier has room for it."""
        self._pending.setdefault(task.model, deque()).append(task)
        self.pending += 1
        self._wake()

    def needs_judge(self, task: Task) -> bool:
        """Return whether a judge reads a task's answer."""
        return self._parts.environments[task.environment].spec.needs_judge

    def holds_back(self) -> bool:
        """Return whether so many samples wait to be opened that no further one shall fall due.

        Once that is so it stays so until half of them are gone, so that nobody is told twice a second.
        """
        limit = self._parts.settings.max_unjudged
        self._is_full = self.pending >= (limit + 1) // 2 if self._is_full else self.pending >= limit
        return self._is_full

    def may_fall_due_again(self) -> bool:
        """Return whether what was held back (`holds_back`) need not be any longer."""
        return self._is_full and self.pending < (self._parts.settings.max_unjudged + 1) // 2

    def next_rows(self) -> RowGroup | None:
        """Return the next sample for the frontier to open; rows that are not open yet cost nothing.

        It is of the model with the fewest open rows by weight: answers that are long in judging hold up no other
        model's, however few rows may be open.
        """
        if self._ahead is not None:
            self._ahead.ready_at = self._parts.now()  # the loop looks one ahead: that one was opened just now
            self._ahead = None
        judging, samplers = self._judging, self._parts.samplers
        if judging is None or not self._pending:
            return None
        key = min(self._pending, key=lambda key: self._open_rows[key] / samplers[key].model.weight)
        task = self._pending[key].popleft()
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

    def withdraw(self, condition: Callable[[Task], bool]) -> list[Task]:
        """Take samples out that wait to be opened, or are open and have not begun; return the journal's tasks."""
        gone: list[Task] = []
        for key in list(self._pending):
            kept = deque(task for task in self._pending[key] if not condition(task))
            gone += [task for task in self._pending[key] if condition(task)]
            if kept:
                self._pending[key] = kept
            else:
                del self._pending[key]
        self.pending -= len(gone)
        for row in self.rows():
            if not row.started_at and not row.is_withdrawn and condition(row.task):
                row.is_withdrawn = True
                gone.append(row.task)
        if gone:
            left = {row.stage_ids[0] for row in self.rows() if row.is_withdrawn}
            self._drop(self._parts.dispatcher.discard_where(lambda task: task.task_id in left), "it was withdrawn")
        return gone

    def stage_of(self, task_id: TaskId) -> str:
        """Return which stage a task is: `rollout`, `judge` or `aggregate`; empty for one that has come to its end."""
        place = self._places.get(task_id)
        if place is None:
            return ROLLOUT if task_id in self._running else ""
        row, number = place
        return ROLLOUT if number == 0 else AGGREGATE if number == len(row.stage_ids) - 1 else JUDGE

    def in_progress(self, task_id: TaskId) -> Row | None:
        """Return the row whose episode a task in progress is."""
        return self._running.get(task_id)

    def row_of(self, task_id: TaskId) -> Row | None:
        """Return the row of several stages that a task is of; None for one that has come to its end."""
        place = self._places.get(task_id)
        return place[0] if place is not None else None

    def rows(self) -> list[Row]:
        """Return the rows of several stages that are open, those that were opened first first."""
        return list({id(row): row for row, _ in self._places.values()}.values())

    def waiting_tasks(self) -> Iterable[Task]:
        """Return the journal's tasks that the frontier has not opened yet."""
        return (task for tasks in self._pending.values() for task in tasks)

    def trace_of(self, task: Task) -> str:
        """Return the trace id of a task's sample, where it has one already."""
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
            row = Row(task, parts.samplers[task.model].model, parts.now() if ready_at is None else ready_at)
            await self._rollout(row, task)
        elif task.stage == ROLLOUT:
            await self._rollout(place[0], task)
        elif task.stage != AGGREGATE:
            await self._judge(place[0], task, place[1])
        else:
            self._aggregate(place[0])
            self._leave(place[0])

    async def _rollout(self, row: Row, task: Task) -> None:
        parts = self._parts
        if parts.journal.is_blocked:
            await self._writable()
        if parts.stopping.is_set() or row.is_withdrawn:
            raise TaskFailedError("its sample is not taken by this run")
        row.started_at = started_at = parts.now()
        row.queue_wait_s = max(0.0, started_at - row.ready_at)
        self._begun(row, task)
        try:
            result = await self._episode(row, task)
            row.latency_s = parts.now() - started_at
            result = self._explained(task, result)
        except asyncio.CancelledError:
            parts.emit(TaskReturned(row.task.task_id, task.model, task.environment, "the campaign is stopping"))
            raise
        finally:
            self._over(row, task)
        if result.questions and row.stage_ids:
            row.result = result
            self.unjudged += 1
            await self._observed(row, result)
        elif self._may_defer(task, result):
            self._defer(row, task, result)
        else:
            self._record(row, result)
            await self._observed(row, result)
            if row.stage_ids and result.score is None:
                raise TaskFailedError(result.error or "the episode failed")

    def _begun(self, row: Row, task: Task) -> None:
        parts, at = self._parts, row.started_at
        self._running[task.task_id] = row
        parts.dequeued_recently.add(at)
        self.figures.started(at)
        self._acceptance.note_started(row.task.task_id)
        if parts.requests is not None:
            parts.requests.budgets.begin(task.task_id, task.model)
        lease = parts.dispatcher.lease_of(task.task_id)
        about = (row.task.task_id, task.model, task.environment, row.queue_wait_s, row.trace_id)
        parts.emit(TaskStarted(*about, lease.lease_id if lease is not None else "", row.task.attempt))

    async def _episode(self, row: Row, task: Task) -> EpisodeResult:
        if row.task.attempt > MAX_ATTEMPTS:
            return poison_result(row.task)
        chat = self._chats.chat(row.model, task, self._parts.emit, trace_id=row.trace_id)
        environment = self._parts.environments[task.environment]
        return await converse(environment, task.index, task.seed, chat, model=task.model)

    def _over(self, row: Row, task: Task) -> None:
        parts, now, key = self._parts, self._parts.now(), task.task_id
        del self._running[key]
        if self._waiting.pop(key, False) and (lease := parts.dispatcher.lease_of(key)) is not None:
            parts.dispatcher.unpark(lease, now)
            self.figures.unparked(now)
        self.figures.ended(now, now - row.started_at)
        requests = parts.requests
        if requests is not None:
            requests.budgets.ended(key)
            # Its own lease is the last one of the model: what the model has left is withdrawn with it.
            if requests.is_settling and parts.dispatcher.in_flight(task.model) <= 1:
                requests.settle(task.model)

    async def _observed(self, row: Row, result: EpisodeResult) -> None:
        """Have the model held or freed before its worker is given away: no task goes to a service just found down."""
        kind, now = result.error_kind, self._parts.now()
        if self._health.observe(row.model.key, kind, result.error, row.started_at, now):
            await self._health.remember(row.model.key)

    # Episodes that wait for their provider.

    def idle(self, task_id: str) -> None:
        """Lend the worker of a task whose request waits."""
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
        """Give a task whose request goes on its worker back."""
        key, parts = TaskId(task_id), self._parts
        lease = parts.dispatcher.lease_of(key)
        if self._waiting.pop(key, False) and lease is not None:
            now = parts.now()
            parts.dispatcher.unpark(lease, now)
            self.figures.unparked(now)

    def _explained(self, task: Task, result: EpisodeResult) -> EpisodeResult:
        """Return the result with the true reason of an episode whose time was over while its request waited.

        Such a request was not sent at all: its provider was given no time to be late.
        """
        if result.error_kind is not ErrorKind.PROVIDER_TIMEOUT or task.task_id not in self._waiting:
            return result
        error = f"{result.error}: its request was waiting for admission"
        return replace(result, error_kind=ErrorKind.RATE_LIMITED, error=error)

    def _may_defer(self, task: Task, result: EpisodeResult) -> bool:
        """Return whether the task runs again in place of being recorded: only limits kept its answer.

        Those are the provider's, or the model's budget of 24 h; the latter stopped the model, so that the task waits.
        """
        requests = self._parts.requests
        if requests is None or result.error_kind not in (ErrorKind.RATE_LIMITED, ErrorKind.DAILY_BUDGET):
            self._deferrals.pop(task.task_id, None)
            return False
        if result.error_kind is ErrorKind.DAILY_BUDGET:
            if requests.budgets.is_hopeless(task.task_id):
                return False
            if not result.attempts:
                return True  # nothing was sent yet: putting it off has cost nothing
        count = self._deferrals.get(task.task_id, 0) + 1
        if count > MAX_DEFERRALS:
            del self._deferrals[task.task_id]
            return False
        self._deferrals[task.task_id] = count
        return True

    def _defer(self, row: Row, task: Task, result: EpisodeResult) -> None:
        """Put a task back into the queue whose provider admits nothing now.

        Raises:
            RetryLaterError: always, unless its model has left or the run is stopping: then it stays in the journal.
        """
        parts = self._parts
        reason = result.error or "its provider admits nothing now"
        about = (row.task.task_id, task.model, task.environment, reason)
        if parts.stopping.is_set() or task.model not in parts.samplers:
            parts.emit(TaskReturned(*about))
            raise TaskFailedError(reason)
        parts.emit(TaskDeferred(*about, self._deferrals.get(task.task_id, 0)))
        row.ready_at = parts.now()
        if not row.stage_ids:
            parts.ready_since[task.task_id] = row.ready_at
        raise RetryLaterError(reason, 0.0, is_failure=False)

    # The judge.

    async def _judge(self, row: Row, task: Task, number: int) -> None:
        if row.is_recorded or row.result is None:
            return  # the environment knew the score
        questions = row.result.questions
        question = questions[(number - 1) % len(questions)]
        judging = self._judging
        assert judging is not None, "only a run with a judge has stages that ask it"
        if await self._asked(row, task, number, question, judging):
            return
        reason = row.problems[number]
        about = (row.task.task_id, row.task.model, row.task.environment, judging.judge.key, number)
        self._parts.emit(JudgementMissing(*about, reason, row.trace_id))
        raise TaskFailedError(f"judgement {number} is missing: {reason}")

    async def _asked(self, row: Row, task: Task, number: int, question: tuple[Message, ...], judging: Judging) -> bool:
        """Ask for a judgement, once more when the first reply cannot be read; return whether there is one."""
        chat = self._chats.chat(judging.judge, task, self._parts.emit, trace_id=row.trace_id)
        while True:
            try:
                reply = await chat(question)
            except ChatError as error:
                row.problems[number] = str(error)
                requests = self._parts.requests
                if (
                    error.kind is ErrorKind.DAILY_BUDGET
                    and requests is not None
                    and not requests.budgets.is_hopeless(task.task_id)
                ):
                    raise RetryLaterError(str(error), is_failure=False) from error
                if error.kind is ErrorKind.RATE_LIMITED:
                    raise RetryLaterError(str(error), self._cooldown_s(judging.judge.key)) from error
                return False
            finally:
                self._waiting.pop(task.task_id, None)
            if self._read(row, number, reply.text, reply.prompt_tokens, reply.completion_tokens, judging):
                return True
            if number in row.asked_again:
                return False
            row.asked_again.add(number)
            reminder = Message("user", judging.verdicts.reminder)
            question = (*question, Message("assistant", _sendable(reply.text)), reminder)

    def _read(
        self, row: Row, number: int, text: str, prompt_tokens: int, completion_tokens: int, judging: Judging
    ) -> bool:
        """Keep what a reply says; return whether it says anything."""
        task = row.task
        try:
            judgement = judging.verdicts.read(self._environment(task), number, text)
        except EnvironmentFailedError as error:
            row.problems[number] = row.fault = error.message
            return False
        if judgement is None:
            row.problems[number] = f"its reply holds no verdict: {' '.join(text.split())[:120]!r}"
            return False
        row.judgements[number] = judgement
        row.problems.pop(number, None)
        about = (task.task_id, task.model, task.environment, judging.judge.key, number, judgement.value)
        self._parts.emit(AnswerJudged(*about, prompt_tokens, completion_tokens, row.trace_id))
        return True

    def _environment(self, task: Task) -> JudgedEnvironment:
        found = self._parts.environments[task.environment]
        assert isinstance(found, JudgedEnvironment), f"{task.environment} asks a judge, and reads no reply"
        return found

    def _cooldown_s(self, model: str) -> float | None:
        """Return how long a model's endpoint admits nothing, None when that is not known."""
        requests = self._parts.requests
        pressure = requests.pressure(model) if requests is not None else None
        if pressure is None or pressure.until is None:
            return None
        return max(0.0, pressure.until - self._parts.clock.monotonic())

    # The aggregate.

    def _aggregate(self, row: Row) -> None:
        result, judging = row.result, self._judging
        if row.is_recorded or result is None or judging is None:
            return
        self.unjudged -= 1
        self._record(row, self._verdict(row, result, judging.verdicts))

    def _verdict(self, row: Row, result: EpisodeResult, verdicts: Verdicts) -> EpisodeResult:
        """Return a rollout's result with the score that its judgements make, or with why there is none."""
        asked = self._parts.settings.judgements
        environment = self._environment(row.task)
        if not row.judgements and row.fault is not None:
            return replace(result, error_kind=ErrorKind.ENVIRONMENT, error=redacted(row.fault))
        try:
            score = verdicts.score(environment, row.judgements, asked) if row.judgements else None
        except EnvironmentFailedError as error:
            return replace(result, error_kind=ErrorKind.ENVIRONMENT, error=redacted(error.message))
        if score is None:
            reason = next(iter(row.problems.values()), "no judge was asked")
            read = len(row.judgements)
            count = "no judgement" if asked == 1 else f"{read or 'none'} of {asked} judgements"
            only = "only " if read else ""
            return replace(result, error_kind=ErrorKind.JUDGE, error=redacted(f"{only}{count} can be read: {reason}"))
        messages = (*result.messages, *(_said(number, row.judgements[number]) for number in sorted(row.judgements)))
        why = redacted(score.why)
        return replace(result, score=float(score.value), success=score.success, why=why, messages=messages)

    # The end of a sample.

    def _record(self, row: Row, result: EpisodeResult) -> None:
        row.is_recorded = True
        sample = sample_of(
            row.task,
            result,
            started_at=row.started_at,
            latency_s=row.latency_s,
            queue_wait_s=row.queue_wait_s,
            trace_id=row.trace_id,
            keep_conversation=self._parts.settings.keep_conversations,
        )
        if row.stage_ids:
            sample = replace(sample, finished_at=self._parts.now())
        self._acceptance.add(sample)
        self._ended(sample)

    def _leave(self, row: Row) -> None:
        """Forget a row that has come to its end."""
        self._open_rows[row.model.key] -= 1
        for task_id in row.stage_ids:
            del self._places[task_id]
            self._deferrals.pop(task_id, None)


def _said(number: int, judgement: Judgement) -> Message:
    """Return a judgement as the last words of the stored conversation."""
    return Message("system", redacted(f"Judgement {number}: {judgement.value:.4g}. {judgement.why}".rstrip()))


def _sendable(reply: str) -> str:
    """Return a reply that could not be read as its judge is shown it again: some text, which can be sent."""
    return reply[:_SHOWN_CHARS].encode("utf-8", "replace").decode() or "-"
