"""Serves an ASGI application through a listener, with limits that uvicorn does not have."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final

import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headgate.net.listener import IDLE_S, Listener

HEAD_BYTES: Final = 32 * 1024
_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@asynccontextmanager
async def serving(
    app: ASGIApp, listener: socket.socket, *, name: str, most: int, stop_s: float, tls: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """Serve an application for as long as the context is open; leaving it finishes requests in progress.

    Args:
        app: what to serve.
        listener: bound and listening; closed at the end.
        name: name of the serving task.
        most: most connections at once.
        stop_s: longest wait, on leaving, for answers that are being written.
        tls: TLS context, or None for plain HTTP.
    """
    config = uvicorn.Config(
        app,
        http=_Protocol,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=round(IDLE_S),
        timeout_graceful_shutdown=max(1, round(stop_s)),
    )
    server = _Server(config)
    server.listen = partial(Listener, listener, most=most, tls=tls)
    task = asyncio.create_task(server.serve(), name=name)
    try:
        yield
    finally:
        server.should_exit = True
        try:
            await task
        finally:
            listener.close()


async def disconnected(request: Request) -> None:
    """Wait until the client of a request, whose body has been read, disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Server(uvicorn.Server):
    """A server that leaves signals to its process and accepts connections through a `Listener`."""

    listen: Callable[[Callable[[], HttpToolsProtocol], Callable[[HttpToolsProtocol], bool]], Listener]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - uvicorn's own
        await self.lifespan.startup()
        self.servers: list[Any] = [
            self.listen(
                lambda: _Protocol(self.config, self.server_state, {}),
                lambda protocol: protocol.cycle is None or protocol.cycle.response_complete,
            )
        ]
        self.started = True


class _Protocol(HttpToolsProtocol):
    """A connection that is closed when the head of a request exceeds `HEAD_BYTES`."""

    _head_bytes = 0

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value))

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_LARGE)
            self.transport.close()
