"""Tells open pages that something has changed, so that they ask for their live part again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.responses import Response

from headgate.core.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.console.app import Console

MOST_STREAMS: Final = 300
"""Pages that are told; beyond them a page asks by itself, every ten seconds."""

EVERY_S: Final = 1.0
"""Time between two messages at least: several sources answer within it."""

_SILENCE_S: Final = 15.0
_RECHECK_S: Final = 5.0


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the stream that every page listens to."""
    sources, access = console.sources, console.access

    async def messages(request: Request) -> AsyncIterator[bytes]:
        # Ended with its connection: the server cancels what streams to nobody.
        with sources.watched():
            revision, checked_at = 0, time.monotonic()
            while not sources.is_closing:
                if time.monotonic() - checked_at > _RECHECK_S:
                    try:
                        await access.viewer(request.headers)
                    except HeadgateError:
                        return  # its token was revoked; the page asks again, and is told to sign in
                    checked_at = time.monotonic()
                now = await sources.changed(revision, _SILENCE_S)
                if now == revision:
                    yield format_sse_event(event="still", data_str=str(revision))
                    continue
                revision = now
                yield format_sse_event(event="tick", data_str=str(revision))
                await asyncio.sleep(EVERY_S)

    @app.get("/live")
    async def live(request: Request) -> Response:
        if sources.viewers >= MOST_STREAMS:
            return JSONResponse({"detail": "many pages are open already"}, 503, {"Retry-After": "10"})
        return EventSourceResponse(messages(request), headers={"X-Accel-Buffering": "no"})
