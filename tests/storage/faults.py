"""A proxy before a real S3 server that answers 503, stalls, or cuts uploads in half, for chosen requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

Fault = Literal["403", "503", "stall", "cut upload", "cut answer", "lose answer"]
Choice = Callable[[str, str], bool]

_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
_REFUSALS = {
    "503": b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "403": b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(_DENIED), _DENIED),
}


@dataclass
class Proxy:
    """Passes requests on to `upstream`; those that a fault was set for fail in its way.

    `seen` holds method and path of every request.
    """

    upstream: tuple[str, int]
    url: str = ""
    seen: list[tuple[str, str]] = field(default_factory=list)
    _faults: list[tuple[Fault, Choice, int]] = field(default_factory=list)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def fail(self, fault: Fault, times: int, *, method: str = "", path: str = "") -> None:
        """Have the next `times` requests of this method whose path contains `path` fail."""
        self._faults.append((fault, lambda m, p: m.startswith(method) and path in p, times))

    def heal(self) -> None:
        """Pass everything on from now."""
        self._faults.clear()

    def fault_of(self, method: str, path: str) -> Fault | None:
        """Return the fault for a request and count it down."""
        for number, (fault, chosen, times) in enumerate(self._faults):
            if times and chosen(method, path):
                self._faults[number] = (fault, chosen, times - 1)
                return fault
        return None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request per connection."""
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._request(reader, writer)
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
        self.seen.append((method, path))
        fault = self.fault_of(method, path)
        headers = head.lower()
        if b"expect: 100-continue" in headers:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = (
            int(headers.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0]) if b"content-length:" in headers else 0
        )
        if fault == "stall":
            await self._ended.wait()
            return
        body = await reader.readexactly(length)
        if fault in _REFUSALS:
            writer.write(_REFUSALS[fault])
            await writer.drain()
            return
        lines = [
            line for line in head.split(b"\r\n") if line and not line.lower().startswith((b"expect", b"connection"))
        ]
        sent = body[: len(body) // 2] if fault == "cut upload" else body
        up_reader, up_writer = await asyncio.open_connection(*self.upstream)
        up_writer.write(b"\r\n".join([*lines, b"Connection: close", b"", b""]) + sent)
        await up_writer.drain()
        if fault == "cut upload":
            up_writer.close()
            return
        answer = await up_reader.read()
        up_writer.close()
        if fault == "lose answer":
            return
        status, rest = answer.split(b"\r\n", 1)
        answer = status + b"\r\nConnection: close\r\n" + rest.replace(b"Connection: keep-alive\r\n", b"")
        writer.write(answer[: len(answer) - 20] if fault == "cut answer" else answer)
        await writer.drain()


@contextmanager
def proxy_before(upstream: tuple[str, int]) -> Iterator[Proxy]:
    """Run a proxy on a free port, in a thread of its own."""
    proxy = Proxy(upstream)
    started = threading.Event()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=2**20)
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await proxy._ended.wait()
        server.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        if serving:
            await asyncio.wait(serving)
        await asyncio.sleep(0)  # transports close in the next turn

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    started.wait()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(proxy._ended.set)
        thread.join()
        loop.close()
