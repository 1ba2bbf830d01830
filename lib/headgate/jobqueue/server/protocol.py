"""HTTP/1.1 with bounds that uvicorn does not have: on the time a request's head takes, and on its size."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S: Final = 10.0
"""Time in which the head of a request must be there, from its first byte or from the opening of the connection."""

HEAD_BYTES: Final = 32 * 1024


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is closed when the head of a request is slow or large."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(cast("asyncio.Transport", transport))
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._head_is_there()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Begin to wait for the head of a request on a connection that had others before."""
        super().on_message_begin()
        self._head_bytes = 0
        self._wait_for_head()

    def on_url(self, url: bytes) -> None:
        """Count the request's line."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        super().on_header(name, value)
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """Go on to the body."""
        self._head_is_there()
        super().on_headers_complete()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES:
            self._end(b"431 Request Header Fields Too Large")

    def _wait_for_head(self) -> None:
        self._head_is_there()
        self._head_timer = self.loop.call_later(HEAD_S, self._end, b"408 Request Timeout")

    def _head_is_there(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end(self, status: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()
