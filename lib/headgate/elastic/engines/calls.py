"""Calls to engines: retries after transient failures, request ids, and parsing of answers."""

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
    """Retries a call after a transient failure. Owned by one adapter."""

    def __init__(self, attempts: int) -> None:
        self._pauses = RetryPolicy(max_attempts=attempts, base_s=_FIRST_PAUSE_S, max_s=_LONGEST_PAUSE_S)
        self._rng = random.Random()

    async def run(self, call: Callable[[], Awaitable[T]], *, once_after: tuple[type[EngineError], ...] = ()) -> T:
        """Return the result of a call, retrying it up to the number of attempts.

        Args:
            call: makes one attempt.
            once_after: failures that are not retried, besides those that are final.

        Raises:
            EngineError: the error of the last attempt.
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
"""Ids remembered: an engine soon notices a closed connection, and a pool sends it far fewer requests in that time."""


class RequestIds:
    """Assigns a unique id to each request sent to one engine: the request's own id if possible.

    SGLang refuses an id that it still has, so a request that returns to the same engine needs another one. It also
    aborts every request whose id starts with the one given, so no id may be a prefix of another.
    """

    def __init__(self) -> None:
        self._in_flight: dict[str, str] = {}
        self._lengths: Counter[int] = Counter()
        """Lengths of the ids in flight: most pools use ids of one length, none of which is a prefix of another."""
        self._sent: dict[str, None] = {}
        self._serial = itertools.count(1)

    @contextmanager
    def use(self, request_id: str) -> Iterator[str]:
        """Yield the id under which a request is sent to the engine; it is in use until the context ends."""
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
        """Return the id under which a request is at the engine; None if it is not there."""
        return self._in_flight.get(request_id)

    def _free_id(self, request_id: str) -> str:
        if request_id not in self._sent and not self._is_beside_a_beginning(request_id):
            return request_id
        return f"~{next(self._serial)}~{request_id}"

    def _is_beside_a_beginning(self, request_id: str) -> bool:
        """Return whether it is a prefix of an id in flight, or one of them is its prefix."""
        if self._lengths.keys() <= {len(request_id)}:
            return False  # of equal length only the same id could be, and that would be in `_sent`
        others = self._in_flight.values()
        return any(other.startswith(request_id) or request_id.startswith(other) for other in others)


SHOWN_CHARS: Final = 300
"""How much of an answer is quoted in a message."""


class EngineBusyError(EngineError):
    """An engine could not be put to sleep because it has requests; none of its memory was released."""


class UnansweredError(EngineError):
    """A call was sent and not answered in time; it may have taken effect."""


class KeyRefusedError(EngineError):
    """The engine does not accept the given key; always `is_final`."""


class ConnectionLostError(EngineError):
    """The connection broke or could not be made; the engine may have died."""


class NobodyListensError(ConnectionLostError):
    """The connection was refused: no process listens there any more."""


LATE: Final = (UnansweredError,)
"""Failures after which a reading is not retried: its time is over, and another one will follow."""

MAYBE_DONE: Final = (UnansweredError, ConnectionLostError)
"""Failures after which a change may have taken effect, so that a retry would make it twice."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer of a control route.

    Attributes:
        call: method and URL, for messages.
        status: HTTP status.
        body: the raw body.
    """

    call: str
    status: int
    body: bytes

    @property
    def is_ok(self) -> bool:
        """Whether the status says success."""
        return 200 <= self.status < 300

    def read(self) -> Any:
        """Return the JSON of the body.

        Raises:
            EngineError: the body is not JSON.
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
        """Return this answer if its status says success or is in `takes`; else raise it as an EngineError."""
        if not self.is_ok and self.status not in takes:
            raise self.error()
        return self

    def error(self, *, is_final: bool = False) -> EngineError:
        """Return this answer as an error."""
        said = f": {said}" if (said := self.said()) else ""
        return EngineError(f"{self.call} was answered {self.status}{said}", is_final=is_final)


def require_idle(what: str, load: EngineLoad) -> None:
    """Raise `EngineBusyError` if an engine has requests."""
    if not load.is_idle:
        raise EngineBusyError(f"{what} is busy: {load.running} run and {load.waiting} wait")


def broken(call: str, error: aiohttp.ClientError | OSError, *, after: str = "") -> EngineError:
    """Return the EngineError for a transport failure, without the request headers that the exception carries."""
    cause = getattr(error, "os_error", error)
    if isinstance(cause, ConnectionRefusedError):
        return NobodyListensError(f"{call} failed: no process listens there")
    told = getattr(cause, "strerror", None) or error  # `strerror` omits the address, which `call` already names
    said = redacted(str(told) or type(error).__name__, limit_chars=SHOWN_CHARS)
    if isinstance(error, TimeoutError):
        return ConnectionLostError(f"{call} failed: there was no connection in time")
    return ConnectionLostError(f"{call} failed{f' in {after}' if after else ''}: {said}")


@contextmanager
def no_engine_of_its_kind(kind: str, address: str) -> Iterator[None]:
    """Turn final errors raised within into NotAnEngineError; transient failures pass unchanged."""
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
    """Return the JSON object of an answer.

    Raises:
        EngineError: the call failed, or the answer is not a JSON object.
    """
    if not reply.is_ok:
        raise reply.error(is_final=True)
    found = reply.read()
    if not isinstance(found, Mapping):
        raise EngineError(f"{reply.call} was answered by something that is not a JSON object", is_final=True)
    return found


def members(reply: Reply, name: str) -> list[Mapping[str, Any]]:
    """Return the objects in a list field of a document, at least one.

    Raises:
        EngineError: there are none.
    """
    listed = document(reply).get(name)
    found = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, Sequence) else []
    if not found:
        raise EngineError(f"{reply.call} was answered without {name}: {reply.said()!r}", is_final=True)
    return found


def model_names(reply: Reply) -> tuple[str, ...]:
    """Return the model names in an answer of `/v1/models`."""
    return tuple(str(model["id"]) for model in members(reply, "data") if "id" in model)


def total(documents: Iterable[Mapping[str, Any]], name: str) -> int | None:
    """Return the sum of a field over all documents; None if one of them lacks it."""
    told = [each.get(name) for each in documents]
    numbers = [number for number in told if isinstance(number, int | float)]
    return int(sum(numbers)) if numbers and len(numbers) == len(told) else None


def at_most(limit: int | None, told: int | None) -> int | None:
    """Return the smaller of two numbers that may both be unknown."""
    known = [number for number in (limit, told) if number is not None]
    return min(known) if known else None


def metric_samples(text: str, names: Iterable[str]) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples (labels and values) of the named metrics from a page in Prometheus' text format."""
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
    """Return a JSON object with a field set; any other body is returned unchanged, for the engine to refuse."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    return orjson.dumps({**found, name: value}) if isinstance(found, dict) else body
