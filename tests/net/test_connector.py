"""Connections to servers that need not be trusted: whole answers of honest ones, rests for costly ones."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path

import aiohttp
import pytest

from headgate.net import connector
from headgate.net.connector import READ_BUFFER_BYTES, Connector
from headgate.net.tls import server_context
from tests.net.certificates import certificates

CHUNKED = b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
NAMED_GZIP = CHUNKED + b"Content-Encoding: gzip\r\n\r\na\r\n\x1f\x8b\x08\x08\0\0\0\0\0\x03\r\n"
"""Then the name of the packed file, which may have any length and never fills the reader's buffer."""


async def test_a_long_answer_over_tls_is_whole_though_its_server_closes_at_once(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    size, chunk = 40_000, b"a" * 400

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED + b"\r\n" + (b"190\r\n%s\r\n" % chunk) * (size // len(chunk)) + b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    tls = server_context(str(files.certificate), str(files.key))
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        trusted = Connector(ssl=ssl.create_default_context(cafile=str(files.authority)))
        async with aiohttp.ClientSession(connector=trusted, read_bufsize=READ_BUFFER_BYTES) as session:
            for _ in range(3):
                async with session.get(address) as response:
                    assert await response.read() == b"a" * size


class DearClock:
    """By which each look at the CPU's clock, two for each reading, comes 5 ms after the one before."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.looks = 0

    def thread_time(self) -> float:
        self.looks += 1
        return self.looks * 0.005


@pytest.mark.parametrize("begin", [CHUNKED + b"\r\n", NAMED_GZIP], ids=["plain", "packed"])
async def test_connections_that_are_costly_to_read_rest(begin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = DearClock()
    monkeypatch.setattr(connector, "time", clock)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(begin)
            while True:
                writer.write(b"800\r\n%s\r\n" % (b"x" * 2048))
                await writer.drain()
        except ConnectionError:
            writer.close()

    async def read(address: str) -> None:
        async with session.get(address) as response:
            async for _ in response.content.iter_any():
                pass

    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as server,
        aiohttp.ClientSession(connector=Connector(), read_bufsize=READ_BUFFER_BYTES) as session,
    ):
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        reading = [asyncio.create_task(read(address)) for _ in range(20)]
        await asyncio.wait(reading, timeout=1.0)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    assert clock.looks // 2 < 1_000, "without rests, many more"
