"""Actors without Ray: a class as users write it, and a handle that calls it as Ray's handles do."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson


class Rollout:
    """An inference engine as somebody would write it into an actor: streams when asked to, sleeps, aborts."""

    def __init__(self, slots: int = 8) -> None:
        self.slots = slots
        self.running: dict[str, asyncio.Event] = {}
        self.ended: list[str] = []
        self.aborted: list[str] = []
        self.is_asleep = False
        self.is_held = False
        self.changed = asyncio.Condition()

    def chat(self, path: str, body: bytes, request_id: str) -> Any:
        asked = orjson.loads(body)
        words = asked["messages"][0]["content"].split() if "messages" in asked else asked["prompt"].split()
        return (self.stream if asked.get("stream") else self.whole)(request_id, words)

    async def whole(self, request_id: str, words: list[str]) -> Any:
        said = [word async for word in self._generate(request_id, words)]
        if words[0] == "refuse":
            return 400, {"error": {"message": "refused"}}
        return {"choices": [{"message": {"role": "assistant", "content": " ".join(said)}}]}

    async def stream(self, request_id: str, words: list[str]) -> AsyncIterator[str]:
        async for word in self._generate(request_id, words):
            yield f"data: {word}\n\n"
        yield "data: [DONE]\n\n"

    async def _generate(self, request_id: str, words: list[str]) -> AsyncIterator[str]:
        may_go = self.running[request_id] = asyncio.Event()
        await self._tell()
        try:
            for index, word in enumerate(words):
                if self.is_held and (index > 0 or len(words) == 1):
                    await may_go.wait()
                if request_id in self.aborted:
                    break
                yield word
        finally:
            self.running.pop(request_id, None)
            self.ended.append(request_id)
            await self._tell()

    async def load(self) -> dict[str, Any]:
        return {
            "running": len(self.running),
            "slots": self.slots,
            "models": ["fake-model"],
            "is_asleep": self.is_asleep,
        }

    async def sleep(self) -> None:
        assert not self.running, "it was not asked first"
        self.is_asleep = True

    async def wake(self) -> None:
        self.is_asleep = False

    async def abort(self, request_id: str) -> None:
        if request_id in self.running:
            self.aborted.append(request_id)
            self.running[request_id].set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self.changed:
            await self.changed.wait_for(condition)

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()


class ActorDiedError(Exception):
    """Stands for the error of a dead actor."""


class Ref:
    """A reference to a result, awaited once it is wanted; the call runs whether anybody awaits it or not."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task

    def __await__(self) -> Any:
        return asyncio.shield(self._task).__await__()


class RefStream:
    """The result of a method that is a generator: an iterator of references."""

    def __init__(self, parts: AsyncIterator[Any]) -> None:
        self._parts: asyncio.Queue[Any] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(parts))

    async def _run(self, parts: AsyncIterator[Any]) -> None:
        async for part in parts:
            await self._parts.put(part)
        await self._parts.put(StopAsyncIteration)

    def break_off(self) -> None:
        self._task.cancel()
        self._parts.put_nowait(ActorDiedError("The actor died unexpectedly before finishing this task."))

    def __aiter__(self) -> RefStream:
        return self

    async def __anext__(self) -> Ref:
        part = await self._parts.get()
        if part is StopAsyncIteration:
            raise StopAsyncIteration
        if isinstance(part, ActorDiedError):
            raise part
        return Ref(asyncio.create_task(_value(part)))


async def _value(part: Any) -> Any:
    return part


class Handle:
    """A handle on an actor: its methods have `.remote`, which returns at once."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self.is_dead = False
        self.hanging = False
        self.failures_left = 0
        self.calls: list[str] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._streams: list[RefStream] = []

    def __getattr__(self, name: str) -> Any:
        return _Remote(self, getattr(self._actor, name), name)

    def start(self, method: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> Any:
        self.calls.append(name)
        if not (self.is_dead or self.hanging or self.failures_left):
            result = method(*arguments)
            if hasattr(result, "__aiter__"):
                self._streams.append(RefStream(result))
                return self._streams[-1]
            return self._ref(result if inspect.isawaitable(result) else _value(result))
        return self._ref(self._fail())

    async def _fail(self) -> None:
        if self.is_dead:
            raise ActorDiedError("The actor died unexpectedly before finishing this task.")
        if self.failures_left:
            self.failures_left -= 1
            raise ConnectionError("the node did not answer")
        await asyncio.Event().wait()

    def _ref(self, awaited: Any) -> Ref:
        task = asyncio.ensure_future(awaited)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return Ref(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    def die(self) -> None:
        self.is_dead = True
        for stream in self._streams:
            stream.break_off()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()


class _Remote:
    def __init__(self, handle: Handle, method: Callable[..., Any], name: str) -> None:
        self._handle, self._method, self._name = handle, method, name

    def remote(self, *arguments: Any) -> Any:
        return self._handle.start(self._method, self._name, arguments)
