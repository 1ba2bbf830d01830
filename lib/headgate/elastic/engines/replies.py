"""What a call of an engine came to: an answer, or one of the ways in which there was none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

from headgate.core import json_value, redacted
from headgate.elastic.errors import EngineError, NotAnEngineError

SHOWN_CHARS: Final = 300
"""So much of an answer goes into a message."""


class EngineBusyError(EngineError):
    """An engine that has requests was to be put to sleep; nothing of it was released."""


class UnansweredError(EngineError):
    """A call was sent and not answered in time: what it asked for may have been done."""


class KeyRefusedError(EngineError):
    """The key that was given is not the engine's; `is_final`."""


class ConnectionLostError(EngineError):
    """The connection broke or could not be made: the engine died, or nobody knows."""


class NobodyListensError(ConnectionLostError):
    """The connection was refused: the process that listened there is gone."""


LATE: Final = (UnansweredError,)
"""After these a reading is not made again: the time for it is over, and there will be another one."""

MAYBE_DONE: Final = (UnansweredError, ConnectionLostError)
"""After these a change may have been made, so that making it again is another one."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer of a control route.

    Attributes:
        call: what was called, for messages.
        status: HTTP status.
        body: as it came.
    """

    call: str
    status: int
    body: bytes

    @property
    def is_ok(self) -> bool:
        """Whether the engine did what it was asked for."""
        return 200 <= self.status < 300

    def read(self) -> Any:
        """Return the JSON of the body.

        Raises:
            EngineError: it is none.
        """
        try:
            return json_value(self.body)
        except orjson.JSONDecodeError:
            said = f"{self.call} was answered {self.status} with something that is not JSON: {self.said()!r}"
            raise EngineError(said, is_final=True) from None

    def said(self) -> str:
        """Return the beginning of the body, without secrets."""
        return redacted(self.body[: SHOWN_CHARS * 4].decode("utf-8", "replace").strip(), limit_chars=SHOWN_CHARS)

    def error(self, *, is_final: bool = False) -> EngineError:
        """Return the error that this answer is."""
        said = f": {said}" if (said := self.said()) else ""
        return EngineError(f"{self.call} was answered {self.status}{said}", is_final=is_final)


def broken(call: str, error: aiohttp.ClientError | OSError, *, after: str = "") -> EngineError:
    """Return the error that a failure of the transport stands for, without the headers that it carries."""
    cause = getattr(error, "os_error", error)
    if isinstance(cause, ConnectionRefusedError):
        return NobodyListensError(f"{call} failed: nobody listens there")
    told = getattr(cause, "strerror", None) or error  # of a connection that failed; the call names where to already
    said = redacted(str(told) or type(error).__name__, limit_chars=SHOWN_CHARS)
    if isinstance(error, TimeoutError):
        return ConnectionLostError(f"{call} failed: there was no connection in time")
    return ConnectionLostError(f"{call} failed{f' in {after}' if after else ''}: {said}")


@contextmanager
def no_engine_of_its_kind(kind: str, address: str) -> Iterator[None]:
    """Raise NotAnEngineError for a final refusal within; failures that may pass stay what they are."""
    try:
        yield
    except KeyRefusedError as error:
        raise NotAnEngineError(
            error.message, next_step="Give the engine's api_key, and its admin_key where it has one."
        ) from None
    except EngineError as error:
        if not error.is_final:
            raise
        raise NotAnEngineError(f"what answers at {address} does not speak {kind}'s API: {error.message}") from None
