"""Plain HTTP calls to a fake engine, as an adapter makes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest

from headgate.simulation.engines import EnginePlan, FakeEngine, serve_engine

CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Called:
    """An answer: its status and its body."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass(frozen=True, slots=True)
class Caller:
    """Calls one engine."""

    session: aiohttp.ClientSession
    engine: FakeEngine

    async def get(self, path: str, **headers: str) -> Called:
        async with self.session.get(self.engine.url + path, headers=headers) as answer:
            return Called(answer.status, await answer.read())

    async def post(self, path: str, body: Mapping[str, Any] | None = None, **headers: str) -> Called:
        async with self.session.post(self.engine.url + path, json=body, headers=headers) as answer:
            return Called(answer.status, await answer.read())

    async def chat(self, request_id: str, *, begun: asyncio.Event | None = None, **more: Any) -> Called:
        """Send a chat whose prompt is its own id, known by that id; `begun` is set when its headers have come."""
        body = {"model": self.engine.plan.model, "messages": [{"role": "user", "content": request_id}], **more}
        headers = {"X-Request-Id": request_id}
        async with self.session.post(self.engine.url + CHAT, json={**body, "rid": request_id}, headers=headers) as got:
            if begun is not None:
                begun.set()
            return Called(got.status, await got.read())


async def lost(call: Awaitable[Called]) -> None:
    """Expect a call to end without an answer, or in the midst of it."""
    with pytest.raises(aiohttp.ClientError):
        await call


@asynccontextmanager
async def called(plan: EnginePlan) -> AsyncIterator[tuple[FakeEngine, Caller]]:
    """Give a running engine and who calls it."""
    async with serve_engine(plan) as engine, aiohttp.ClientSession() as session:
        yield engine, Caller(session, engine)
        engine.core.validate()
