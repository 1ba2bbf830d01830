"""Common parts of both HTTP APIs: routes, generation, faults injected before the routes, authorization."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import orjson
from aiohttp import web

from headgate.simulation.engines.core import EngineCore
from headgate.simulation.engines.wire import CHAT, COMPLETIONS, Asked, OpenAIAnswer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

GENERATION: Final = frozenset({CHAT, COMPLETIONS, "/generate"})


@dataclass(slots=True)
class Failure:
    """A failure to return for the next calls.

    Attributes:
        left: number of calls still to fail.
        status: their HTTP status.
        path: path of the calls; None for all control routes.
        is_carried_out: whether a call takes effect despite its failure, as when a proxy gave up too early.
    """

    left: int
    status: int
    path: str | None
    is_carried_out: bool


class Trouble:
    """Injects faults into calls before they reach a route. Owned by one engine."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self.calls: list[str] = []
        self.hanging: set[str] = set()
        self.failures: list[Failure] = []
        self._under_way: set[asyncio.Future[web.StreamResponse]] = set()

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Record a call, and let it hang, fail or pass.

        A control call that has arrived is carried out even if its caller has gone; a generation request ends when its
        client goes away.
        """
        self.calls.append(f"{request.method} {request.path}")
        self._core.bell.ring()
        if request.path in GENERATION:
            return await self._carry_out(request, handler)
        await request.read()
        call = asyncio.ensure_future(self._carry_out(request, handler))
        self._under_way.add(call)
        call.add_done_callback(self._under_way.discard)
        return await asyncio.shield(call)

    def close(self) -> None:
        """Cancel the control calls in progress."""
        for call in self._under_way:
            call.cancel()

    async def _carry_out(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        await self._pass_gate(request.path)
        if (failure := self._failure(request.path)) is None:
            answer = await handler(request)
        else:
            if failure.is_carried_out:
                await handler(request)
            answer = web.Response(status=failure.status, text="<html><h1>Bad Gateway</h1></html>")
        await self._pass_gate(request.path)
        if self._core.died_of:
            await never()
        return answer

    async def _pass_gate(self, path: str) -> None:
        await self._core.bell.until(lambda: not self._core.is_stopped and path not in self.hanging)

    def _failure(self, path: str) -> Failure | None:
        for failure in self.failures:
            if path == failure.path or (failure.path is None and path not in GENERATION):
                failure.left -= 1
                if not failure.left:
                    self.failures.remove(failure)
                return failure
        return None


async def generate(http: web.Request, core: EngineCore, asked: Asked, answer: OpenAIAnswer) -> web.StreamResponse:
    """Serve a request, and answer the call with it; the request is aborted if its client goes away.

    vLLM sends the headers of a stream before the request has a slot, SGLang only with the first token, so that it can
    still refuse with a status.
    """
    async with aclosing(core.serve(answer.request)) as tokens:
        if not asked.streams:
            async for _ in tokens:
                pass
            return json_response(answer.whole())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        if core.plan.api == "vllm":
            await response.prepare(http)
        opening = answer.opening()
        async for _ in tokens:
            if not response.prepared:
                await response.prepare(http)
            if piece := opening + answer.piece():
                await response.write(piece)
            opening = b""
        if not response.prepared:
            await response.prepare(http)
        await response.write_eof(answer.closing(with_usage=asked.wants_usage))
        return response


async def never() -> NoReturn:
    """Wait until the connection is gone."""
    await asyncio.Event().wait()
    raise AssertionError("an event that nobody sets was set")


def is_there(weights: str) -> bool:
    """Return whether there are weights at a path."""
    return Path(weights).exists()


def json_response(document: Any, status: int = 200) -> web.Response:
    """Return a JSON answer."""
    return web.Response(body=orjson.dumps(document), status=status, content_type="application/json")


class Face:
    """The routes common to both APIs, over one core."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._plan = core.plan
        self.is_leaving = False

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.is_leaving else 200)

    async def _models(self, _: web.Request) -> web.Response:
        plan = self._plan
        card = {"id": plan.model, "object": "model", "created": 0, "owned_by": plan.api, "root": plan.model}
        return json_response({"object": "list", "data": [{**card, "max_model_len": plan.token_room}]})


def bears(http: web.Request, key: str) -> bool:
    """Return whether a call has `key` as its bearer token."""
    scheme, _, token = http.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(token.encode(), key.encode())
