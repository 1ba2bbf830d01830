"""Where tasks come from: this process's samplers, or another server over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import httpx
import pytest

from headgate.core import Model
from headgate.sampling import Demand, HttpTaskProvider, LocalTaskProvider, ModelSampler, SamplingRules
from headgate.sampling.provider import TaskProviderError
from tests.sampling.table import MODELS, NOW, RATES

MODEL = Model("acme/small", uid=7)


class Tasks(BaseHTTPRequestHandler):
    """Answers every request with what a test put here."""

    status: ClassVar[int] = 200
    body: ClassVar[bytes] = b"[]"
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def url() -> Iterator[str]:
    Tasks.status, Tasks.body = 200, b"[]"
    Tasks.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Tasks) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=5.0, verify=False) as made:
        yield made


async def test_tasks_of_a_server_become_demand(url: str, client: httpx.AsyncClient) -> None:
    Tasks.body = json.dumps(
        [{"env": "affine:sat", "task_id": 41}, {"environment": "e", "sequence": 0, "x": 1}]
    ).encode()
    provider = HttpTaskProvider(url + "/", client)
    provider.roster_changed([MODEL])
    assert provider.next_at(NOW) == NOW
    demand, events = await provider.take(NOW)
    assert demand == [Demand(MODEL.key, "affine:sat", NOW, 0.0, 41), Demand(MODEL.key, "e", NOW, 0.0, 0)]
    assert list(events) == []
    assert Tasks.asked == ["/tasks/7"]
    assert provider.next_at(NOW) == NOW + 30.0


async def test_a_server_without_tasks_is_asked_again_later(url: str, client: httpx.AsyncClient) -> None:
    provider = HttpTaskProvider(url, client, poll_s=12.0)
    provider.roster_changed([MODEL])
    assert await provider.take(NOW) == ([], ())
    assert provider.next_at(NOW + 5) == NOW + 12.0
    assert provider.next_at(NOW + 60) == NOW + 60


async def test_without_models_nobody_is_asked(url: str, client: httpx.AsyncClient) -> None:
    provider = HttpTaskProvider(url, client)
    assert provider.next_at(NOW) is None
    assert await provider.take(NOW) == ([], ())
    assert Tasks.asked == []


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b"[]"),
        (404, b"[]"),
        (200, b"<html>not json"),
        (200, b""),
        (200, b"\xff\xfe\x00"),
        (200, b"{}"),
        (200, b"null"),
        (200, b"7"),
        (200, b'{"tasks": []}'),
        (200, b"[1, 2]"),
        (200, b'[["e", 1]]'),
        (200, b'[{"env": "e"}]'),
        (200, b'[{"task_id": 1}]'),
        (200, b'[{"env": "e", "task_id": null}]'),
        (200, b'[{"env": "e", "task_id": "one"}]'),
        (200, b'[{"env": "e", "task_id": 1.5}]'),
        (200, b'[{"env": "e", "task_id": Infinity}]'),
        (200, b'[{"env": "e", "task_id": -1}]'),
        (200, b'[{"env": "e", "task_id": 99999999999999999999999}]'),
        (200, b'[{"env": ["e"], "task_id": 1}]'),
        (200, b"[" * 100_000),
    ],
)
async def test_what_is_no_list_of_tasks_is_one_typed_error(
    url: str, client: httpx.AsyncClient, status: int, body: bytes
) -> None:
    Tasks.status, Tasks.body = status, body
    provider = HttpTaskProvider(url, client)
    provider.roster_changed([MODEL])
    with pytest.raises(TaskProviderError, match="task provider http") as failed:
        await provider.take(NOW)
    assert len(failed.value.message) < 1_500
    assert provider.next_at(NOW) == NOW + 5.0


async def test_a_server_that_is_away_for_days_is_asked_at_growing_intervals_and_found_when_it_is_back(
    client: httpx.AsyncClient, url: str
) -> None:
    Tasks.status = 503
    provider = HttpTaskProvider(url, client)
    provider.roster_changed([MODEL])
    pauses = []
    for _ in range(8):
        with pytest.raises(TaskProviderError):
            await provider.take(NOW)
        pauses.append((provider.next_at(NOW) or 0.0) - NOW)
    assert pauses == [5.0, 10.0, 20.0, 40.0, 50.0, 50.0, 50.0, 50.0]
    provider._failures = 5_000
    with pytest.raises(TaskProviderError):
        await provider.take(NOW)
    Tasks.status = 200
    await provider.take(NOW)
    assert provider.next_at(NOW) == NOW + 30.0


async def test_a_server_that_fails_for_one_model_gives_the_others_their_tasks(
    url: str, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def do_get(self: Tasks) -> None:
        self.status = 500 if self.path == "/tasks/8" else 200
        answer(self)

    answer = Tasks.do_GET
    monkeypatch.setattr(Tasks, "do_GET", do_get)
    Tasks.body = b'[{"env": "e", "task_id": 1}]'
    provider = HttpTaskProvider(url, client)
    provider.roster_changed([Model(f"acme/{uid}", uid=uid) for uid in (7, 8, 9)])
    demand, (event,) = await provider.take(NOW)
    assert [one.model for one in demand] == ["acme/7@main", "acme/9@main"]
    assert "/tasks/8" in str(event)
    assert provider.next_at(NOW) == NOW + 5.0


async def test_models_behind_one_without_an_answer_are_asked_first_the_next_time(
    url: str, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def do_get(self: Tasks) -> None:
        if self.path == "/tasks/7":
            self.close_connection = True
        else:
            answer(self)

    answer = Tasks.do_GET
    monkeypatch.setattr(Tasks, "do_GET", do_get)
    Tasks.body = b'[{"env": "e", "task_id": 1}]'
    provider = HttpTaskProvider(url, client)
    provider.roster_changed([Model(f"acme/{uid}", uid=uid) for uid in (7, 8)])
    with pytest.raises(TaskProviderError):
        await provider.take(NOW)
    demand, _ = await provider.take(NOW)
    assert [one.model for one in demand] == ["acme/8@main"]


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "http://[half", "no-scheme"])
async def test_an_address_that_nobody_answers_is_the_same_typed_error(address: str, client: httpx.AsyncClient) -> None:
    provider = HttpTaskProvider(address, client)
    provider.roster_changed([MODEL])
    with pytest.raises(TaskProviderError):
        await provider.take(NOW)


# The samplers of this process.


def _local(models: int) -> tuple[LocalTaskProvider, dict[str, ModelSampler]]:
    samplers = {
        m.key: ModelSampler(m, RATES, SamplingRules(), ordinal=n, now=NOW) for n, m in enumerate(MODELS[:models])
    }
    provider = LocalTaskProvider(samplers)
    provider.touch(samplers, NOW)
    return provider, samplers


async def test_the_local_provider_wants_to_be_asked_when_its_first_sampler_does() -> None:
    provider, samplers = _local(20)
    first = min(sampler.next_at(NOW) or 0.0 for sampler in samplers.values())
    assert provider.next_at(NOW) == first
    demand, _ = await provider.take(first)
    assert [d.due_at for d in demand] == [first]
    assert (provider.next_at(first) or 0.0) > first


async def test_an_hour_of_95_models_wakes_as_often_as_there_are_samples() -> None:
    provider, _ = _local(95)
    wakes, demanded = 0, 0
    while (at := provider.next_at(NOW)) is not None and at <= NOW + 3_600:
        demand, _ = await provider.take(at)
        wakes, demanded = wakes + 1, demanded + len(demand)
    # The first sample comes at once, so that an hour holds up to one more of a pair.
    in_an_hour = 3 * sum(RATES.values()) / 24
    assert 95 * in_an_hour * 0.99 <= demanded <= 95 * (in_an_hour + len(RATES))
    assert wakes <= demanded


async def test_a_herd_is_taken_in_portions() -> None:
    samplers = {
        f"m{n}@main": ModelSampler(Model(f"m{n}"), {"e": 100.0}, SamplingRules(), ordinal=n, now=NOW)
        for n in range(600)
    }
    provider = LocalTaskProvider(samplers)
    provider.touch(samplers, NOW)
    portions = []
    while len((await provider.take(NOW + 600.0))[0]):
        portions.append(1)
    assert len(portions) >= 2


async def test_a_sampler_that_has_just_left_is_passed_over() -> None:
    provider, samplers = _local(3)
    del samplers[MODELS[1].key]
    demand, _ = await provider.take(NOW + 600.0)
    assert {d.model for d in demand} == {MODELS[0].key, MODELS[2].key}


async def test_the_timers_of_models_that_left_the_roster_go_with_them() -> None:
    provider, samplers = _local(2)
    del samplers[MODELS[0].key]
    provider.roster_changed([MODELS[1]])
    assert provider.next_at(NOW) == samplers[MODELS[1].key].next_at(NOW)
    provider.roster_changed([])
    assert provider.next_at(NOW) is None


async def test_a_server_whose_answer_drips_for_ever_has_failed() -> None:
    gone = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not gone.is_set():
            writer.write(b" ")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gone.wait(), 0.02)
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server, httpx.AsyncClient(timeout=0.2) as client:
        provider = HttpTaskProvider(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", client)
        provider.roster_changed([MODEL])
        with pytest.raises(TaskProviderError, match=r"no whole answer within 0\.2 s"):
            await asyncio.wait_for(provider.take(NOW), 20)
        gone.set()
    assert provider.next_at(NOW) == NOW + 5.0
