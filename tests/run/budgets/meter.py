"""A meter between a campaign and an endpoint: what reached the endpoint, and what that cost by its own count."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import orjson
from aiohttp import web
from aiohttp.test_utils import TestServer

from headgate.models import serve


@dataclass(frozen=True, slots=True)
class Passed:
    """One request that was answered."""

    model: str
    task: str
    max_tokens: int | None
    tokens: int


@dataclass
class Meter:
    """Passes requests on, and keeps what the endpoint said of each."""

    upstream: str
    base_url: str = ""
    passed: list[Passed] = field(default_factory=list)

    def tokens(self, model: str) -> int:
        """Return the tokens that the endpoint counted for a model."""
        return sum(one.tokens for one in self.passed if one.model == model)

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower().startswith("x-headgate")}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.upstream}/chat/completions", data=body, headers=headers) as answer,
        ):
            whole = await answer.read()
        asked, usage = orjson.loads(body), orjson.loads(whole)["usage"]
        task = str(sorted(headers.items()))
        self.passed.append(Passed(asked["model"], task, asked.get("max_tokens"), usage["total_tokens"]))
        return web.Response(body=whole, status=answer.status, content_type="application/json")


@asynccontextmanager
async def metered() -> AsyncIterator[Meter]:
    """Serve the baseline agents behind a meter."""
    async with serve() as endpoint:
        meter = Meter(endpoint.base_url)
        app = web.Application()
        app.router.add_post("/v1/chat/completions", meter.answer)
        async with TestServer(app) as server:
            meter.base_url = str(server.make_url("/v1"))
            yield meter
