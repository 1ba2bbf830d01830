"""What clients of a gateway see: one answer each, or a sentence that says why not."""

from __future__ import annotations

import asyncio
import io

import aiohttp
import orjson
import pytest

from headgate.core import events
from headgate.elastic.gateway import completions
from headgate.elastic.gateway.completions import _passed_on
from headgate.simulation.engines import EnginePlan, FakeEngine
from tests.elastic.gateway.door import CHAT, Door, chat, opened


async def test_requests_are_spread_over_the_workers() -> None:
    async with opened(EnginePlan(model="m"), EnginePlan(api="vllm", model="m")) as door:
        answers = await asyncio.gather(*(door.ask() for _ in range(8)))

        assert {status for status, _ in answers} == {200}
        assert [len(engine.answered) for engine in door.engines] == [4, 4]


async def test_an_answer_that_nobody_has_seen_yet_is_given_by_another_worker_when_its_own_dies() -> None:
    async with opened(EnginePlan(model="m"), EnginePlan(model="m")) as door:
        for engine in door.engines:
            engine.hold(after_tokens=2)
        answer = door.ask()
        await door.until(lambda: door.service.status().running == 1)
        has = next(worker.worker_id for worker in door.service.status().workers if worker.requests)
        dying, other = sorted(door.engines, key=lambda engine: engine.url != has)
        await dying.until(lambda: len(dying.running) == 1)
        dying.crash()
        await other.until(lambda: len(other.running) == 1)
        other.finish()

        assert (await answer)[0] == 200
        assert len(other.answered) == 1
        counts = door.service.status().counts
        assert (counts.served, counts.handed_over, counts.lost) == (1, 1, 0)


async def test_a_stream_that_breaks_ends_with_an_error_event_after_whole_events_only() -> None:
    async with opened(EnginePlan(model="m")) as door:
        door.engine.hold(after_tokens=2)
        async with door.http.post(CHAT, json=chat(stream=True)) as answer:
            await door.engine.until(lambda: any(r.generated == 2 for r in door.engine.core.requests()))
            door.engine.crash()
            events = (await answer.read()).split(b"\n\n")

        assert events.pop() == b""
        error = orjson.loads(events[-1].removeprefix(b"data: "))["error"]
        assert (error["code"], error["type"]) == ("request_lost", "server_error")
        assert all(orjson.loads(event.removeprefix(b"data: ")) for event in events)
        assert b"data: [DONE]" not in events


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_withdraws_its_request(stream: bool) -> None:
    async with opened(EnginePlan(model="m")) as door:
        door.engine.hold(after_tokens=1)
        answer = door.ask(stream=stream)
        await door.engine.until(lambda: len(door.engine.running) == 1)
        answer.cancel()
        await door.engine.until(lambda: len(door.engine.aborted) == 1)
        await door.until(lambda: door.service.status().counts.withdrawn == 1)

        assert door.gateway.status().admission.in_flight == 0
        assert door.service.status().running == 0


async def test_a_client_that_goes_away_while_it_waits_gives_its_place_up() -> None:
    async with opened(EnginePlan(model="m", slots=1), config={"requests_per_worker_capacity": 1}) as door:
        door.engine.hold()
        first = door.ask()
        await door.engine.until(lambda: len(door.engine.running) == 1)
        second = door.ask()
        third = door.ask()
        await door.until(lambda: door.gateway.status().admission.waiting == 2)
        second.cancel()
        await door.until(lambda: door.gateway.status().admission.waiting == 1)
        door.engine.finish()

        assert (await first)[0] == (await third)[0] == 200
        assert len(door.engine.answered) == 2


async def test_what_is_no_json_is_refused_in_openai_s_shape() -> None:
    async with opened() as door, door.http.post(CHAT, data=b"{nope") as answer:
        error = (await answer.json())["error"]

        assert answer.status == 400
        assert (error["code"], error["type"], error["param"]) == ("invalid_request", "invalid_request_error", None)
        assert error["message"].startswith("the body must be JSON")
        assert door.service.status().counts.arrived == 0


async def test_a_body_that_is_too_large_is_refused_with_the_bound() -> None:
    async with (
        opened(max_body_bytes=1024) as door,
        door.http.post(CHAT, json=chat(user="x" * 2_000)) as answer,
    ):
        assert answer.status == 413
        assert "at most 1024 bytes" in (await answer.json())["error"]["message"]


async def test_a_body_of_too_many_values_is_refused_before_it_is_parsed() -> None:
    body = io.BytesIO(b'{"prompt": [' + b"0," * 2**20 + b"0]}")
    async with opened() as door, door.http.post(CHAT, data=body) as answer:
        assert answer.status == 400
        assert f"at most {2**20:,} values" in (await answer.json())["error"]["message"]


async def test_an_answer_that_is_no_stream_is_held_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completions, "_MOST_ANSWER_BYTES", 100)
    async with opened(EnginePlan(model="m")) as door:
        status, said = await door.ask()
        assert (status, orjson.loads(said)["error"]["code"]) == (502, "engine_failed")
        assert b"more than 100 bytes" in said
        async with door.http.post(CHAT, json=chat(stream=True)) as streamed:
            assert b"data: [DONE]" in await streamed.read()
        assert door.service.status().running == 0


async def test_a_body_that_steers_is_small_and_ten_flaws_of_it_are_told() -> None:
    async with opened() as door:
        for keys, told in ((900, 10), (2000, 1)):  # of a heap of them only the number
            flawed = {f"key{number}": 0 for number in range(keys)}
            async with door.http.post("/elastic/v1/scale", json=flawed) as answer:
                problem = await answer.json()
                assert (answer.status, len(problem["errors"])) == (422, told)
                assert str(keys) in problem["detail"] or str(keys - 1) in problem["detail"]
        async with door.http.post("/elastic/v1/scale", json={"workers": "1" * 70_000}) as answer:
            assert answer.status == 413


async def test_a_path_that_there_is_not_is_told_in_the_shape_of_its_api() -> None:
    async with opened() as door:
        async with door.http.post("/v1/embeddings", json={}) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (404, "not_found")
        async with door.http.get(CHAT) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (405, "method_not_allowed")
        async with door.http.get("/elastic/v1/nothing") as answer:
            assert (answer.status, answer.content_type) == (404, "application/problem+json")


async def test_a_name_of_another_host_is_misdirected_where_there_are_no_tokens() -> None:
    async with opened() as door, door.http.post(CHAT, json=chat(), headers={"Host": "evil.example"}) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (421, "misdirected")


async def test_only_the_model_of_the_pool_is_served_where_one_is_named() -> None:
    async with opened(model="m") as door:
        async with door.http.get("/v1/models") as answer:
            assert [model["id"] for model in (await answer.json())["data"]] == ["m"]
        assert (await door.ask(model="other"))[0] == 404


async def test_a_gateway_that_drains_takes_nothing_new_and_answers_what_it_has() -> None:
    async with opened(EnginePlan(model="m", slots=1), config={"requests_per_worker_capacity": 1}) as door:
        door.engine.hold()
        running, waiting = door.ask(), door.ask()
        await door.engine.until(lambda: len(door.engine.running) == 1)
        await door.until(lambda: door.gateway.status().admission.waiting == 1)
        drained = asyncio.create_task(door.gateway.drain())
        await asyncio.sleep(0)
        async with door.http.post(CHAT, json=chat()) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (503, "pool_closed")
            assert int(answer.headers["Retry-After"]) >= 1
        async with door.http.get("/health") as answer:
            assert answer.status == 503
        door.engine.finish()
        await drained

        assert (await running)[0] == (await waiting)[0] == 200
        assert door.service.status().counts.lost == 0


async def test_what_is_not_answered_in_time_is_told_when_a_gateway_drains() -> None:
    async with opened(EnginePlan(model="m", slots=1), config={"requests_per_worker_capacity": 1}) as door:
        door.engine.hold()
        running, waiting = door.ask(), door.ask()
        await door.engine.until(lambda: len(door.engine.running) == 1)
        await door.until(lambda: door.gateway.status().admission.waiting == 1)
        await door.gateway.drain(0.0)

        for status, body in await asyncio.gather(running, waiting):
            assert (status, orjson.loads(body)["error"]["code"]) == (503, "pool_closed")


async def test_requests_that_begin_alike_go_to_the_same_worker() -> None:
    async with opened(EnginePlan(model="m"), EnginePlan(model="m")) as door:
        for engine in door.engines:
            engine.hold()
        long = {name: [{"role": "system", "content": f"You are {name}. " * 100}] for name in ("Alice", "Bob")}
        had = dict[str, FakeEngine]()
        for name in ("Alice", "Bob"):
            door.ask(messages=long[name])
            await door.until(lambda: door.service.status().running == len(had) + 1)
            had[name] = next(e for e in door.engines if e not in had.values() and _given(door, e))
        for requests in (2, 3):  # the other worker has one
            door.ask(messages=[*long["Bob"], {"role": "user", "content": "again"}])
            await _has(door, had["Bob"], requests)


async def _has(door: Door, engine: FakeEngine, requests: int) -> None:
    await door.until(lambda: _given(door, engine) == requests)


def _given(door: Door, engine: FakeEngine) -> int:
    worker = door.service.status().worker(engine.url)
    assert worker is not None
    return worker.requests


async def test_the_group_is_the_header_s_or_the_token_s_or_the_user_s() -> None:
    told: list[events.Event] = []
    tokens = {"tokens_env": {"alice": "ALICE", "": "NAMELESS"}, "environ": {"ALICE": "of-alice", "NAMELESS": "of-any"}}
    config = {"requests_per_worker_capacity": 1, "queue_timeout": 0.05}
    async with opened(EnginePlan(model="m"), config=config, emit=told.append, **tokens) as door:
        door.engine.hold()
        asked = [
            door.http.post(CHAT, json=chat(user="bob"), headers={"Authorization": f"Bearer {token}"} | more)
            for token, more in (
                ("of-any", {}),
                ("of-any", {}),
                ("of-alice", {}),
                ("of-alice", {"X-Headgate-Group": "nightly"}),
            )
        ]
        first = asyncio.ensure_future(asked[0])
        door.asked.append(first)
        await door.engine.until(lambda: len(door.engine.running) == 1)
        refused = await asyncio.gather(*asked[1:])

    assert [answer.status for answer in refused] == [429, 429, 429]
    assert {event.group for event in told if isinstance(event, events.RequestWaitTimedOut)} == {
        "bob",
        "alice",
        "nightly",
    }


async def test_an_answer_has_the_id_by_which_its_engine_knew_the_request() -> None:
    async with opened(EnginePlan(model="m")) as door, door.http.post(CHAT, json=chat()) as answer:
        assert answer.headers["X-Request-Id"] in door.engine.answered[0]


async def test_connections_are_kept_between_requests() -> None:
    connector = aiohttp.TCPConnector(limit=1)
    async with opened() as door, aiohttp.ClientSession(door.gateway.url, connector=connector) as one:
        for body in (chat(), chat(stream=True), {}, chat(model="other"), chat()):
            async with one.post(CHAT, json=body) as answer:
                await answer.read()
                assert answer.headers.get("Connection") != "close"


def test_engines_are_told_of_traces_and_tasks_and_of_nothing_else_that_a_client_sends() -> None:
    sent = {"X-Headgate-Task": "affine:sat/1/2/3", "traceparent": "00-1", "Authorization": "Bearer k", "Cookie": "c"}

    assert set(_passed_on(sent)) == {"X-Headgate-Task", "traceparent"}
