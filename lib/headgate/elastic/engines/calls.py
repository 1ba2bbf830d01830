"""Calls of engines: made again after a failure that may pass, under ids of their own; and what is read of answers."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import aiohttp
import orjson

from headgate.core import ErrorKind, json_value, redacted
from headgate.elastic.errors import EngineError, NotAnEngineError
from headgate.elastic.worker import EngineLoad
from headgate.models import GiveUp, RetryPolicy

T = TypeVar("T")

_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 2.0


class Attempts:
    """Makes a call again after a failure that may pass. Owned by one adapter."""

    def __init__(self, attempts: int) -> None:
        self._pauses = RetryPolicy(max_attempts=attempts, base_s=_FIRST_PAUSE_S, max_s=_LONGEST_PAUSE_S)
        self._rng = random.Random()

    async def run(self, call: Callable[[], Awaitable[T]], *, once_after: tuple[type[EngineError], ...] = ()) -> T:
        """Return what the call returns, at the latest when it was made so often.

        Args:
            call: makes it once.
            once_after: failures after which it is not made again, as after those that are final by themselves.

        Raises:
            EngineError: of the last attempt.
        """
        number = 0
        while True:
            number += 1
            try:
                return await call()
            except EngineError as error:
                next_step = self._pauses.decide(number, ErrorKind.CONNECTION, None, self._rng)
                if error.is_final or isinstance(error, once_after) or isinstance(next_step, GiveUp):
                    raise
            await asyncio.sleep(next_step.after_s)


_REMEMBERED: Final = 4096
"""An engine notices a closed connection soon; a pool sends far fewer requests to one worker in that time."""


class RequestIds:
    """Gives each request that is sent to one engine an id of its own: the request's, where that can be.

    SGLang refuses an id that it still has, so a request that comes back to the same engine needs another one. And it
    aborts every request whose id begins with the one that it is told, so no id may begin with another one.
    """

    def __init__(self) -> None:
        self._in_flight: dict[str, str] = {}
        self._lengths: Counter[int] = Counter()
        """Of the ids in flight: most pools make ids of one length, of which none begins with another one."""
        self._sent: dict[str, None] = {}
        self._serial = itertools.count(1)

    @contextmanager
    def use(self, request_id: str) -> Iterator[str]:
        """Give the id under which a request goes to the engine, while it is there."""
        used = self._free_id(request_id)
        self._sent[used] = None
        if len(self._sent) > _REMEMBERED:
            del self._sent[next(iter(self._sent))]
        self._in_flight[request_id] = used
        self._lengths[len(used)] += 1
        try:
            yield used
        finally:
            self._lengths[len(used)] -= 1
            if not self._lengths[len(used)]:
                del self._lengths[len(used)]
            if self._in_flight.get(request_id) == used:
                del self._in_flight[request_id]

    def of(self, request_id: str) -> str | None:
        """Return the id under which a request is with the engine; None where it is not."""
        return self._in_flight.get(request_id)

    def _free_id(self, request_id: str) -> str:
        if request_id not in self._sent and not self._is_beside_a_beginning(request_id):
            return request_id
        return f"~{next(self._serial)}~{request_id}"

    def _is_beside_a_beginning(self, request_id: str) -> bool:
        """Return whether it is the beginning of an id in flight, or one of them is its beginning."""
        if self._lengths.keys() <= {len(request_id)}:
            return False  # the same id would be among those that were sent
        others = self._in_flight.values()
        return any(other.startswith(request_id) or request_id.startswith(other) for other in others)


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

    def checked(self, *takes: int) -> Reply:
        """Return this answer if the engine did what it was asked for, or its status is one of these; else raise it."""
        if not self.is_ok and self.status not in takes:
            raise self.error()
        return self

    def error(self, *, is_final: bool = False) -> EngineError:
        """Return the error that this answer is."""
        said = f": {said}" if (said := self.said()) else ""
        return EngineError(f"{self.call} was answered {self.status}{said}", is_final=is_final)


def require_idle(what: str, load: EngineLoad) -> None:
    """Raise `EngineBusyError` for an engine that has requests."""
    if not load.is_idle:
        raise EngineBusyError(f"{what} is busy: {load.running} run and {load.waiting} wait")


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


_SAMPLE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)(\{.*\})?\s+(\S+)", re.ASCII)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"', re.ASCII)


def document(reply: Reply) -> Mapping[str, Any]:
    """Return the JSON object of an answer that is one.

    Raises:
        EngineError: the call failed, or the answer is no JSON object.
    """
    if not reply.is_ok:
        raise reply.error(is_final=True)
    found = reply.read()
    if not isinstance(found, Mapping):
        raise EngineError(f"{reply.call} was answered by something that is not a JSON object", is_final=True)
    return found


def members(reply: Reply, name: str) -> list[Mapping[str, Any]]:
    """Return the objects in a list of a document, at least one.

    Raises:
        EngineError: there are none.
    """
    listed = document(reply).get(name)
    found = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, Sequence) else []
    if not found:
        raise EngineError(f"{reply.call} was answered without {name}: {reply.said()!r}", is_final=True)
    return found


def model_names(reply: Reply) -> tuple[str, ...]:
    """Return the names in an answer of `/v1/models`."""
    return tuple(str(model["id"]) for model in members(reply, "data") if "id" in model)


def total(documents: Iterable[Mapping[str, Any]], name: str) -> int | None:
    """Return the sum of a number over all documents; None where one does not tell it."""
    told = [each.get(name) for each in documents]
    numbers = [number for number in told if isinstance(number, int | float)]
    return int(sum(numbers)) if numbers and len(numbers) == len(told) else None


def at_most(limit: int | None, told: int | None) -> int | None:
    """Return the smaller of two numbers that may both be unknown."""
    known = [number for number in (limit, told) if number is not None]
    return min(known) if known else None


def metric_samples(text: str, names: Iterable[str]) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples of some metrics, labels and values, out of a page in Prometheus' text format."""
    wanted: dict[str, list[tuple[dict[str, str], float]]] = {name: [] for name in names}
    for line in text.splitlines():
        sample = _SAMPLE.match(line)
        if sample is None or sample[1] not in wanted:
            continue
        try:
            wanted[sample[1]].append((dict(_LABEL.findall(sample[2] or "")), float(sample[3])))
        except ValueError:
            continue
    return wanted


def with_field(body: bytes, name: str, value: str) -> bytes:
    """Return a JSON object with a field set; what is none stays as it is, for the engine to refuse."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    return orjson.dumps({**found, name: value}) if isinstance(found, dict) else body
