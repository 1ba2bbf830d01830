"""Engines under test, each with a handle on its other side that looks the same for all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from headgate.elastic.engines import Engine, EngineSpec, Outgoing, open_engine
from headgate.elastic.settings import ElasticConfig
from headgate.simulation.engines import EnginePlan, FakeEngine, serve_engine
from tests.elastic.engines.actors import Handle, Rollout
from tests.elastic.engines.routers import FakeRouter, serve_router

CHAT = "/v1/chat/completions"
PATIENT = ElasticConfig(engine_timeout=20.0, confirm_interval=0.001, drain_timeout=20.0)
IMPATIENT = ElasticConfig(
    engine_timeout=0.05, start_timeout=0.1, engine_attempts=2, confirm_interval=0.001, drain_timeout=0.1
)
KINDS = ("sglang", "vllm", "ray", "smg")


class Inside(Protocol):
    """What a test does to an engine, and sees of it, behind its API."""

    def hold(self) -> None: ...
    def finish(self) -> None: ...
    def hang(self) -> None: ...
    def let_go(self) -> None: ...
    def fail_next(self, times: int) -> None: ...
    def kill(self) -> None: ...
    def is_released(self) -> bool: ...
    def running(self) -> int: ...
    async def until_running(self, count: int) -> None: ...
    def calls(self) -> int: ...


@dataclass
class HttpInside:
    """A fake engine over HTTP."""

    fake: FakeEngine

    def hold(self) -> None:
        self.fake.hold(1)

    def finish(self) -> None:
        self.fake.finish()

    def hang(self) -> None:
        self.fake.hang()

    def let_go(self) -> None:
        self.fake.let_go()

    def fail_next(self, times: int) -> None:
        self.fake.fail_next(times)

    def kill(self) -> None:
        self.fake.crash()

    def is_released(self) -> bool:
        return {"weights", "kv_cache"} <= self.fake.released

    def running(self) -> int:
        return len(self.fake.running)

    async def until_running(self, count: int) -> None:
        await self.fake.core.bell.until(lambda: len(self.fake.running) == count)

    def calls(self) -> int:
        return len(self.fake.calls)


@dataclass
class ActorInside:
    """An actor without Ray."""

    rollout: Rollout
    handle: Handle

    def hold(self) -> None:
        self.rollout.is_held = True

    def finish(self) -> None:
        self.rollout.is_held = False
        for may_go in self.rollout.running.values():
            may_go.set()

    def hang(self) -> None:
        self.handle.hanging = True

    def let_go(self) -> None:
        self.handle.hanging = False

    def fail_next(self, times: int) -> None:
        self.handle.failures_left = times

    def kill(self) -> None:
        self.handle.die()

    def is_released(self) -> bool:
        return self.rollout.is_asleep

    def running(self) -> int:
        return len(self.rollout.running)

    async def until_running(self, count: int) -> None:
        await self.rollout.until(lambda: len(self.rollout.running) == count)

    def calls(self) -> int:
        return len(self.handle.calls)


@dataclass
class Subject:
    """An engine under test: its adapter, its other side, and what else is around it."""

    kind: str
    engine: Engine
    inside: Inside
    spec: EngineSpec
    handle: Handle | None = None
    router: FakeRouter | None = None

    async def opened_again(self, config: ElasticConfig = PATIENT, **changes: object) -> Engine:
        """A second adapter of the same engine, as after a restart of ours."""
        spec = EngineSpec(**{**self.spec.model_dump(), **changes})
        return await open_engine(spec, config, find_actor=lambda _: self.handle)


def chat(request_id: str = "r1", words: str = "one two three", *, stream: bool = False) -> Outgoing:
    """A chat that is answered by its own words."""
    streams = "true" if stream else "false"
    body = f'{{"model":"fake-model","stream":{streams},"messages":[{{"role":"user","content":"{words}"}}]}}'
    return Outgoing(request_id, CHAT, body.encode())


@asynccontextmanager
async def subject_of(kind: str, plan: EnginePlan | None = None) -> AsyncIterator[Subject]:
    """Give an engine of a kind, awake and idle."""
    async with AsyncExitStack() as stack:
        handle, router = None, None
        if kind == "ray":
            rollout = Rollout()
            handle = Handle(rollout)
            stack.push_async_callback(handle.close)
            spec, inside = EngineSpec(url="ray://rollout"), ActorInside(rollout, handle)
        else:
            api = "vllm" if kind == "vllm" else "sglang"
            fake = await stack.enter_async_context(serve_engine(replace(plan or EnginePlan(reply_tokens=3), api=api)))
            written = {"url": fake.url, "kind": api}
            if kind == "smg":
                router = await stack.enter_async_context(serve_router())
                written["router"] = router.url
            spec, inside = EngineSpec(**written), HttpInside(fake)
        engine = await open_engine(spec, PATIENT, find_actor=lambda _: handle)
        stack.push_async_callback(engine.close)
        yield Subject(kind, engine, inside, spec, handle, router)
