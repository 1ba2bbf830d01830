"""Judgements of an answer: asks the judge, reads its replies, and turns them into the sample's score."""

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
"""How much of an unreadable reply the judge is shown when it is asked again."""


class Judgements:
    """Has a judge read answers. Owned by the stages of one run.

    No failure here counts against the model: if the judge fails or its replies are unreadable, the sample has no score.
    """

    def __init__(self, parts: Parts, judging: Judging, chats: ChatSource) -> None:
        self._parts = parts
        self._judging = judging
        self._chats = chats

    async def ask(self, row: Row, task: Task, number: int) -> None:
        """Add a judgement to a row that has its answer.

        Raises:
            RetryLaterError: if the judge's endpoint admits nothing now.
            TaskFailedError: if no judgement could be had; the row's problems say why.
        """
        assert row.result is not None, "a judge reads an answer"
        questions = row.result.questions
        if await self._ask_judge(row, task, number, questions[(number - 1) % len(questions)]):
            return
        reason = row.problems[number]
        about = (row.task.task_id, row.task.model, row.task.environment, self._judging.judge.key, number)
        self._parts.emit(JudgementMissing(*about, reason, row.trace_id))
        raise TaskFailedError(f"judgement {number} is missing: {reason}")

    def verdict(self, row: Row, result: EpisodeResult) -> EpisodeResult:
        """Return a rollout's result with the score from its judgements, or with the reason why it has none."""
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
        messages = (*result.messages, *(_message(number, row.judgements[number]) for number in sorted(row.judgements)))
        why = redacted(score.why)
        return replace(result, score=float(score.value), success=score.success, why=why, messages=messages)

    async def _ask_judge(self, row: Row, task: Task, number: int, question: tuple[Message, ...]) -> bool:
        """Ask for a judgement, and once more if the first reply is unreadable; return whether there is one now."""
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
        """Record the judgement in a reply; return whether it holds one."""
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
        """Return for how many seconds a model's endpoint admits nothing; None if that is not known."""
        requests = self._parts.requests
        pressure = requests.pressure(model) if requests is not None else None
        if pressure is None or pressure.until is None:
            return None
        return max(0.0, pressure.until - self._parts.clock.monotonic())


def _message(number: int, judgement: Judgement) -> Message:
    """Return a judgement as a message for the end of the stored conversation."""
    return Message("system", redacted(f"Judgement {number}: {judgement.value:.4g}. {judgement.why}".rstrip()))


def reminded(question: Sequence[Message], reply: str, reminder: str) -> tuple[Message, ...]:
    """Return the question to ask again: with the unreadable reply, as text that can be sent, and the reminder."""
    shown = reply[:_SHOWN_CHARS].encode("utf-8", "replace").decode() or "-"
    return (*question, Message("assistant", shown), Message("user", reminder))
