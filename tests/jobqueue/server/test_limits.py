"""What one client, or one token, can take of the server."""

from __future__ import annotations

import asyncio
import json

import pytest

from headgate.core import SystemClock
from headgate.jobqueue.server import RunningServer, ServerSettings, running_server
from headgate.net import listener
from headgate.net.authority import Authority, Rate
from headgate.net.tokens import Scope
from tests.jobqueue.server.conftest import JOB, Queue, in_line


async def _opened(server: RunningServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = server.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def test_a_token_that_asks_too_often_is_told_when_to_ask_again(queue: Queue) -> None:
    service = queue.app.state.service
    service.authority = Authority(queue.tokens, rate=Rate(per_s=0.01, burst=2), monotonic=SystemClock().monotonic)
    header = queue.token(Scope.CLAIM)
    for _ in range(2):
        assert (await queue.post("/v1/claims", {"worker": "w"}, headers=header)).status_code == 200
    refused = await queue.post("/v1/claims", {"worker": "w"}, headers=header)
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
    assert 90 <= int(refused.headers["retry-after"]) <= 100
    seeds = await queue.http.get("/job", params={"worker": "w"}, headers=header)
    assert (seeds.status_code, list(seeds.json())) == (429, ["detail"])
    assert "retry-after" in seeds.headers
    other = queue.token(Scope.CLAIM)
    service.authority = Authority(queue.tokens, rate=Rate(per_s=0.01, burst=2))
    assert (await queue.post("/v1/claims", {"worker": "w"}, headers=other)).status_code == 200


async def test_a_token_may_hold_so_many_requests_open(queue: Queue) -> None:
    queue.set(most_open_per_token=3)
    header, other = queue.token(Scope.CLAIM, Scope.LEGACY), queue.token(Scope.CLAIM)
    body = {"worker": "w", "wait_s": 60}
    waiting = [asyncio.create_task(queue.post("/v1/claims", body, headers=header)) for _ in range(3)]
    await in_line(queue.writer, claims=3)
    refused = await queue.post("/v1/claims", body, headers=header)
    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (429, "too_many_open", "1")
    assert (await queue.post("/v1/claims", {"worker": "w"}, headers=other)).status_code == 200
    assert (await queue.http.get("/job", params={"worker": "w"}, headers=header)).status_code == 429
    queue.app.state.service.long_polls.close()
    assert [answer.json() for answer in await asyncio.gather(*waiting)] == [{"jobs": []}] * 3
    assert (await queue.post("/v1/claims", {"worker": "w"}, headers=header)).status_code == 200


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HEAD_S", 0.1)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads may take a time that a good one does not need even on a busy machine."""
    monkeypatch.setattr(listener, "HEAD_S", 1.0)


@pytest.mark.parametrize(
    "sent", [b"", b"GET /health HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nhost: localhost\r\nslow: "]
)
async def test_a_head_that_does_not_come_ends_the_connection(impatient: None, live: RunningServer, sent: bytes) -> None:
    reader, writer = await _opened(live)
    writer.write(sent)
    assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_a_slow_head_behind_a_good_request_ends_the_connection(hasty: None, live: RunningServer) -> None:
    reader, writer = await _opened(live)
    writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    writer.write(b"GET /health HT")
    assert b"HTTP/1.1 408 " in await reader.read()
    writer.close()


async def test_a_long_poll_is_no_slow_head(hasty: None, live: RunningServer) -> None:
    reader, writer = await _opened(live)
    writer.write(_message(b"/v1/claims", {"worker": "w", "wait_s": 1.3}))
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def test_a_head_that_is_too_large_ends_the_connection(live: RunningServer) -> None:
    reader, writer = await _opened(live)
    writer.write(
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + b"".join(b"x-%d: %s\r\n" % (n, b"y" * 2000) for n in range(20))
    )
    assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
    writer.close()


def _message(path: bytes, body: object) -> bytes:
    text = json.dumps(body).encode()
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (path, len(text)) + text


@pytest.mark.slow
async def test_many_workers_can_wait_at_once(live: RunningServer) -> None:
    wanted = 200
    connections = [await _opened(live) for _ in range(wanted + 1)]
    (reader, writer), *waiting = connections
    for number, (_, one) in enumerate(waiting):
        one.write(_message(b"/v1/claims", {"worker": f"w{number}", "wait_s": 100}))
    await in_line(live.service.writer, claims=wanted)
    writer.write(_message(b"/v1/jobs", {"jobs": [{**JOB, "id": str(number), "pool": ""} for number in range(wanted)]}))
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    await asyncio.gather(*(one.readuntil(b'"state":"in_progress"') for one, _ in waiting))
    for _, one in connections:
        one.close()


async def test_beyond_the_most_connections_idle_ones_make_room(live_settings: ServerSettings) -> None:
    async with running_server(live_settings.model_copy(update={"most_connections": 3})) as server:
        held = [await _opened(server) for _ in range(4)]
        reader, writer = await _opened(server)
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"200"
        assert await held[0][0].read() == b""
        for _, other in (*held, (reader, writer)):
            other.close()
