"""What connections can take of a server's process, whichever framework answers them."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headgate.core.errors import InvalidInputError
from headgate.net import listener
from headgate.net.listener import Listener, bound, free_port, url_of
from tests.net.servers import SERVERS, connected

GOOD = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.fixture(params=SERVERS)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    async with SERVERS[request.param](tmp_path) as url:
        yield url


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nhost: localhost\r\nslow: "])
async def test_a_head_that_does_not_come_ends_the_connection(
    url: str, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HEAD_S", 0.1)
    reader, writer = await connected(url)
    writer.write(sent)
    assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_a_slow_head_behind_a_good_request_ends_the_connection(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HEAD_S", 1.0)
    reader, writer = await connected(url)
    writer.write(GOOD)
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    writer.write(b"GET /health HT")
    assert b"HTTP/1.1 408 " in await reader.read()
    writer.close()


async def test_a_connection_that_is_kept_answers_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HEAD_S", 0.2)
    reader, writer = await connected(url)
    loop = asyncio.get_running_loop()
    end = loop.time() + 0.5
    while loop.time() < end:
        writer.write(GOOD)
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"}")
    writer.close()


@pytest.mark.parametrize("which", SERVERS)
async def test_idle_connections_make_room(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_most_for", lambda _: 8)
    async with SERVERS[which](tmp_path) as url:
        idle = [await connected(url) for _ in range(30)]
        reader, writer = await connected(url)
        writer.write(GOOD)
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        assert await idle[0][0].read() == b""
        for _, one in (*idle, (reader, writer)):
            one.close()


class _Echo(asyncio.Protocol):
    """Is busy from the first byte on; answers with as much as it is told to."""

    def __init__(self, answer: bytes, lost: asyncio.Event) -> None:
        self.is_busy = False
        self.answer = answer
        self.lost = lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.is_busy = True
        self.transport.write(self.answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


@asynccontextmanager
async def _listening(most: int, answer: bytes = b"") -> AsyncIterator[tuple[str, asyncio.Event]]:
    lost = asyncio.Event()
    listening = bound("127.0.0.1", 0)
    accepting = Listener(listening, lambda: _Echo(answer, lost), lambda one: not one.is_busy, most)
    yield url_of(listening), lost
    accepting.close()
    await accepting.wait_closed()


async def test_where_all_are_busy_a_new_connection_is_answered_503() -> None:
    async with _listening(most=4, answer=b"busy") as (url, lost):
        busy = [await connected(url) for _ in range(3)]
        for reader, writer in busy:
            writer.write(b"x")
            assert await reader.readexactly(4) == b"busy"
        reader, writer = await connected(url)
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        writer.close()
        busy[0][1].close()
        await lost.wait()
        reader, writer = await connected(url)
        writer.write(b"x")
        assert await reader.readexactly(4) == b"busy"
        for _, one in (*busy, (reader, writer)):
            one.close()


async def test_who_reads_nothing_of_an_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "IDLE_S", 0.1)
    async with _listening(most=4, answer=b"x" * 50_000_000) as (url, lost):
        host, port = url.partition("//")[2].split(":")
        client = socket.create_connection((host, int(port)))
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"x")
        await lost.wait()
        client.close()


FEW_FILES = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from headgate.telemetry import new_registry, serve_monitor
from tests.telemetry.factories import status

async def main():
    async with serve_monitor(status, new_registry(status), port=0) as server:
        print(server.port, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        files = [open("/dev/null") for _ in range(30)]
        print(len(files), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        while True:
            try:
                files.append(open("/dev/null"))
            except OSError:
                break
        print("full", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        files.clear()
        print("free", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
asyncio.run(main())
"""


async def test_idle_connections_take_no_files_from_the_process_and_fill_no_log() -> None:
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FEW_FILES, stdin=pipe, stdout=pipe, stderr=pipe
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def told() -> str:
        stdin.write(b"\n")
        return (await stdout.readline()).decode().strip()

    url = f"http://127.0.0.1:{(await stdout.readline()).decode().strip()}"
    idle = [await connected(url) for _ in range(300)]
    assert await told() == "30"
    assert await told() == "full"
    idle += [await connected(url) for _ in range(100)]
    assert await told() == "free"
    reader, writer = await connected(url)
    writer.write(GOOD)
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    for _, one in (*idle, (reader, writer)):
        one.close()
    _, said = await process.communicate(b"\n")
    assert process.returncode == 0
    assert said.count(b"\n") < 20, said


def test_of_lines_of_one_kind_a_few_are_written_in_a_minute() -> None:
    sparing = listener._Sparing()

    def line(message: str, at: float) -> str | None:
        record = logging.LogRecord("headgate.net", logging.WARNING, "", 0, message, (7,), None)
        record.created = at
        return record.getMessage() if sparing.filter(record) else None

    said = [line("garbage %d", at) for at in range(50)]
    assert said == ["garbage 7"] * 5 + [None] * 45
    assert line("other %d", 50.0) == "other 7"
    assert line("garbage %d", 61.0) == "garbage 7"


def test_a_free_port_is_none_that_the_kernel_gives_to_somebody_else() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found = [free_port() for _ in range(50)]
    assert max(found) < low
    assert len(set(found)) > 40
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", found[0]))
        taken.listen()
        with pytest.raises(InvalidInputError, match=rf"port {found[0]} cannot be listened on"):
            free_port(found[0])
