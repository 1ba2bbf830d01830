"""The work of each stage: an episode, a judge's reply, and the sample that becomes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from headgate.campaign.judged.plan import JudgedPlan
from headgate.campaign.judged.rows import AGGREGATE, JUDGE, ROLLOUT, Row
from headgate.campaign.samples import MAX_ATTEMPTS, poison_result, sample_of
from headgate.core import ChatError, ErrorKind, Message, Sample, Task, TaskId, redacted
from headgate.core.errors import EnvironmentFailedError
from headgate.core.events import AnswerJudged, Emit, JudgementMissing, TaskStarted
from headgate.environments import EpisodeResult, Judgement, converse
from headgate.scheduling import RetryLaterError, RetryRules, TaskFailedError

RETRIES: Final = RetryRules(max_wait_s=60.0)
"""Of stages whose provider admits nothing: they are tried again for as long as any storm is likely to last."""


class Stages:
    """Does the work of tasks. Owned by the run.

    A stage that its provider does not admit ends in `RetryLaterError`: the loop runs it again, and the row keeps what
    it has. A stage that fails for good ends in `TaskFailedError`: the judgements of a failed rollout are dropped, the
    aggregate runs all the same. Nothing here holds a failed judgement against the model.

    Attributes:
        is_stopping: set when no further rollout may begin; those that were queued are given back.
        idle_tasks: tasks whose request waits for admission.
        open_rows: rows that have not come to their end, by model.
    """

    def __init__(
        self,
        plan: JudgedPlan,
        *,
        now: Callable[[], float],
        monotonic: Callable[[], float],
        emit: Emit,
        writable: Callable[[], Awaitable[None]],
        started: Callable[[str], None],
        record: Callable[[Sample], None],
    ) -> None:
        """Prepare the stages.

        Args:
            plan: of the run.
            now: the run's time.
            monotonic: the time of admission.
            emit: where events go.
            writable: returns once samples can be made durable.
            started: told the journal's task of each rollout that begins.
            record: given each sample, once.
        """
        self._plan = plan
        self._now = now
        self._monotonic = monotonic
        self._emit = emit
        self._writable = writable
        self._started = started
        self._record_sample = record
        self._places: dict[TaskId, tuple[Row, int]] = {}
        self.is_stopping = False
        self.idle_tasks: set[TaskId] = set()
        self.open_rows: Counter[str] = Counter()
        self.rollouts = 0
        self.unjudged = 0

    def add(self, row: Row, tasks: tuple[Task, ...]) -> None:
        """Take a row in, whose tasks are to come: rollout, judgements in their order, aggregate."""
        self.open_rows[row.model.key] += 1
        row.stage_ids = tuple(task.task_id for task in tasks)
        for number, task_id in enumerate(row.stage_ids):
            self._places[task_id] = (row, number)

    def stage_of(self, task_id: TaskId) -> str:
        """Return which stage a task is: `rollout`, `judge` or `aggregate`; empty for one that has come to its end."""
        place = self._places.get(task_id)
        if place is None:
            return ""
        row, number = place
        return ROLLOUT if number == 0 else AGGREGATE if number == len(row.stage_ids) - 1 else JUDGE

    def row_of(self, task_id: TaskId) -> Row | None:
        """Return the row that a task is of; None for one that has come to its end."""
        place = self._places.get(task_id)
        return place[0] if place is not None else None

    def rows(self) -> list[Row]:
        """Return the rows that are open, those that were opened first first."""
        return list({id(row): row for row, _ in self._places.values()}.values())

    def trace_of(self, task: Task) -> str:
        """Return the trace id of a task's sample."""
        place = self._places.get(task.task_id)
        return place[0].trace_id if place is not None else ""

    async def work(self, task: Task) -> None:
        """Do the work of a task.

        Raises:
            RetryLaterError: if it could not be done now.
            TaskFailedError: if it failed for good.
        """
        row, number = self._places[task.task_id]
        if task.stage == ROLLOUT:
            await self._rollout(row, task)
        elif task.stage != AGGREGATE:
            await self._judge(row, task, number)
        else:
            self._aggregate(row)
            self._leave(row)

    # The rollout.

    async def _rollout(self, row: Row, task: Task) -> None:
        row.result = None
        await self._writable()
        if self.is_stopping:
            raise TaskFailedError("the run is stopping; its sample is taken by the next one")
        row.started_at = self._now()
        row.queue_wait_s = max(0.0, row.started_at - row.ready_at)
        self._started(row.task.task_id)
        self._emit(TaskStarted(row.task.task_id, task.model, task.environment, row.queue_wait_s, row.trace_id))
        self.rollouts += 1
        try:
            row.result = await self._episode(row, task)
        finally:
            self.rollouts -= 1
        row.latency_s = self._now() - row.started_at
        self._look_at_rollout(row, row.result, task)

    async def _episode(self, row: Row, task: Task) -> EpisodeResult:
        if row.task.attempt > MAX_ATTEMPTS:
            return poison_result(row.task)
        requests = self._plan.requests
        if requests is not None:
            requests.budgets.begin(task.task_id, row.model.key)
        try:
            chat = self._plan.chats.chat(row.model, task, self._emit, trace_id=row.trace_id)
            return await converse(
                self._plan.environments[task.environment], task.index, task.seed, chat, model=task.model
            )
        finally:
            if requests is not None:
                requests.budgets.ended(task.task_id)

    def _look_at_rollout(self, row: Row, result: EpisodeResult, task: Task) -> None:
        if result.questions:
            self.unjudged += 1
            return
        was_waiting = task.task_id in self.idle_tasks and result.error_kind is ErrorKind.PROVIDER_TIMEOUT
        if self._may_wait(result.error_kind, task):
            raise RetryLaterError(result.error or "", is_failure=False)
        if result.error_kind is ErrorKind.RATE_LIMITED or was_waiting:
            raise RetryLaterError(result.error or "its provider admits nothing now", self._cooldown_s(row.model.key))
        self._record(row, result)
        if result.score is None:
            raise TaskFailedError(result.error or "the episode failed")

    # The judge.

    async def _judge(self, row: Row, task: Task, number: int) -> None:
        if row.is_recorded or row.result is None:
            return  # the environment knew the score
        questions = row.result.questions
        question = questions[(number - 1) % len(questions)]
        if await self._asked(row, task, number, question):
            return
        reason = row.problems[number]
        judged = row.task
        self._emit(
            JudgementMissing(
                judged.task_id, judged.model, judged.environment, self._plan.judge.key, number, reason, row.trace_id
            )
        )
        raise TaskFailedError(f"judgement {number} is missing: {reason}")

    async def _asked(self, row: Row, task: Task, number: int, question: tuple[Message, ...]) -> bool:
        """Ask for a judgement, once more when the first reply cannot be read; return whether there is one."""
        chat = self._plan.chats.chat(self._plan.judge, task, self._emit, trace_id=row.trace_id)
        while True:
            try:
                reply = await chat(question)
            except ChatError as error:
                row.problems[number] = str(error)
                if self._may_wait(error.kind, task):
                    raise RetryLaterError(str(error), is_failure=False) from error
                if error.kind is ErrorKind.RATE_LIMITED:
                    raise RetryLaterError(str(error), self._cooldown_s(self._plan.judge.key)) from error
                return False
            if self._read(row, number, reply.text, reply.prompt_tokens, reply.completion_tokens):
                return True
            if number in row.asked_again:
                return False
            row.asked_again.add(number)
            question = (
                *question,
                Message("assistant", _shown(reply.text)),
                Message("user", self._plan.verdicts.reminder),
            )

    def _read(self, row: Row, number: int, text: str, prompt_tokens: int, completion_tokens: int) -> bool:
        """Keep what a reply says; return whether it says anything."""
        task = row.task
        try:
            judgement = self._plan.verdicts.read(self._plan.environments[task.environment], number, text)
        except EnvironmentFailedError as error:
            row.problems[number] = row.fault = error.message
            return False
        if judgement is None:
            row.problems[number] = f"its reply holds no verdict: {' '.join(text.split())[:120]!r}"
            return False
        row.judgements[number] = judgement
        row.problems.pop(number, None)
        self._emit(
            AnswerJudged(
                task.task_id,
                task.model,
                task.environment,
                self._plan.judge.key,
                number,
                judgement.value,
                prompt_tokens,
                completion_tokens,
                row.trace_id,
            )
        )
        return True

    # The aggregate.

    def _aggregate(self, row: Row) -> None:
        result = row.result
        if row.is_recorded or result is None:
            return
        self._record(row, self._verdict(row, result) if result.questions else result)

    def _verdict(self, row: Row, result: EpisodeResult) -> EpisodeResult:
        """Return a rollout's result with the score that its judgements make, or with why there is none."""
        asked = self._plan.settings.judgements
        environment = self._plan.environments[row.task.environment]
        if not row.judgements and row.fault is not None:
            return replace(result, error_kind=ErrorKind.ENVIRONMENT, error=redacted(row.fault))
        try:
            score = self._plan.verdicts.score(environment, row.judgements, asked) if row.judgements else None
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

    def _record(self, row: Row, result: EpisodeResult) -> None:
        row.is_recorded = True
        if result.questions:
            self.unjudged -= 1
        sample = sample_of(
            row.task,
            result,
            started_at=row.started_at,
            latency_s=row.latency_s,
            queue_wait_s=row.queue_wait_s,
            trace_id=row.trace_id,
            keep_conversation=self._plan.settings.keep_conversations,
        )
        self._record_sample(replace(sample, finished_at=self._now()))

    def _leave(self, row: Row) -> None:
        """Forget a row that has come to its end."""
        self.open_rows[row.model.key] -= 1
        for task_id in row.stage_ids:
            del self._places[task_id]
            self.idle_tasks.discard(task_id)

    def _may_wait(self, kind: ErrorKind | None, task: Task) -> bool:
        """Return whether a request was refused for a budget of 24 h that will have room for it again."""
        if kind is not ErrorKind.DAILY_BUDGET or self._plan.requests is None:
            return False
        return not self._plan.requests.budgets.is_hopeless(task.task_id)

    def _cooldown_s(self, model: str) -> float | None:
        """Return how long a model's endpoint admits nothing, None when that is not known."""
        requests = self._plan.requests
        pressure = requests.pressure(model) if requests is not None else None
        if pressure is None or pressure.until is None:
            return None
        return max(0.0, pressure.until - self._monotonic())


def _said(number: int, judgement: Judgement) -> Message:
    """Return a judgement as the last words of the stored conversation."""
    return Message("system", redacted(f"Judgement {number}: {judgement.value:.4g}. {judgement.why}".rstrip()))


def _shown(reply: str) -> str:
    """Return a reply that could not be read as its judge is shown it again: some text, which can be sent."""
    return reply[:_SHOWN_CHARS].encode("utf-8", "replace").decode() or "-"


_SHOWN_CHARS: Final = 2_000
"""How much of a reply that could not be read its judge is shown again."""
