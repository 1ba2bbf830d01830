"""Messages between an environment's process and ours: four bytes of length, then msgpack."""

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
"""Times `memory_mib` at which a process is ended with its episodes: below it they may finish."""


@dataclass(frozen=True, slots=True)
class ApartLimits:
    """What the processes of one package may take; the settings `environment_…` say the same to a campaign.

    Attributes:
        processes: at most, those being replaced not counted.
        call_s: deadline of one call, counted from when the process began it.
        memory_mib: resident memory of a process and of those that it started.
        sandbox_locks: behind which programs of models run there; see the setting.
    """

    processes: int = 2
    call_s: float = 60.0
    memory_mib: int = 2048
    sandbox_locks: tuple[str, ...] = ("calls", "namespaces", "files")

    @classmethod
    def of(cls, settings: Settings) -> ApartLimits:
        """Return what the settings allow."""
        return cls(
            processes=settings.environment_processes,
            call_s=settings.environment_call_s,
            memory_mib=settings.environment_memory_mib,
            sandbox_locks=settings.sandbox_locks,
        )


@dataclass(frozen=True, slots=True)
class Source:
    """Where a child process takes its environments from.

    Attributes:
        kind: whether `value` makes an environment or a collection.
        name: of the environment, or prefix of the collection.
        value: of the entry point: `module:attribute`.
        packages: name and version of each distribution that it needs and that every machine must have alike.
    """

    kind: Literal["environment", "collection"]
    name: str
    value: str
    packages: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def label(self) -> str:
        """What errors call its process."""
        return f"environment {self.name!r}" if self.kind == "environment" else f"collection {self.name!r}"


MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""No conversation is longer. A process that sends more is broken, and reading on would fill our memory."""

HEADER: Final = struct.Struct(">I")


class _Packing(threading.local):
    """A packer for each thread: one for each frame takes three times as long."""

    def __init__(self) -> None:
        self.packer = msgpack.Packer(unicode_errors="surrogatepass")


_PACKING: Final = _Packing()

Frame = dict[str, Any]
"""Keys of a call: do, call, environment and its arguments. Of a reply: call, and begun, raised or the result."""


def packed(frame: Frame) -> bytes:
    """Return `frame` as it is sent. Lone surrogates cross unharmed: whoever stores text replaces them.

    Raises:
        TypeError: if it holds what has no form in msgpack.
        ValueError: if it is too long.
    """
    body: bytes = _PACKING.packer.pack(frame)
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"{len(body):,} bytes are too much to say at once, at most {MAX_FRAME_BYTES:,} are read")
    return HEADER.pack(len(body)) + body


def unpacked(body: bytes | bytearray) -> Frame:
    """Return the frame that `packed` made.

    Raises:
        ValueError: if it is none, or holds more values than a conversation has.
    """
    check_msgpack(body)
    frame = msgpack.unpackb(body, unicode_errors="surrogatepass")
    if not isinstance(frame, dict):
        raise ValueError(f"a frame must be a map (got {type(frame).__name__})")  # noqa: TRY004 - bad data, not a bad call
    return frame


def length(data: bytes | bytearray, at: int = 0) -> int:
    """Return the length of the body behind the header that begins at `at`.

    Raises:
        ValueError: if it is longer than any that is sent.
    """
    (count,) = HEADER.unpack_from(data, at)
    if count > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {count:,} bytes is announced, at most {MAX_FRAME_BYTES:,} are read")
    return int(count)


def said(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Return messages in the form that crosses.

    Raises:
        TypeError: if one is no message with text.
    """
    found = list(messages)
    for message in found:
        if not isinstance(message, Message) or not isinstance(message.content, str):
            raise TypeError(f"it said {message!r:.80}, not a Message with text")
    return [(message.role, message.content) for message in found]


def heard(pairs: Sequence[Sequence[Any]]) -> tuple[Message, ...]:
    """Return the messages that `said` made into pairs.

    Raises:
        TypeError: if one is no text: it came from no process of ours.
    """
    messages = []
    for role, content in pairs:
        messages.append(message := Message(role, content))
        if not isinstance(role, str) or not isinstance(content, str):
            raise TypeError(f"it said {message!r:.80}, not a Message with text")
    return tuple(messages)


def answer_frame(answer: object) -> Frame:
    """Return what an episode answered in the form that crosses.

    Raises:
        TypeError: if no environment may answer that.
        ValueError: if it is a score that nobody may give.
    """
    match answer:
        case Score():
            checked_score(answer)
            return {"score": (float(answer.value), bool(answer.success), answer.why, answer.answer)}
        case Continue():
            return {"messages": said(answer.messages)}
        case ForJudge():
            return {"questions": [said(question) for question in answer.questions]}
    raise TypeError(f"it answered {type(answer).__name__}, neither Continue, Score nor ForJudge")


def answer_of(frame: Frame) -> Continue | Score | ForJudge:
    """Return what `answer_frame` made into a frame."""
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
    """Return what `error` says in the form that crosses; works for every exception."""
    if isinstance(error, errors.HeadgateError):
        return {"raised": type(error).__name__, "message": cut(error.message), "next_step": cut(error.next_step)}
    return {"raised": type(error).__name__, "message": text_of(error)}


def failure_of(frame: Frame, label: str, call: str) -> errors.HeadgateError:
    """Return the error to raise for a frame that `failure_frame` made, in the words of who called."""
    raised, message, next_step = str(frame["raised"]), str(frame["message"]), frame.get("next_step")
    if isinstance(next_step, str):
        kind = _KNOWN.get(raised, errors.EnvironmentFailedError)
        error = kind.__new__(kind, message)
        errors.HeadgateError.__init__(error, message, next_step=next_step)
        return error
    return errors.EnvironmentFailedError(f"{label} failed in {call}: {raised}: {message}")


class UnfitNodeError(EnvironmentFailedError):
    """A machine has other packages than the run, or lacks one."""


class MovedError(EnvironmentFailedError):
    """A call was withdrawn before the process began it: its episode is to go on in another process."""


@dataclass(slots=True)
class Call:
    """One call under way.

    Attributes:
        do: what is asked.
        environment: of which environment; empty for what concerns all of them.
        number: of the call, unlike any other of its process.
        sent_at: monotonic time.
        model: whose episode it is of; empty for none.
        begun_at: when the process said that it had begun; None before.
        given_up_at: when it took too long and was cancelled; None before.
        future: what the caller waits for; cancelled when it waits no longer, although the process is still at it.
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
        """Return what the caller's event loop waits for."""
        return asyncio.wrap_future(self.future)

    def give_up(self) -> None:
        """Do no more: cancelling what is waited for has cancelled the call."""


class Calls:
    """Calls by number. Thread-safe: callers add, the reader settles, the keeper looks for late ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects the map and the calls in it
        self._open: dict[int, Call] = {}

    def add(self, call: Call) -> None:
        """Note a new call."""
        with self._lock:
            self._open[call.number] = call

    def begun(self, number: int, now: float) -> None:
        """Note that the process is at call `number`."""
        with self._lock:
            if number in self._open:
                self._open[number].begun_at = now

    def settled(self, number: int) -> Call | None:
        """Return call `number`, which is none any more; None when nobody asked for it."""
        with self._lock:
            return self._open.pop(number, None)

    def all_settled(self) -> tuple[Call, ...]:
        """Return all calls, which are none any more."""
        with self._lock:
            calls = tuple(self._open.values())
            self._open.clear()
            return calls

    def late(self, now: float, limit_s: float, heard_at: float) -> Call | None:
        """Return a call that has taken longer than `limit_s`, counted from its beginning.

        A call that waits behind others is not late. When nothing was begun, the process itself does not answer: the
        time counts from when it was last heard.
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
        """Return a call that was given up and is still under way `after_s` later."""
        with self._lock:
            given_up = (call for call in self._open.values() if call.given_up_at is not None)
            return next((call for call in given_up if now - (call.given_up_at or now) > after_s), None)

    def is_stalled(self, now: float, after_s: float) -> bool:
        """Return whether a call has been waiting to be begun for `after_s`."""
        with self._lock:
            return any(call.begun_at is None and now - call.sent_at > after_s for call in self._open.values())

    def blocking(self, now: float, after_s: float) -> Call | None:
        """Return the answer that has been under way for `after_s` and keeps another model's episode waiting so long."""
        with self._lock:
            begun = ((call.begun_at, call) for call in self._open.values() if call.begun_at is not None)
            since, last = max(begun, key=lambda pair: pair[0], default=(now, None))
            if last is None or last.do != "answer" or now - since <= after_s:
                return None
            waiting = self._waiting({last.model})
            return last if any(now - call.sent_at > after_s for call in waiting) else None

    def withdrawn(self, staying: Collection[str]) -> list[Call]:
        """Return the calls of episodes not begun, but for those of models `staying`; they are none any more."""
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
        """How many there are."""
        return len(self._open)


def settle(future: Future[Frame], outcome: Frame | HeadgateError) -> bool:
    """Give `outcome` to whoever waits; return False when nobody does any more."""
    try:
        if isinstance(outcome, HeadgateError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except InvalidStateError:
        return False
    return True
