"""Runs one episode from question to score, whatever the environment or the model does."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from dis import Bytecode
from functools import lru_cache
from inspect import CO_COROUTINE
from numbers import Real
from pathlib import Path
from types import CodeType
from typing import Any, Final

from headgate.core import Chat, ChatError, ChatReply, ErrorKind, Message, record, redacted, storable
from headgate.core.errors import HeadgateError, HostLostError
from headgate.environments.protocol import Continue, Environment, EnvironmentSpec, Episode, ForJudge, Score
from headgate.environments.sandbox import SANDBOX
from headgate.environments.shares import MODEL
from headgate.environments.uninterrupted import uninterrupted

CLOSE_TIMEOUT_S: Final = 10.0
"""Maximum time that an environment hanging in `close` holds its worker."""

ANSWER_CHARS: Final = 1_000
"""Maximum characters stored of an answer; only short answers are used for votes."""

KEPT_CHARS: Final = 2_000
"""Characters of an overlong reply that stay in the conversation."""

ERROR_CHARS: Final = 2_000
"""Maximum characters of an error message; an exception's text may contain a whole dataset."""

_OURS: Final = f"{Path(__file__).parents[1]}/"


@record
class EpisodeResult:
    """How an episode ended.

    `score` is None when there is none, because the endpoint or the environment failed, and while a judge has yet to
    read the answer (`questions`).

    Attributes:
        score: in [0, 1], or None.
        success: whether the environment considers the score a success.
        why: the reason for the score in one line; empty without a score.
        error_kind: what failed, None if nothing did.
        error: the error message, secrets redacted. Set without `error_kind` when only closing the environment failed.
        prompt_tokens: sum over the replies.
        completion_tokens: sum over the replies.
        turns: number of replies.
        attempts: requests sent, retries included.
        request_wait_s: seconds spent waiting for admission and back-off.
        messages: the conversation, replies included; always encodable as UTF-8.
        questions: questions to ask judges; empty for an episode that has its score or will never get one.
        served_model: model named by the last reply that names one or has a fingerprint; empty if none does.
        system_fingerprint: fingerprint in that reply; empty if it has none.
        cached_tokens: sum over the replies.
        reasoning_tokens: sum over the replies.
        cost_micro: sum over the replies, in millionths; None without replies, or if the cost of one is unknown.
        lane: `batch` if any reply came in that lane.
        answer: the answer that the environment extracted, its first `ANSWER_CHARS` characters; None if it did not.
        finish_reason: `length` if any reply was cut off, else that of the last reply; empty if not reported.
    """

    score: float | None
    success: bool
    why: str
    error_kind: ErrorKind | None
    error: str | None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    turns: int = 0
    attempts: int = 0
    request_wait_s: float = 0.0
    messages: tuple[Message, ...] = ()
    questions: tuple[tuple[Message, ...], ...] = ()
    served_model: str = ""
    system_fingerprint: str = ""
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost_micro: int | None = None
    lane: str = "now"
    answer: str | None = None
    finish_reason: str = ""


def sum_of_known(costs: Sequence[int | None]) -> int | None:
    """Return the sum of costs; None if there are none, or one is unknown."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


class _FaultError(Exception):
    """The environment raised, or returned something invalid."""


class _UnreadableReplyError(Exception):
    """The model's reply cannot be given to the environment."""


@dataclass(slots=True)
class _Run:
    """The state of one episode in progress. Owned by one call of `converse`."""

    spec: EnvironmentSpec
    chat: Chat
    episode: Episode | None = None
    in_chat: bool = False
    messages: list[Message] = field(default_factory=list)
    replies: list[ChatReply] = field(default_factory=list)
    lost_attempts: int = 0
    lost_wait_s: float = 0.0

    def bad_answer(self, reason: str, kind: ErrorKind = ErrorKind.BAD_ANSWER) -> EpisodeResult:
        return self.result(Score(0.0, success=False, why=reason), kind, reason)

    def result(self, end: Score | ForJudge | None, kind: ErrorKind | None = None, error: str = "") -> EpisodeResult:
        score = end if isinstance(end, Score) else None
        open_locks = SANDBOX.not_held if self.spec.runs_programs else ()
        note = f" (sandbox without {', '.join(open_locks)})" if open_locks else ""
        prompt = completion = cached = reasoning = 0
        attempts, wait_s, lane, served, finish = self.lost_attempts, self.lost_wait_s, "now", ("", ""), ""
        for reply in self.replies:
            prompt, completion = prompt + reply.prompt_tokens, completion + reply.completion_tokens
            cached, reasoning = cached + reply.cached_tokens, reasoning + reply.reasoning_tokens
            attempts, wait_s = attempts + reply.attempts, wait_s + reply.wait_s
            lane = reply.lane if reply.lane != "now" else lane
            finish = finish if finish == "length" else reply.finish_reason
            if reply.served_model or reply.system_fingerprint:
                served = (reply.served_model, reply.system_fingerprint)
        return EpisodeResult(
            score=None if score is None else float(score.value),
            success=score is not None and bool(score.success),
            why="" if score is None else redacted(storable(score.why)) + note,
            error_kind=kind,
            error=None if kind is None else redacted(storable(error)),
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=cached,
            reasoning_tokens=reasoning,
            turns=len(self.replies),
            attempts=attempts,
            request_wait_s=wait_s,
            messages=tuple(self.messages),
            questions=end.questions if isinstance(end, ForJudge) else (),
            served_model=served[0],
            system_fingerprint=served[1],
            cost_micro=sum_of_known([reply.cost_micro for reply in self.replies]),
            lane=lane,
            answer=None if score is None or score.answer is None else storable(score.answer[:ANSWER_CHARS]),
            finish_reason=finish,
        )

    async def ask(self) -> str:
        """Return the model's next reply, made storable."""
        self.in_chat = True
        try:
            reply = await self.chat(tuple(self.messages))
        except ChatError as error:
            if error.reply is not None:
                self.replies.append(error.reply)
                self.messages.append(Message("assistant", storable(error.reply.text[:KEPT_CHARS])))
            else:
                self.lost_attempts += error.attempts
                self.lost_wait_s += error.wait_s
            raise
        self.in_chat = False
        self.replies.append(reply)
        if len(reply.text) > (limit := self.spec.reply_chars):
            self.messages.append(Message("assistant", storable(reply.text[:KEPT_CHARS]) + "…"))
            raise _UnreadableReplyError(f"the reply has {len(reply.text)} characters, at most {limit} are read")
        text = storable(reply.text)
        self.messages.append(Message("assistant", text))
        return text

    def say(self, said: Episode | Continue, name: str) -> None:
        found = _listed(said, name)
        if not found:
            raise _FaultError(f"{name} holds no Message: a model needs one to reply to")
        self.messages.extend(map(_storable, found))


async def converse(environment: Environment, index: int, seed: int, chat: Chat, *, model: str = "") -> EpisodeResult:
    """Play task `index` of `environment` with the model behind `chat`, and return how the episode ended.

    `model` is the key of the episode's model, among which scarce resources of environments are shared: sandbox slots,
    games, processes.

    The episode is closed in every case, cancellation included. A fault of the environment (an exception, a hang, a
    score outside [0, 1]) ends as `ErrorKind.ENVIRONMENT` and a `ChatError` as its own kind, both without a score; only
    an unusable answer scores 0, as `ErrorKind.BAD_ANSWER`.

    Raises:
        asyncio.CancelledError: when the caller is cancelled.
        HostLostError: when the machine or host on which it was played is gone; nobody's failure.
        Exception: anything but `ChatError` that `chat` raises: a bug in Headgate never counts against a model.
    """
    run = _Run(environment.spec, chat)
    whose = MODEL.set(model)
    try:
        result = await _outcome(environment, index, seed, run)
    finally:
        problem = None if run.episode is None else await _closed(run.episode)
        MODEL.reset(whose)
    if problem is None:
        return result
    return replace(result, error=redacted("; ".join(filter(None, (result.error, problem)))))


def is_share(value: object) -> bool:
    """Return whether a value is a number in [0, 1], of Python or numpy."""
    return isinstance(value, Real) and bool(value <= 1 and not value < 0)


def text_of(error: BaseException) -> str:
    """Return the text of an environment's exception, and the line of the environment's code that it came from."""
    try:
        text = cut(str(error))
    except Exception as worse:  # noqa: BLE001 - an exception whose `str` raises still has a name
        text = f"(its text cannot be made: {type(worse).__name__})"
    if isinstance(error, HeadgateError):
        return text
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    theirs = [(name, line) for name, line in lines if not name.startswith(_OURS) and "importlib" not in name]
    at = [line for name, line in theirs if name == theirs[0][0]]
    return f"{text} ({Path(theirs[0][0]).name}, line {at[-1]})" if at else text


def cut(text: str) -> str:
    """Return a text, cut to `ERROR_CHARS` characters with a note of its length if it is longer."""
    return text if len(text) <= ERROR_CHARS else f"{text[:ERROR_CHARS]}… ({len(text):,} characters)"


def checked_score(score: Score) -> Score:
    """Return a score that is valid for storage.

    Raises:
        ValueError: if its value is outside [0, 1].
        TypeError: if `success` is not a boolean, or `why` or `answer` is not text.
    """
    if not is_share(score.value):
        raise ValueError(f"a score must be in [0, 1] (got {score.value!r:.80})")
    if score.success not in (True, False):  # numpy's bools are equal to these
        raise TypeError(f"success must be True or False (got {score.success!r:.80})")
    if not isinstance(score.why, str):
        raise TypeError(f"why must be a sentence (got {score.why!r})")
    if score.answer is not None and not isinstance(score.answer, str):
        raise TypeError(f"answer must be text (got {score.answer!r:.80})")
    return score


async def _outcome(environment: Environment, index: int, seed: int, run: _Run) -> EpisodeResult:
    try:
        async with asyncio.timeout(run.spec.timeout_s) as deadline:
            return run.result(await _exchanged(environment, index, seed, run))
    except TimeoutError:
        if not deadline.expired():
            raise
        return _timed_out(run)
    except _FaultError as fault:
        return run.result(None, ErrorKind.ENVIRONMENT, str(fault))
    except _UnreadableReplyError as refused:
        return run.bad_answer(str(refused))
    except ChatError as error:
        if error.kind.is_scored:
            return run.bad_answer(str(error), error.kind)
        return run.result(None, error.kind, str(error))


async def _exchanged(environment: Environment, index: int, seed: int, run: _Run) -> Score | ForJudge:
    """Return how an episode ends. Kept flat: each wake-up passes through every level of nested coroutines."""
    try:
        run.episode = episode = await environment.open(index, seed)
    except BaseException as error:
        _blame(error)
        raise
    run.say(episode, "opening")
    for _ in range(run.spec.max_rounds):
        reply = await run.ask()
        try:
            answer = await episode.answer(reply)
        except BaseException as error:
            _blame(error)
            raise
        if isinstance(answer, Continue):
            run.say(answer, "messages")
        elif isinstance(answer, Score):
            return _checked(answer)
        elif isinstance(answer, ForJudge):
            return _askable(answer, run.spec)
        else:
            raise _FaultError(f"it returned {type(answer).__name__}, not Continue, Score or ForJudge")
    raise _FaultError(f"it gave no score after max_rounds={run.spec.max_rounds} replies")


def _askable(answer: ForJudge, spec: EnvironmentSpec) -> ForJudge:
    """Return the questions in storable form; raise if they cannot be put to a judge."""
    if not spec.needs_judge:
        raise _FaultError("it asks for a judge, but its spec does not say needs_judge=True")
    questions = _listed(answer, "questions")
    if not questions or not all(questions):
        raise _FaultError("it asks for a judge without a question")
    return ForJudge(tuple(tuple(_storable(message) for message in question) for question in questions))


def _storable(message: Message) -> Message:
    if not isinstance(message, Message) or not isinstance(message.content, str) or not isinstance(message.role, str):
        raise _FaultError(f"it returned {message!r:.80}, not a Message with text")
    text = storable(message.content)
    return message if text is message.content else Message(message.role, text)


def _listed(said: Episode | Continue | ForJudge, name: str) -> tuple[Any, ...]:
    """Return the entries of a list from the environment, which may be of any type."""
    try:
        return tuple(getattr(said, name))
    except Exception as error:
        _blame(error)
        raise


def _blame(error: BaseException) -> None:
    """Return if the environment is not to blame for an exception that a call of it raised.

    Raises:
        _FaultError: if it is.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            raise _FaultError("it cancelled itself") from error
    elif isinstance(error, Exception | SystemExit) and not isinstance(error, HostLostError):
        raise _FaultError(f"{type(error).__name__}: {text_of(error)}") from error


def _checked(score: Score) -> Score:
    try:
        return checked_score(score)
    except (TypeError, ValueError) as error:
        raise _FaultError(str(error)) from None


async def _closed(episode: Episode) -> str | None:
    """Close `episode` even if the caller is cancelled; return what went wrong."""
    try:
        if not _never_waits(getattr(episode.close, "__code__", None)):
            return await uninterrupted(_closed_in_time(episode))
        await episode.close()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the score stays; the fault is reported with it
        return f"closing failed: {type(error).__name__}: {text_of(error)}"
    return None


async def _closed_in_time(episode: Episode) -> str | None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await episode.close()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as above; it must not escape from its task
        return f"closing failed: {type(error).__name__}: {text_of(error)}"
    return None


@lru_cache(maxsize=256)
def _never_waits(code: CodeType | None) -> bool:
    """Return whether `code` is a coroutine without await, like most `close` methods: nothing can interrupt it."""
    return code is not None and bool(code.co_flags & CO_COROUTINE) and all(op.opname != "SEND" for op in Bytecode(code))


def _timed_out(run: _Run) -> EpisodeResult:
    kind, who = (ErrorKind.PROVIDER_TIMEOUT, "model") if run.in_chat else (ErrorKind.ENVIRONMENT, "environment")
    limit = f"the episode took longer than timeout_s={run.spec.timeout_s:g}"
    return run.result(None, kind, f"{limit}; the {who} had not answered")
