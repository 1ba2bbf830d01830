"""A gateway over fake engines that speak HTTP, and what its tests do to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from headgate.core.events import Emit
from headgate.elastic.engines import EngineSpec, open_engine
from headgate.elastic.gateway import Gateway, GatewaySettings, running_gateway
from headgate.elastic.service import ElasticService
from headgate.elastic.settings import ElasticConfig
from headgate.simulation.engines import EnginePlan, FakeEngine, serve_engine
from tests.elastic.service.desk import Wants

QUICK: dict[str, Any] = {
    "monitoring_interval": 0.05,
    "confirm_interval": 0.02,
    "engine_timeout": 5.0,
    "start_timeout": 20.0,
    "failed_retry": 0.2,
    "min_stable_period": 0.0,
}
CHAT = "/v1/chat/completions"


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "one two three"}], **more}


@dataclass
class Door:
    """A gateway, the pool and the engines behind it, and a session of a client in front of it."""

    gateway: Gateway
    service: ElasticService
    engines: list[FakeEngine]
    http: aiohttp.ClientSession
    wants: Wants
    asked: list[asyncio.Task[tuple[int, bytes]]] = field(default_factory=list)

    @property
    def engine(self) -> FakeEngine:
        return self.engines[0]

    def ask(self, **more: Any) -> asyncio.Task[tuple[int, bytes]]:
        """Send a chat, and return what will have its status and body."""

        async def asking() -> tuple[int, bytes]:
            async with self.http.post(CHAT, json=chat(**more)) as answer:
                return answer.status, await answer.read()

        task = asyncio.create_task(asking())
        self.asked.append(task)
        return task

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return when something holds of the gateway; looked at whenever its pool changes."""
        async with asyncio.timeout(30):
            while not holds():
                await self.service.changed()


@asynccontextmanager
async def opened(
    *plans: EnginePlan,
    config: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    model: str | None = None,
    emit: Emit | None = None,
    **settings: Any,
) -> AsyncIterator[Door]:
    """Open a gateway over engines; all of them are awake unless a test wants otherwise."""
    async with AsyncExitStack() as exits:
        engines = [await exits.enter_async_context(serve_engine(plan)) for plan in plans or (EnginePlan(model="m"),)]
        chosen = ElasticConfig(**({"max_workers": len(engines)} | QUICK | dict(config or {})))
        specs = [EngineSpec(url=engine.url, kind=engine.plan.api) for engine in engines]
        wants = Wants(len(engines))
        service = await exits.enter_async_context(
            ElasticService("tests", chosen, [await open_engine(spec, chosen) for spec in specs], policy=wants)
        )
        gateway = await exits.enter_async_context(
            running_gateway(
                service, chosen, GatewaySettings(port=0, **settings), model=model, environ=environ or {}, emit=emit
            )
        )
        http = await exits.enter_async_context(aiohttp.ClientSession(gateway.url))
        door = Door(gateway, service, engines, http, wants)
        yield door
        for task in door.asked:
            task.cancel()
        await asyncio.gather(*door.asked, return_exceptions=True)
