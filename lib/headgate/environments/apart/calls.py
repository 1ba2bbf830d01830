"""The calls that a child process has been asked and has not answered."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

from headgate.core.errors import EnvironmentFailedError, HeadgateError
from headgate.environments.apart.frames import Frame


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
