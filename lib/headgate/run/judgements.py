"""Judgements of an answer: asked of the judge, read, and made into the score of the sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headgate.core import ChatError, ErrorKind, Message, Task, redacted
from headgate.core.errors import EnvironmentFailedError
from headgate.core.events import AnswerJudged, JudgementMissing
from headgate.environments import EpisodeResult, JudgedEnvironment, Judgement
from headgate.run.judging import Judging
from headgate.run.parts import Parts
from headgate.run.plan import ChatSource
from headgate.run.rows import Row
from headgate.scheduling import RetryLaterError, TaskFailedError

_SHOWN_CHARS: Final = 2_000
"""How much of a reply that could not be read its judge is shown again."""


class Judgements:
    """Has a judge read answers. Owned by the stages of one run.

    Nothing here is held against the model: a judge that fails, or cannot be read, leaves a sample without a score.
    """

    def __init__(self, parts: Parts, judging: Judging, chats: ChatSource) -> None:
        self._parts = parts
        self._judging = judging
        self._chats = chats

    async def ask(self, row: Row, task: Task, number: int) -> None:
        """Add a judgement to a row whose answer is there.

        Raises:
            RetryLaterError: if the judge admits nothing now.
            TaskFailedError: if there is none; the row's problems say why.
        """
        assert row.result is not None, "a judge reads what was answered"
        questions = row.result.questions
        if await self._asked(row, task, number, questions[(number - 1) % len(questions)]):
            return
        reason = row.problems[number]
        about = (row.task.task_id, row.task.model, row.task.environment, self._judging.judge.key, number)
        self._parts.emit(JudgementMissing(*about, reason, row.trace_id))
        raise TaskFailedError(f"judgement {number} is missing: {reason}")

    def verdict(self, row: Row, result: EpisodeResult) -> EpisodeResult:
        """Return a rollout's result with the score that its judgements make, or with why there is none."""
        asked = self._parts.settings.judgements
        environment = self._environment(row.task)
        if not row.judgements and row.fault is not None:
            return replace(result, error_kind=ErrorKind.ENVIRONMENT, error=redacted(row.fault))
        try:
            score = self._judging.verdicts.score(environment, row.judgements, asked) if row.judgements else None
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

    async def _asked(self, row: Row, task: Task, number: int, question: tuple[Message, ...]) -> bool:
        """Ask for a judgement, once more when the first reply cannot be read; return whether there is one."""
        chat = self._chats.chat(self._judging.judge, task, self._parts.emit, trace_id=row.trace_id)
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
                if error.kind in {ErrorKind.RATE_LIMITED, ErrorKind.QUOTA}:
                    raise RetryLaterError(str(error), self._cooldown_s(self._judging.judge.key)) from error
                return False
            row.judge_costs.append(reply.cost_micro)
            if self._read(row, number, reply.text, reply.prompt_tokens, reply.completion_tokens):
                return True
            if number in row.asked_again:
                return False
            row.asked_again.add(number)
            question = reminded(question, reply.text, self._judging.verdicts.reminder)

    def _read(self, row: Row, number: int, text: str, prompt_tokens: int, completion_tokens: int) -> bool:
        """Keep what a reply says; return whether it says anything."""
        task = row.task
        try:
            judgement = self._judging.verdicts.read(self._environment(task), number, text)
        except EnvironmentFailedError as error:
            row.problems[number] = row.fault = error.message
            return False
        if judgement is None:
            row.problems[number] = f"its reply holds no verdict: {' '.join(text.split())[:120]!r}"
            return False
        row.judgements[number] = judgement
        row.problems.pop(number, None)
        about = (task.task_id, task.model, task.environment, self._judging.judge.key, number, judgement.value)
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


def _said(number: int, judgement: Judgement) -> Message:
    """Return a judgement as the last words of the stored conversation."""
    return Message("system", redacted(f"Judgement {number}: {judgement.value:.4g}. {judgement.why}".rstrip()))


def reminded(question: Sequence[Message], reply: str, reminder: str) -> tuple[Message, ...]:
    """Return a question as it is asked again: after a reply that could not be read, as text that can be sent."""
    shown = reply[:_SHOWN_CHARS].encode("utf-8", "replace").decode() or "-"
    return (*question, Message("assistant", shown), Message("user", reminder))
