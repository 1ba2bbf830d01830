"""A provider of batches that counts what it was asked, and that misbehaves where a test wants it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from headgate.core import SystemClock
from headgate.models import BatchRoutes

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Wrong = Callable[[web.Request, Handler], Awaitable[web.StreamResponse | None]]
"""Answers a request in place of the provider, or after it; None leaves it to the provider."""


@dataclass
class Provider:
    """What it was asked: by themselves, and in batches, by the last message."""

    url: str = ""
    now: Counter[str] = field(default_factory=Counter)
    batched: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    created: dict[str, list[str]] = field(default_factory=dict)
    """The `custom_id`s of each batch that was acknowledged, or could have been."""
    wrong: Wrong | None = None
    reply: Callable[[str], str] = "answer to {}".format
    fails: Callable[[str], bool] = lambda _: False

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"


def _completion(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return json.dumps({"object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}).encode()


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    """Serve one."""
    made = Provider()

    def said(body: bytes) -> str:
        return str(json.loads(body)["messages"][-1]["content"])

    async def in_batch(_: str, body: bytes, __: Mapping[str, str]) -> tuple[int, bytes]:
        made.batched[said(body)] += 1
        if made.fails(said(body)):
            return 500, b'{"error": {"message": "no"}}'
        return 200, _completion(made.reply(said(body)))

    async def chat(http: web.Request) -> web.Response:
        text = said(await http.read())
        made.now[text] += 1
        return web.Response(body=_completion(made.reply(text)), content_type="application/json")

    async def owner(_: web.Request) -> str:
        return ""

    @web.middleware
    async def misbehaving(http: web.Request, handler: Handler) -> web.StreamResponse:
        made.calls[f"{http.method} {http.path.removeprefix('/v1/').split('/')[0]}"] += 1
        answer = None if made.wrong is None else await made.wrong(http, handler)
        answer = await handler(http) if answer is None else answer
        for batch in routes._batches.values():
            if batch.id not in made.created:
                lines = batch.source.data.splitlines()
                made.created[batch.id] = [json.loads(line)["custom_id"] for line in lines]
        return answer

    routes = BatchRoutes(in_batch, owner, SystemClock())
    app = web.Application(middlewares=[misbehaving])
    app.router.add_post("/v1/chat/completions", chat)
    routes.add_to(app)
    server = TestServer(app)
    async with routes.working():
        await server.start_server()
        made.url = str(server.make_url("")).rstrip("/")
        try:
            yield made
        finally:
            await server.close()


def lines_of(answer: web.StreamResponse) -> list[dict[str, Any]]:
    """The results in an answer."""
    assert isinstance(answer, web.Response)
    assert isinstance(answer.body, bytes)
    return [json.loads(line) for line in answer.body.splitlines()]
