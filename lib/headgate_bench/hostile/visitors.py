"""Attacks by strangers on the network, or pages in a browser, on a server for which they have no token."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

from headgate_bench.hostile.attack import Attack, Ground, Tally
from headgate_bench.jobqueue.served import served

_PATIENCE_S: Final = 20.0
"""Time by which a connection without useful data must be closed."""

_ANSWER_S: Final = 5.0

_CHANGE: Final = "POST /v1/jobs HTTP/1.1\r\n"
_BODY: Final = '{"jobs": [{"id": "1", "team": "t", "task": "x"}]}'
_JSON: Final = f"Content-Type: application/json\r\nContent-Length: {len(_BODY)}\r\n"
_EVIL: Final = ("http://evil.example", "https://127.0.0.1.evil.example:{port}", "null", "http://localhost.evil.example")
_BROWSER: Final = "User-Agent: Mozilla/5.0\r\n"
_HERE: Final = "Host: 127.0.0.1:{port}\r\n"

_PAGES: Final = (
    *(_CHANGE + _HERE + _JSON + f"Origin: {origin}\r\n" for origin in _EVIL),
    *(_CHANGE + _HERE + _JSON + f"Sec-Fetch-Site: {site}\r\n" for site in ("cross-site", "same-site")),
    *(_CHANGE + f"Host: {host}\r\n" + _JSON for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:80")),
    _CHANGE + _HERE + _JSON + _BROWSER + "Sec-Fetch-Site: none\r\nAuthorization: Basic dTpw\r\n",
    "GET /v1/jobs HTTP/1.1\r\nHost: evil.example\r\n",
    "GET /v1/jobs HTTP/1.1\r\n" + _HERE + "Origin: http://evil.example\r\n",
    "POST /done/1?worker=w HTTP/1.1\r\n" + _HERE + "Content-Length: 0\r\nOrigin: http://evil.example\r\n",
)
"""Heads of requests that a page can make a browser send to a server without tokens."""

_BROKEN: Final = (
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1",
    b"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    b"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
    b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: x\r\n" % n for n in range(20_000)) + b"\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
)


async def visitors(ground: Ground) -> Tally:
    """Try attacks on a job queue without tokens, and measure the service of others next to idle connections."""
    async with served(f"sqlite:///{ground.folder}/queue.db", ground.folder) as server:
        tally = await ground.tried(visits(server.port, 2 * ground.tries, ground.rng), at_once=16)
        return await ground.besieged(tally, partial(_healthy, server.port), _idle(server.port))


@asynccontextmanager
async def _idle(port: int) -> AsyncIterator[None]:
    """Keep 600 connections open that send nothing, or only the beginning of a request."""
    async with AsyncExitStack() as stack:
        for number in range(600):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"" if number % 2 else b"GET / HTTP/1.1\r\nX-Slow: ")
        yield


def visits(port: int, tries: int, rng: random.Random) -> Iterator[Attack]:
    """Yield attacks on a server without tokens; `tries` of random bytes, and as many with random bytes in a header."""
    for head in _PAGES:
        text = head.format(port=port) + "\r\n" + (_BODY if _JSON in head else "")
        yield Attack(f"page: {head!r}", partial(_let_in, port, text.encode()))
    garbage = [rng.randbytes(rng.randint(1, 5_000)) for _ in range(tries)]
    lines = [b"GET / HTTP/1.1\r\n" + rng.randbytes(200) + b"\r\n\r\n" for _ in range(tries)]
    for data in (*_BROKEN, *garbage, *lines):
        yield Attack(f"bytes: {data[:40]!r}", partial(_shaken, port, data))
    drips = {"head": (b"", b"X-Slow: 1\r\n"), "body": (b"Content-Length: 9999\r\n\r\n", b"x")}
    for name, (begin, piece) in drips.items():
        opening = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n" + begin
        yield Attack(f"a {name} that comes a byte at a time", partial(_outlasted, port, opening, piece))


async def _said(port: int, data: bytes, within_s: float) -> bytes:
    """Return what the server sends until it closes the connection or the time is up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = bytearray()
    try:
        async with asyncio.timeout(within_s):
            writer.write(data)
            while more := await reader.read(65_536):
                said += more
    except (TimeoutError, OSError):
        pass
    finally:
        writer.close()
    return bytes(said)


async def _let_in(port: int, request: bytes) -> str:
    said = await _said(port, request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1), _ANSWER_S)
    status = said[9:12]
    return "" if status in {b"400", b"403", b"421"} else said[:200].decode(errors="replace") or "no answer"


async def _shaken(port: int, data: bytes) -> str:
    said = await _said(port, data, _ANSWER_S / 5)
    await _healthy(port)
    return said[:200].decode(errors="replace") if said[9:10] == b"5" and said[9:12] != b"501" else ""


async def _outlasted(port: int, begin: bytes, piece: bytes) -> str:
    """Return a message if the server keeps a connection that trickles data; else ""."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    end = loop.time() + 2 * _PATIENCE_S
    try:
        writer.write(begin)
        while loop.time() < end and not reader.at_eof():
            writer.write(piece)
            try:
                async with asyncio.timeout(0.5):
                    if not await reader.read(1024):
                        return ""
            except TimeoutError:
                continue
    except OSError:
        return ""
    finally:
        writer.close()
    return "" if reader.at_eof() else f"the connection was kept for {2 * _PATIENCE_S:g} s"


async def _healthy(port: int) -> None:
    said = await _said(port, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 3.0)
    if not said.startswith(b"HTTP/1.1 200"):
        raise OSError(f"the server answered {said[:100]!r}")
