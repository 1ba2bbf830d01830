"""An inference engine inside a Ray actor. Needs no import of Ray: it calls the methods of a handle with `.remote`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol, runtime_checkable

import orjson

from headgate.core import redacted
from headgate.elastic.engines.calls import Attempts, UnansweredError, require_idle
from headgate.elastic.engines.engine import EngineAnswer, EngineFacts, Outgoing
from headgate.elastic.errors import EngineError, NotAnEngineError
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import EngineLoad

_METHODS: Final = ("chat", "load", "sleep", "wake", "abort")
_NUMBERS: Final = ("running", "waiting", "slots", "tokens", "token_slots")
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_END: Final = object()


@runtime_checkable
class EngineActor(Protocol):
    """The methods that an actor's class must have; each may be `async`.

        @ray.remote(num_gpus=1, max_concurrency=64)
        class Rollout:
            async def chat(self, path, body, request_id): ...

    An actor runs its calls one by one unless it has `max_concurrency` or `async` methods: only then are `load` and
    `abort` answered while it generates, which a pool needs.
    """

    def chat(self, path: str, body: bytes, request_id: str) -> Any:
        """Answer a request of the OpenAI API: return the body, or `(status, body)`, or yield the parts of a stream.

        A body or part is `bytes`, `str`, or a value to be encoded as JSON. The first part of a stream may be a mapping
        with `status` and `content_type`; by default these are 200 and `text/event-stream`.
        """

    def load(self) -> Mapping[str, Any]:
        """Return a reading: `running`, and if known `waiting`, `slots`, `tokens`, `token_slots`, `is_asleep`.

        An optional key `models` lists the names of the models that it serves.
        """

    def sleep(self) -> Any:
        """Release the memory of an idle engine; do nothing if it is already asleep."""

    def wake(self) -> Any:
        """Take the memory again, and return once it can answer; do nothing if it is already awake."""

    def abort(self, request_id: str) -> Any:
        """Abort a request; do nothing if there is none with that id."""


class RayActorEngine:
    """An actor as an engine. Implements `Engine`; owned by a pool, while the actor belongs to whoever created it.

    A request whose client leaves is aborted by a call, since an actor does not notice that its answer is not read.
    """

    kind = "ray"

    def __init__(self, name: str, handle: Any, config: ElasticConfig) -> None:
        self._attempts = Attempts(config.engine_attempts)
        self.name = name
        self._handle = handle
        self._config = config
        self._aborts: set[asyncio.Task[None]] = set()

    async def check(self) -> EngineFacts:
        """Make sure that the actor has the methods of an engine; return what it reports."""
        if missing := [method for method in _METHODS if not hasattr(getattr(self._handle, method, None), "remote")]:
            raise NotAnEngineError(
                f"the actor {self.name!r} has no method {', '.join(missing)}",
                next_step="Give its class the methods of headgate.elastic.engines.EngineActor.",
            )
        try:
            told = await self._told()
            load = _reading(self.name, told)
        except EngineError as error:
            if not error.is_final:
                raise
            raise NotAnEngineError(error.message) from None
        return EngineFacts(tuple(map(str, told.get("models", ()))), load.slots, load.token_slots, load.is_asleep)

    async def load(self) -> EngineLoad:
        """Return a reading."""
        return _reading(self.name, await self._told())

    async def sleep(self) -> None:
        """Make an idle actor release its memory."""
        load = await self.load()
        if load.is_asleep:
            return
        require_idle(f"the actor {self.name!r}", load)
        await self._call("sleep", within_s=self._config.start_timeout)

    async def wake(self) -> None:
        """Make the actor take its memory again."""
        await self._call("wake", within_s=self._config.start_timeout)

    async def abort(self, request_id: str) -> None:
        """Abort a request."""
        await self._call("abort", request_id, within_s=self._config.engine_timeout)

    @asynccontextmanager
    async def answer(self, request: Outgoing) -> AsyncIterator[EngineAnswer]:
        """Send a request, and yield its answer: a stream if the actor's method is a generator."""
        is_whole = False

        async def chunks(first: Any, rest: AsyncIterator[Any]) -> AsyncIterator[bytes]:
            nonlocal is_whole
            if first is not _END:
                yield _as_bytes(first)
            async for part in rest:
                yield _as_bytes(part)
            is_whole = True

        try:
            sent = self._remote("chat", request.path, request.body, request.request_id)
            if hasattr(sent, "__aiter__"):
                parts = _parts(self.name, sent)
                match await anext(parts, _END):
                    case {"status": int() as status, "content_type": str() as content_type}:
                        yield EngineAnswer(status, content_type, chunks(_END, parts))
                    case first:
                        yield EngineAnswer(200, _EVENTS, chunks(first, parts))
            else:
                status, body = 200, await self._answered("chat", sent)
                match body:
                    case (int() as status, body):
                        pass
                is_whole = True
                yield EngineAnswer(status, _JSON, _once(_as_bytes(body)))
        finally:
            if not is_whole:
                self._abort_behind(request.request_id)

    async def close(self) -> None:
        """Wait for pending aborts; the actor keeps running."""
        while self._aborts:
            await asyncio.wait(self._aborts)

    async def _told(self) -> Mapping[str, Any]:
        told = await self._call("load", within_s=self._config.engine_timeout)
        if not isinstance(told, Mapping):
            raise EngineError(
                f"load() of the actor {self.name!r} must return a mapping (got {told!r:.80})", is_final=True
            )
        return told

    async def _call(self, method: str, *arguments: object, within_s: float) -> Any:
        """Return a method's result; for all methods but `chat`, which are idempotent and may be retried."""

        async def once() -> Any:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    return await self._answered(method, self._remote(method, *arguments))
            raise UnansweredError(f"{method}() of the actor {self.name!r} was not answered within {within_s:g} s")

        return await self._attempts.run(once, once_after=(UnansweredError,))

    def _remote(self, method: str, *arguments: object) -> Any:
        try:
            return getattr(self._handle, method).remote(*arguments)
        except Exception as error:  # noqa: BLE001 - Ray's errors have no common class that can be named without Ray
            raise _failed(self.name, method, error) from None

    async def _answered(self, method: str, sent: Any) -> Any:
        try:
            return await sent if inspect.isawaitable(sent) else sent
        except Exception as error:  # noqa: BLE001 - the actor's own errors surface here, of any class
            raise _failed(self.name, method, error) from None

    def _abort_behind(self, request_id: str) -> None:
        """Abort without waiting: the caller may be being cancelled."""

        async def abort() -> None:
            with suppress(EngineError):  # a dead actor has no request left; one that hangs is detected by its readings
                await self.abort(request_id)

        task = asyncio.create_task(abort(), name=f"abort {request_id}")
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)


async def _parts(name: str, sent: AsyncIterable[Any]) -> AsyncIterator[Any]:
    """Yield the parts of a stream: a Ray generator yields references, any other generator the parts themselves."""
    try:
        async for part in sent:
            yield await part if inspect.isawaitable(part) else part
    except Exception as error:  # noqa: BLE001 - the actor's own errors surface here, of any class
        raise _failed(name, "chat", error) from None


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _failed(name: str, method: str, error: Exception) -> EngineError:
    cause = getattr(error, "cause", None)  # Ray's own error holds the actor's
    if isinstance(cause, EngineError):
        return EngineError(f"{method}() of the actor {name!r} failed: {cause.message}", is_final=cause.is_final)
    said = redacted(str(error).strip().rsplit("\n", 1)[-1], limit_chars=300)
    return EngineError(f"{method}() of the actor {name!r} failed: {type(error).__name__}: {said}")


def _as_bytes(part: Any) -> bytes:
    if isinstance(part, bytes | bytearray):
        return bytes(part)
    return part.encode() if isinstance(part, str) else orjson.dumps(part)


def _reading(name: str, told: Mapping[str, Any]) -> EngineLoad:
    numbers = {field: told[field] for field in _NUMBERS if told.get(field) is not None}
    for field, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise EngineError(
                f"{field} in load() of the actor {name!r} must be an integer >= 0 (got {number!r})", is_final=True
            )
    if "running" not in numbers:
        raise EngineError(f"load() of the actor {name!r} does not report running requests", is_final=True)
    return EngineLoad(**numbers, is_asleep=bool(told.get("is_asleep", False)))
