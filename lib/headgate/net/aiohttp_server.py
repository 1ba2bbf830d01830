"""Serves an aiohttp application through a listener, with limits that aiohttp does not have."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from headgate.net.listener import IDLE_S, Listener

BODY_S: Final = 60.0
"""Time for a request's body to arrive."""


@asynccontextmanager
async def serving(
    app: web.Application, listener: socket.socket, *, most: int, stop_s: float, tls: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Serve an application as `asgi.serving` does; the handler is cancelled when its client disconnects."""
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=stop_s, keepalive_timeout=IDLE_S
    )
    await runner.setup()
    accepting = Listener(
        listener,
        runner.server,  # type: ignore[arg-type]  # set by setup
        # aiohttp exposes it nowhere else: a request waits for its handler in `_messages`, then is `_current_request`.
        lambda handler: handler._current_request is None and not handler._messages,  # noqa: SLF001
        most,
        tls,
    )
    try:
        yield
    finally:
        accepting.close()
        await runner.cleanup()


async def read_body(request: web.Request) -> bytes:
    """Return the whole body of a request.

    Raises:
        web.HTTPRequestTimeout: it did not arrive in time.
        web.HTTPRequestEntityTooLarge: it is larger than the application accepts.
    """
    try:
        async with asyncio.timeout(BODY_S):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(reason=f"the body did not arrive within {BODY_S:g} s") from None
