"""The OpenAI-compatible API: each request is read, admitted, given to the pool, and answered as its engine answered."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Mapping
from typing import Any, Final

import orjson
from aiohttp import web

from headgate.admission import SUCCESS
from headgate.core import Clock
from headgate.core.errors import HeadgateError
from headgate.elastic.engines import EngineAnswer, Outgoing
from headgate.elastic.errors import BodyTooLargeError, EngineError, PoolClosedError, UnknownModelError
from headgate.elastic.gateway.access import Callers
from headgate.elastic.gateway.admission import FAILED, WITHDRAWN, PoolAdmission
from headgate.elastic.gateway.model_request import CHAT, COMPLETIONS, ModelRequest, read_request
from headgate.elastic.gateway.wire import error_event, json_answer, openai_body
from headgate.elastic.service import ElasticService
from headgate.models import TASK_HEADER
from headgate.net.aiohttp_server import read_body

GROUP_HEADER: Final = "X-Headgate-Group"
REQUEST_ID_HEADER: Final = "X-Request-Id"

_GROUP_CHARS: Final = 100
_MOST_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""An answer that is no stream is held until it is whole."""

_CLIENT_GONE: Final = 499
_EVENTS: Final = "text/event-stream"
_PASSED_ON: Final = ("traceparent", "tracestate", "baggage", TASK_HEADER)
"""Headers that go to the engine: of traces, and the task that baseline agents are told. All others are the client
library's, or could change what the engine does."""


class Completions:
    """The routes under `/v1`. Owned by one gateway, which sets `is_draining` when nothing new is to be taken."""

    def __init__(
        self,
        service: ElasticService,
        admission: PoolAdmission,
        callers: Callers,
        *,
        model: str | None,
        max_body_bytes: int,
        clock: Clock,
    ) -> None:
        self._service = service
        self._admission = admission
        self._callers = callers
        self._models = (model,) if model else service.status().models
        self._max_body_bytes = max_body_bytes
        self._started_at = clock.wall()
        self._ids = map((secrets.token_hex(4) + "{:012x}").format, itertools.count(1))
        self._in_flight = 0
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self.is_draining = False

    def add_to(self, app: web.Application) -> None:
        """Add the routes to an application."""
        app.router.add_post(CHAT, self._complete)
        app.router.add_post(COMPLETIONS, self._complete)
        app.router.add_get("/v1/models", self._list)
        app.router.add_get("/v1/models/{model:.+}", self._show)

    async def emptied(self) -> None:
        """Return when no request is in flight."""
        await self._is_empty.wait()

    async def _list(self, http: web.Request) -> web.Response:
        await self._callers.caller(http.headers)
        return json_answer(orjson.dumps({"object": "list", "data": [self._told(model) for model in self._models]}))

    async def _show(self, http: web.Request) -> web.Response:
        await self._callers.caller(http.headers)
        return json_answer(orjson.dumps(self._told(self._known(http.match_info["model"]))))

    def _told(self, model: str) -> dict[str, Any]:
        owner = f"headgate-elastic {self._service.name}"
        return {"id": model, "object": "model", "created": int(self._started_at), "owned_by": owner}

    async def _complete(self, http: web.Request) -> web.StreamResponse:
        self._in_flight += 1
        self._is_empty.clear()
        try:
            return await self._answered(http)
        except ConnectionResetError:
            return web.Response(status=_CLIENT_GONE)  # nobody will see it
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._is_empty.set()

    async def _answered(self, http: web.Request) -> web.StreamResponse:
        caller = await self._callers.caller(http.headers)
        if self.is_draining:
            raise PoolClosedError(f"The gateway of the pool {self._service.name} stops")
        body = await self._body(http)
        wanted = read_request(http.path, body)
        model = self._known(wanted.model)
        group = _printable(http.headers.get(GROUP_HEADER) or caller.name or wanted.user)
        request_id = next(self._ids)
        outgoing = Outgoing(request_id, http.path, body, _passed_on(http.headers))
        lease = await self._admission.enter(model, group, request_id)
        outcome = FAILED
        try:
            answer = await self._passed(http, outgoing, wanted, group)
            outcome = SUCCESS
        except (asyncio.CancelledError, ConnectionResetError):
            outcome = WITHDRAWN
            raise
        finally:
            self._admission.leave(lease, outcome)
        return answer

    async def _passed(
        self, http: web.Request, outgoing: Outgoing, wanted: ModelRequest, group: str
    ) -> web.StreamResponse:
        """Return the answer of an engine; of a stream, once all of it was sent."""
        async with self._service.request(
            outgoing, tokens=wanted.tokens, prefixes=wanted.prefixes, group=group
        ) as answer:
            headers = {**answer.headers, REQUEST_ID_HEADER: outgoing.request_id}
            if answer.content_type.startswith(_EVENTS):
                return await _streamed(http, answer, headers)
            headers["Content-Type"] = answer.content_type
            return web.Response(body=await _whole(answer), status=answer.status, headers=headers)

    async def answered(self, group: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Answer a chat of a batch, in the name of its owner; an error is the body that a client would get."""
        try:
            wanted = read_request(CHAT, body)
            model, request_id = self._known(wanted.model), next(self._ids)
            if self.is_draining:
                raise PoolClosedError(f"The gateway of the pool {self._service.name} stops")
            lease = await self._admission.enter(model, group, request_id)
            outcome = FAILED
            try:
                outgoing = Outgoing(request_id, CHAT, body, dict(headers))
                async with self._service.request(
                    outgoing, tokens=wanted.tokens, prefixes=wanted.prefixes, group=group
                ) as answer:
                    found = answer.status, await _whole(answer)
                outcome = SUCCESS
            except asyncio.CancelledError:
                outcome = WITHDRAWN
                raise
            finally:
                self._admission.leave(lease, outcome)
        except HeadgateError as error:
            return error.http_status, openai_body(error)
        return found

    async def _body(self, http: web.Request) -> bytes:
        try:
            return await read_body(http)
        except web.HTTPRequestEntityTooLarge:
            raise BodyTooLargeError(f"the body must be at most {self._max_body_bytes} bytes (got more)") from None

    def _known(self, model: str) -> str:
        """Return the model that a request is for; where the engines told of none, any is passed on.

        Raises:
            UnknownModelError: the pool does not serve it.
        """
        if not self._models:
            return ""
        if not model:
            return self._models[0]
        if model not in self._models:
            served = ", ".join(self._models)
            raise UnknownModelError(
                f"no model {model[:100]!r} is served by the pool {self._service.name}, but {served}"
            )
        return model


async def _whole(answer: EngineAnswer) -> bytes:
    parts: list[bytes] = []
    left = _MOST_ANSWER_BYTES
    async for chunk in answer.chunks:
        left -= len(chunk)
        if left < 0:
            raise EngineError(f"an engine answered more than {_MOST_ANSWER_BYTES} bytes that are no stream")
        parts.append(chunk)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _streamed(http: web.Request, answer: EngineAnswer, headers: Mapping[str, str]) -> web.StreamResponse:
    """Pass a stream of events through; one that breaks ends with an event that says so, and without `[DONE]`."""
    response = web.StreamResponse(
        status=answer.status,
        headers={
            **headers,
            "Content-Type": answer.content_type,
            "Cache-Control": "no-cache",
            "X-Accel-Buffering": "no",
        },
    )
    await response.prepare(http)
    events = WholeEvents()
    try:
        async for chunk in answer.chunks:
            if whole := events.cut(chunk):
                await response.write(whole)
        if rest := events.rest():
            await response.write(rest)
    except HeadgateError as error:
        await response.write(error_event(error))
    await response.write_eof()
    return response


def _printable(group: str) -> str:
    """Return the name of a group in a form that every log takes, and that is not longer than one."""
    group = group[:_GROUP_CHARS]
    return group if group.isascii() else group.encode("utf-8", "replace").decode()


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in _PASSED_ON if name in headers}


MOST_HELD_BYTES: Final = 1024 * 1024
"""An event that is longer than this is passed on in parts."""


class WholeEvents:
    """Cuts chunks of a stream where events end. Nearly always a chunk is whole events, and passed on as it is."""

    def __init__(self) -> None:
        self._held = bytearray()

    def cut(self, chunk: bytes) -> bytes:
        """Return what may be passed on: everything up to the end of the last whole event."""
        if not self._held and chunk.endswith(b"\n\n"):
            return chunk
        seen = max(0, len(self._held) - 3)  # the end of an event may have begun there; before it none has
        self._held += chunk
        ends = ((self._held.rfind(mark, seen), len(mark)) for mark in (b"\n\n", b"\r\n\r\n"))
        end = max(place + length if place >= 0 else 0 for place, length in ends)
        if not end and len(self._held) > MOST_HELD_BYTES:
            end = len(self._held)
        whole = bytes(self._held[:end])
        del self._held[:end]
        return whole

    def rest(self) -> bytes:
        """Return what is left at the end of a stream that did not break."""
        rest, self._held = bytes(self._held), bytearray()
        return rest
