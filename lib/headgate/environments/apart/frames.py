"""Messages between an environment's process and Headgate's: four bytes of length, then msgpack."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgpack  # type: ignore[import-untyped]

from headgate.config import Settings
from headgate.core import Message, check_msgpack, errors
from headgate.core.errors import EnvironmentFailedError, HeadgateError
from headgate.environments.episode import checked_score, cut, text_of
from headgate.environments.protocol import Continue, ForJudge, Score

KILLED_ABOVE: Final = 1.5
"""Multiple of `memory_mib` above which a process is killed with its episodes; below it they may finish."""


@dataclass(frozen=True, slots=True)
class ApartLimits:
    """Limits of the processes of one package; a campaign sets them with the settings `environment_…`.

    Attributes:
        processes: maximum number, not counting those that are being replaced.
        call_s: time limit of one call, from when the process starts it.
        memory_mib: resident memory of a process and its descendants.
        sandbox_locks: locks behind which models' programs run there; see the setting.
    """

    processes: int = 2
    call_s: float = 60.0
    memory_mib: int = 2048
    sandbox_locks: tuple[str, ...] = ("calls", "namespaces", "files")

    @classmethod
    def of(cls, settings: Settings) -> ApartLimits:
        """Return the limits in the settings."""
        return cls(
            processes=settings.environment_processes,
            call_s=settings.environment_call_s,
            memory_mib=settings.environment_memory_mib,
            sandbox_locks=settings.sandbox_locks,
        )


@dataclass(frozen=True, slots=True)
class Source:
    """Where a child process gets its environments from.

    Attributes:
        kind: whether `value` creates an environment or a collection.
        name: name of the environment, or prefix of the collection.
        value: the entry point's value: `module:attribute`.
        packages: name and version of each distribution that it needs, which must be equal on every machine.
    """

    kind: Literal["environment", "collection"]
    name: str
    value: str
    packages: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def label(self) -> str:
        """Name of the source in error messages."""
        return f"environment {self.name!r}" if self.kind == "environment" else f"collection {self.name!r}"


MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""No conversation is longer. A process that sends more is broken, and reading on would fill this process's memory."""

HEADER: Final = struct.Struct(">I")


class _Packing(threading.local):
    """A packer per thread: creating one per frame takes three times as long."""

    def __init__(self) -> None:
        self.packer = msgpack.Packer(unicode_errors="surrogatepass")


_PACKING: Final = _Packing()

Frame = dict[str, Any]
"""Keys of a call: do, call, environment and arguments. Keys of a reply: call, and begun, raised or the result."""


def packed(frame: Frame) -> bytes:
    """Return `frame` serialised for sending. Lone surrogates are preserved: storing the text replaces them.

    Raises:
        TypeError: if it contains a value that msgpack cannot represent.
        ValueError: if it is too long.
    """
    body: bytes = _PACKING.packer.pack(frame)
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"a frame may have at most {MAX_FRAME_BYTES:,} bytes (got {len(body):,})")
    return HEADER.pack(len(body)) + body


def unpacked(body: bytes | bytearray) -> Frame:
    """Return the frame that `packed` serialised.

    Raises:
        ValueError: if it is not a frame, or contains more values than any conversation has.
    """
    check_msgpack(body)
    frame = msgpack.unpackb(body, unicode_errors="surrogatepass")
    if not isinstance(frame, dict):
        raise ValueError(f"a frame must be a map (got {type(frame).__name__})")  # noqa: TRY004 - bad data, not a bad call
    return frame


def length(data: bytes | bytearray, at: int = 0) -> int:
    """Return the length of the body after the header that begins at `at`.

    Raises:
        ValueError: if it exceeds `MAX_FRAME_BYTES`.
    """
    (count,) = HEADER.unpack_from(data, at)
    if count > MAX_FRAME_BYTES:
        raise ValueError(f"a frame may have at most {MAX_FRAME_BYTES:,} bytes (its header says {count:,})")
    return int(count)


def said(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Return messages in serialisable form.

    Raises:
        TypeError: if one is not a message with text.
    """
    found = list(messages)
    for message in found:
        if not isinstance(message, Message) or not isinstance(message.content, str):
            raise TypeError(f"it returned {message!r:.80}, not a Message with text")
    return [(message.role, message.content) for message in found]


def heard(pairs: Sequence[Sequence[Any]]) -> tuple[Message, ...]:
    """Return the messages that `said` turned into pairs.

    Raises:
        TypeError: if one is not text, which no Headgate process sends.
    """
    messages = []
    for role, content in pairs:
        messages.append(message := Message(role, content))
        if not isinstance(role, str) or not isinstance(content, str):
            raise TypeError(f"it returned {message!r:.80}, not a Message with text")
    return tuple(messages)


def answer_frame(answer: object) -> Frame:
    """Return an episode's answer in serialisable form.

    Raises:
        TypeError: if it is not a valid answer.
        ValueError: if it is an invalid score.
    """
    match answer:
        case Score():
            checked_score(answer)
            return {"score": (float(answer.value), bool(answer.success), answer.why, answer.answer)}
        case Continue():
            return {"messages": said(answer.messages)}
        case ForJudge():
            return {"questions": [said(question) for question in answer.questions]}
    raise TypeError(f"it returned {type(answer).__name__}, not Continue, Score or ForJudge")


def answer_of(frame: Frame) -> Continue | Score | ForJudge:
    """Return the answer that `answer_frame` turned into a frame."""
    if "score" in frame:
        value, success, why, answer = frame["score"]
        return Score(value, success=bool(success), why=why, answer=answer)
    if "messages" in frame:
        return Continue(heard(frame["messages"]))
    return ForJudge(tuple(heard(question) for question in frame["questions"]))


_KNOWN: Final = {
    kind.__name__: kind
    for kind in (
        errors.EnvironmentFailedError,
        errors.MissingExtraError,
        errors.SandboxUnavailableError,
        errors.UnknownEnvironmentError,
    )
}


def failure_frame(error: BaseException) -> Frame:
    """Return an exception of any class in serialisable form."""
    if isinstance(error, errors.HeadgateError):
        return {"raised": type(error).__name__, "message": cut(error.message), "next_step": cut(error.next_step)}
    return {"raised": type(error).__name__, "message": text_of(error)}


def failure_of(frame: Frame, label: str, call: str) -> errors.HeadgateError:
    """Return the error for a frame from `failure_frame`, with the caller's label and call in its message."""
    raised, message, next_step = str(frame["raised"]), str(frame["message"]), frame.get("next_step")
    if isinstance(next_step, str):
        kind = _KNOWN.get(raised, errors.EnvironmentFailedError)
        error = kind.__new__(kind, message)
        errors.HeadgateError.__init__(error, message, next_step=next_step)
        return error
    return errors.EnvironmentFailedError(f"{label} failed in {call}: {raised}: {message}")


class UnfitNodeError(EnvironmentFailedError):
    """A machine lacks a package of the run, or has another version of it."""


class MovedError(EnvironmentFailedError):
    """A call was withdrawn before the process started it; its episode must continue in another process."""


@dataclass(slots=True)
class Call:
    """One call in progress.

    Attributes:
        do: name of the operation.
        environment: name of the environment; empty for a call about all of them.
        number: unique number of the call in its process.
        sent_at: monotonic time of sending.
        model: model of the call's episode; empty for none.
        begun_at: when the process reported that it started the call; None before.
        given_up_at: when it took too long and was cancelled; None before.
        future: what the caller awaits; cancelled if the caller stops waiting, even while the process still works on it.
    """

    do: str
    environment: str
    number: int
    sent_at: float
    model: str = ""
    begun_at: float | None = None
    given_up_at: float | None = None
    future: Future[Frame] = field(default_factory=Future)

    def heard(self) -> asyncio.Future[Frame]:
        """Return a future of the caller's event loop for the answer."""
        return asyncio.wrap_future(self.future)

    def give_up(self) -> None:
        """Do nothing: cancelling the future has already cancelled the call."""


class Calls:
    """Pending calls by number. Thread-safe: callers add, the reader settles, the keeper looks for late ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects the map and the calls in it
        self._open: dict[int, Call] = {}

    def add(self, call: Call) -> None:
        """Add a call."""
        with self._lock:
            self._open[call.number] = call

    def begun(self, number: int, now: float) -> None:
        """Note that the process has started call `number`."""
        with self._lock:
            if number in self._open:
                self._open[number].begun_at = now

    def settled(self, number: int) -> Call | None:
        """Remove and return call `number`; None if there is no such call."""
        with self._lock:
            return self._open.pop(number, None)

    def all_settled(self) -> tuple[Call, ...]:
        """Remove and return all calls."""
        with self._lock:
            calls = tuple(self._open.values())
            self._open.clear()
            return calls

    def late(self, now: float, limit_s: float, heard_at: float) -> Call | None:
        """Return a call that has taken longer than `limit_s` since its start.

        A call that waits behind others is not late. If no call was started, the process itself is unresponsive: time
        counts from when it last sent something.
        """
        with self._lock:
            begun = [call for call in self._open.values() if call.begun_at is not None]
            for call in begun:
                if call.given_up_at is None and now - (call.begun_at or now) > limit_s:
                    return call
            if begun:
                return None
            return next((c for c in self._open.values() if now - max(c.sent_at, heard_at) > limit_s), None)

    def unheeded(self, now: float, after_s: float) -> Call | None:
        """Return a call that is still in progress `after_s` after it was given up."""
        with self._lock:
            given_up = (call for call in self._open.values() if call.given_up_at is not None)
            return next((call for call in given_up if now - (call.given_up_at or now) > after_s), None)

    def is_stalled(self, now: float, after_s: float) -> bool:
        """Return whether a call has been waiting for more than `after_s` to be started."""
        with self._lock:
            return any(call.begun_at is None and now - call.sent_at > after_s for call in self._open.values())

    def blocking(self, now: float, after_s: float) -> Call | None:
        """Return an answer in progress for more than `after_s` that has kept another model's call waiting that long."""
        with self._lock:
            begun = ((call.begun_at, call) for call in self._open.values() if call.begun_at is not None)
            since, last = max(begun, key=lambda pair: pair[0], default=(now, None))
            if last is None or last.do != "answer" or now - since <= after_s:
                return None
            waiting = self._waiting({last.model})
            return last if any(now - call.sent_at > after_s for call in waiting) else None

    def withdrawn(self, staying: Collection[str]) -> list[Call]:
        """Remove and return the unstarted calls of episodes, except those of models in `staying`."""
        with self._lock:
            moved = self._waiting(staying)
            for call in moved:
                del self._open[call.number]
            return moved

    def _waiting(self, staying: Collection[str]) -> list[Call]:
        waiting = (call for call in self._open.values() if call.begun_at is None and call.do in ("open", "answer"))
        return [call for call in waiting if call.model not in staying]

    @property
    def count(self) -> int:
        """Number of pending calls."""
        return len(self._open)


def settle(future: Future[Frame], outcome: Frame | HeadgateError) -> bool:
    """Set a future's result or exception; return False if it was already done or cancelled."""
    try:
        if isinstance(outcome, HeadgateError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except InvalidStateError:
        return False
    return True
