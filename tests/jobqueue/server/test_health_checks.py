"""Servers that do not answer are taken out, and come back when they do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from headgate.jobqueue import Changes
from headgate.jobqueue.errors import JobQueueError, StoreFailedError
from headgate.jobqueue.resource import ResourceState
from headgate.jobqueue.server.health_checks import HealthChecks, is_refused, trouble_of
from tests.jobqueue.server.conftest import Queue


@asynccontextmanager
async def _answering(answer: bytes, port: int = 0) -> AsyncIterator[int]:
    """Listen, and answer everything with `answer`; empty: never answer."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer:
            writer.write(answer)
        else:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    async with server:
        yield server.sockets[0].getsockname()[1]


def _http(status: int) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % status


@pytest.fixture
async def state(queue: Queue) -> Callable[[], object]:
    async def read() -> tuple[str, str]:
        (one,) = (await queue.http.get("/v1/resources")).json()["resources"]
        return one["state"], one["note"]

    return read


@pytest.mark.parametrize("status", [200, 204, 401, 426])
async def test_whoever_speaks_http_is_alive(status: int) -> None:
    async with _answering(_http(status)) as port:
        assert await trouble_of("127.0.0.1", port, 5) == ""
        assert await trouble_of("localhost", port, 5) == ""


async def test_a_server_of_websockets_that_does_not_know_the_path_is_alive_and_begins_no_episode() -> None:
    begun: list[object] = []

    async def visited(connection: ServerConnection) -> None:
        begun.append(connection)

    def asked(connection: ServerConnection, request: Request) -> Response | None:
        return connection.respond(404, "") if request.path != "/" else None

    async with serve(visited, "127.0.0.1", 0, process_request=asked) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        assert await trouble_of("127.0.0.1", port, 5) == ""
    assert not begun


async def test_what_is_wrong_is_said_in_a_few_words() -> None:
    async with _answering(_http(404)) as port:
        told = await trouble_of("127.0.0.1", port, 5)
        assert told == "answers /healthz and a WebSocket at / with status 404"
    async with _answering(_http(503)) as port:
        assert await trouble_of("127.0.0.1", port, 5) == "answers /healthz with status 503"
    async with _answering(b"SSH-2.0\r\n") as port:
        assert await trouble_of("127.0.0.1", port, 5) == "answers something else than HTTP"
    async with _answering(b"x" * 10_000) as port:
        assert await trouble_of("127.0.0.1", port, 5) == "answers something else than HTTP"
    async with _answering(b"") as port:
        assert await trouble_of("127.0.0.1", port, 0.05) == "no answer within 0.05 s"
    assert (await trouble_of("127.0.0.1", port, 5)).startswith("cannot be reached (")
    assert "link-local" in await trouble_of("169.254.169.254", 80, 5)


async def test_three_failures_take_a_server_out_and_one_answer_brings_it_back(queue: Queue, state) -> None:
    async with _answering(_http(200)) as port:
        pass
    await queue.register({"pool": "p", "host": "127.0.0.1", "port": port})
    checks = HealthChecks(queue.app.state.service)
    for _ in range(2):
        await checks.check_all()
    assert await state() == ("open", "")
    await checks.check_all()
    assert (await state())[0] == "down"
    assert (await state())[1].startswith("health check: cannot be reached")
    async with _answering(_http(200), port):
        await checks.check_all()
    assert await state() == ("open", "")


async def test_an_answer_between_failures_begins_the_count_anew(queue: Queue, state) -> None:
    async with _answering(_http(200)) as port:
        pass
    await queue.register({"pool": "p", "host": "127.0.0.1", "port": port})
    checks = HealthChecks(queue.app.state.service)
    for _ in range(2):
        await checks.check_all()
        await checks.check_all()
        async with _answering(_http(200), port):
            await checks.check_all()
    assert await state() == ("open", "")


async def test_what_an_operator_has_drained_stays_so(queue: Queue, state) -> None:
    async with _answering(_http(200)) as port:
        await queue.register({"pool": "p", "host": "127.0.0.1", "port": port})
        await queue.post("/v1/resources/p/0/drain", {"reason": "by hand"})
        await HealthChecks(queue.app.state.service).check_all()
    checks = HealthChecks(queue.app.state.service)
    for _ in range(4):
        await checks.check_all()
    assert await state() == ("draining", "by hand")


async def test_checks_go_on_after_the_database_has_failed(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _answering(_http(200)) as port:
        pass
    await queue.register({"pool": "p", "host": "127.0.0.1", "port": port})
    queue.set(health_check_every_s=0.001, health_check_failures=1)
    loop, failed = asyncio.get_running_loop(), asyncio.Event()
    commit = queue.store.commit

    def broken(changes: Changes) -> None:
        loop.call_soon_threadsafe(failed.set)
        raise StoreFailedError("the disk is full")

    monkeypatch.setattr(queue.store, "commit", broken)
    checking = asyncio.create_task(HealthChecks(queue.app.state.service).run())
    await failed.wait()
    monkeypatch.setattr(queue.store, "commit", commit)
    now = ResourceState.OPEN
    while now is not ResourceState.DOWN:
        assert not checking.done()
        with contextlib.suppress(JobQueueError):
            now = await queue.writer.do(lambda ledger, _: ledger.resources()["p/0"].state)
    checking.cancel()


@pytest.mark.parametrize(
    ("host", "refused"),
    [
        ("169.254.1.1", True),
        ("wss://169.254.1.1", True),
        ("wss://server1.example.com", False),
        ("[fe80::1]", True),
        ("[::ffff:169.254.169.254]", True),
        ("0xa9fea9fe", True),
        ("100.100.100.200", True),
        ("64:ff9b::a9fe:a9fe", True),
        ("64:ff9b::a00:7", False),
        ("Metadata.Google.Internal.", True),
        ("224.0.0.1", True),
        ("::", True),
        ("10.0.0.7", False),
        ("127.0.0.1", False),
        ("server1.example.com", False),
    ],
)
def test_addresses_are_told_apart_in_every_form(host: str, refused: bool) -> None:
    assert is_refused(host) is refused
