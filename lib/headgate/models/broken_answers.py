"""Answers that go wrong on purpose: silence, cut connections, and bodies that are no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from aiohttp import web

from headgate.models.chat_request import ChatRequest
from headgate.models.faults import Cut, Garbage, Hang
from headgate.models.wire import Completion

_PIECE_BYTES: Final = 64 * 1024


async def send_broken(
    rule: Hang | Cut | Garbage, http: web.Request, request: ChatRequest, answer: Completion
) -> web.StreamResponse:
    """Return the response that `rule` makes of `answer`; a hanging one only ends when the client goes away."""
    match rule:
        case Hang():
            await asyncio.Event().wait()
            raise AssertionError("unreachable: nobody sets the event")
        case Cut():
            return await _cut(rule, http, request, answer)
        case Garbage():
            return await _garbage(rule, http, request, answer)


async def _cut(rule: Cut, http: web.Request, request: ChatRequest, answer: Completion) -> web.StreamResponse:
    whole = b"".join(answer.chunks(with_usage=request.wants_usage)) if request.streams else answer.whole()
    sent = whole[: int(len(whole) * rule.share)]
    if request.streams:
        # Between two events and before the one with the finish reason, as when a router loses its engine.
        sent = sent[: max(sent.rfind(b"\n\n", 0, whole.rfind(b'"finish_reason":"stop"')) + 2, 0)]
    response = _response(request)
    if not request.streams and rule.ending == "reset":
        response.content_length = len(whole)
    await response.prepare(http)
    await response.write(sent)
    if rule.ending == "reset" and http.transport is not None:
        http.transport.close()  # unlike abort() it sends first what was written
    return response


async def _garbage(rule: Garbage, http: web.Request, request: ChatRequest, answer: Completion) -> web.StreamResponse:
    response = _response(request)
    await response.prepare(http)
    if request.streams:
        await response.write(b"data: ")
    for piece in _garbage_pieces(rule, answer):
        await response.write(piece)
    await response.write_eof(b"\n\n" if request.streams else b"")
    return response


def _garbage_pieces(rule: Garbage, answer: Completion) -> Iterator[bytes]:
    match rule.form:
        case "empty":
            return
        case "invalid_utf8":
            yield answer.whole().replace(b'"content":"', b'"content":"\xff\xfe\xc3\x28')
        case "not_json":
            yield b"<html><body>Bad gateway</body></html>"
        case "no_choices":
            yield b'{"object":"chat.completion","choices":[]}'
        case "huge":
            head, tail = answer.whole().split(b'"content":"', 1)
            yield head + b'"content":"'
            for left in range(rule.size_bytes, 0, -_PIECE_BYTES):
                yield b"a" * min(left, _PIECE_BYTES)
            yield tail


def _response(request: ChatRequest) -> web.StreamResponse:
    kind = "text/event-stream" if request.streams else "application/json"
    return web.StreamResponse(headers={"Content-Type": kind})
