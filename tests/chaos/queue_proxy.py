"""A proxy between workers and their job queue: it delays, cuts, sends again, and loses answers."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

FAULTS = ("delay", "cut request", "cut answer", "lose answer", "send twice", "send again later")
LATEST_S = 4.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said to one sending of a request."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Repeated:
    """A request that came to the server more than once, and what it said each time."""

    path: str
    answers: tuple[Answer, ...]


@dataclass
class QueueProxy:
    """Passes requests on; some of the POSTs fail in one of the ways of `FAULTS`.

    Attributes:
        upstream: the server's port.
        rng: chooses.
        share: of the POSTs that fail.
        repeated: what was sent more than once.
        faults: how often each was done, by fault and path without ids.
    """

    upstream: int
    rng: random.Random
    share: float = 0.0
    port: int = 0
    repeated: list[Repeated] = field(default_factory=list)
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _later: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, request after request."""
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._request(reader, writer):
                pass
        writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Pass one request on; return whether the connection lives on."""
        request = await _message(reader)
        method, path = request.split(b" ", 2)[:2]
        fault = ""
        if method == b"POST" and self.rng.random() < self.share:
            # Of two requests of one claim that stand in line for a server, the later one takes the place of the first.
            faults = [fault for fault in FAULTS if (fault, path) != ("send twice", b"/v1/reservations")]
            fault = self.rng.choice(faults)
            self.faults[fault, _kind(path.decode())] += 1
        if fault == "delay":
            await asyncio.sleep(self.rng.uniform(0, 1.0))
        if fault == "cut request":
            await self._send(request[: -max(1, len(request) // 3)])
            return False
        sending = asyncio.ensure_future(self._send(request))
        twin = asyncio.ensure_future(self._send(request)) if fault == "send twice" else None
        gone = asyncio.ensure_future(reader.read(1))
        # A worker that hangs up hangs up on the server, as long as nothing is done to its request.
        await asyncio.wait({sending} if fault else {sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        await asyncio.wait({gone})
        if not sending.done():
            sending.cancel()
            return False
        answer = sending.result()
        if answer is None:
            return False
        if fault == "send again later":
            twin = asyncio.ensure_future(self._send_later(request))
        if twin is not None:
            self._later.add(asyncio.ensure_future(self._compare(path.decode(), answer, twin)))
        if fault == "lose answer":
            return False
        writer.write(answer[: len(answer) // 2] if fault == "cut answer" else answer)
        await writer.drain()
        return fault != "cut answer"

    async def _compare(self, path: str, first: bytes, twin: asyncio.Future[bytes | None]) -> None:
        second = await twin
        if second is not None:
            self.repeated.append(Repeated(_kind(path), (_read(first), _read(second))))

    async def _send_later(self, request: bytes) -> bytes | None:
        await asyncio.sleep(self.rng.uniform(0, LATEST_S))
        return await self._send(request)

    async def _send(self, request: bytes) -> bytes | None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            return None
        try:
            writer.write(request)
            await writer.drain()
            if not _is_whole(request):
                return None
            return await _message(reader)
        except (ConnectionError, asyncio.IncompleteReadError):
            return None
        finally:
            writer.close()

    async def finish(self) -> None:
        """Return when everything that is to be sent again has been."""
        if self._later:
            await asyncio.wait(self._later, timeout=LATEST_S + 1)


def _kind(path: str) -> str:
    """Return a path without the job's id."""
    parts = path.split("/")
    return parts[-1] if parts[2] == "jobs" and len(parts) > 3 else "/".join(parts[2:])


def _length(head: bytes) -> int:
    lower = head.lower()
    return int(lower.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0]) if b"content-length:" in lower else 0


def _is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    return bool(end) and len(body) == _length(head)


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(_length(head))


def _read(answer: bytes) -> Answer:
    head, _, body = answer.partition(b"\r\n\r\n")
    return Answer(int(head.split(b" ", 2)[1]), body)


@contextmanager
def proxy_before(upstream: int, rng: random.Random, share: float) -> Iterator[QueueProxy]:
    """Run a proxy on a free port, in a thread of its own; leaving sends everything again that is to be."""
    proxy = QueueProxy(upstream, rng, share)
    started = threading.Event()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=2**20)
        proxy.port = server.sockets[0].getsockname()[1]
        started.set()
        await proxy._ended.wait()
        await proxy.finish()
        server.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
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
