"""What an adapter of SGLang can rely on, and what its mistakes cost."""

from __future__ import annotations

import asyncio

import pytest

from headgate.simulation.engines import EnginePlan
from tests.simulation.engines.calls import CHAT, called, lost

SLEEP = {"tags": ["kv_cache", "weights"]}


async def test_a_release_while_a_request_runs_kills_the_engine() -> None:
    async with called(EnginePlan()) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold()
        request = tasks.create_task(lost(caller.chat("a")))
        await engine.until(lambda: engine.running == ("a",))
        await lost(caller.post("/release_memory_occupation", SLEEP))

        assert engine.crashed
        assert "only when server is idle" in engine.crash_reason
        await request
        await lost(caller.get("/ready"))


async def test_an_idle_engine_releases_and_resumes_by_tag_and_answers_again() -> None:
    async with called(EnginePlan()) as (engine, caller):
        assert (await caller.post("/flush_cache")).status == 200
        assert (await caller.post("/release_memory_occupation", SLEEP)).status == 200
        assert engine.released == {"kv_cache", "weights"}

        assert (await caller.post("/resume_memory_occupation", {"tags": ["weights"]})).status == 200
        assert engine.released == {"kv_cache"}
        assert (await caller.post("/resume_memory_occupation", {"tags": ["kv_cache"]})).status == 200
        assert not engine.is_asleep
        assert (await caller.chat("a")).status == 200


async def test_a_release_without_tags_means_all_of_them() -> None:
    async with called(EnginePlan()) as (engine, caller):
        await caller.post("/release_memory_occupation", {})

        assert engine.released == {"kv_cache", "weights"}


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/release_memory_occupation", "Cannot pause allocation"), ("/resume_memory_occupation", "KeyError: 'kv_cache'")],
)
async def test_a_tag_that_is_released_or_resumed_twice_kills_it(path: str, reason: str) -> None:
    async with called(EnginePlan()) as (engine, caller):
        await caller.post("/release_memory_occupation", SLEEP)
        if path == "/resume_memory_occupation":
            await caller.post(path, SLEEP)
        await lost(caller.post(path, SLEEP))

        assert reason in engine.crash_reason


async def test_one_life_of_a_server_is_told_from_the_next_by_its_seed() -> None:
    seeds = set()
    for _ in range(2):
        async with called(EnginePlan()) as (_, caller):
            seeds.add((await caller.get("/server_info")).json["random_seed"])

    assert len(seeds) == 2


@pytest.mark.parametrize("path", [CHAT, "/generate"])
async def test_whatever_computes_on_a_sleeping_engine_kills_it(path: str) -> None:
    async with called(EnginePlan()) as (engine, caller):
        await caller.post("/release_memory_occupation", SLEEP)
        await lost(caller.post(path, {"messages": [{"role": "user", "content": "x"}]}))

        assert "is released" in engine.crash_reason


async def test_a_half_awake_engine_dies_of_a_request() -> None:
    async with called(EnginePlan()) as (engine, caller):
        await caller.post("/release_memory_occupation", SLEEP)
        await caller.post("/resume_memory_occupation", {"tags": ["weights"]})
        await lost(caller.chat("early"))

        assert engine.crashed


async def test_reading_a_sleeping_engine_does_it_no_harm() -> None:
    async with called(EnginePlan()) as (engine, caller):
        await caller.post("/release_memory_occupation", SLEEP)
        for path in ("/ready", "/v1/loads", "/server_info", "/model_info", "/v1/models"):
            assert (await caller.get(path)).status == 200

        assert not engine.crashed


async def test_without_a_memory_saver_a_release_is_answered_and_frees_nothing() -> None:
    async with called(EnginePlan(has_memory_saver=False)) as (engine, caller):
        assert (await caller.get("/server_info")).json["enable_memory_saver"] is False
        assert (await caller.post("/release_memory_occupation", SLEEP)).status == 200

        assert engine.released == {"kv_cache", "weights"}
        assert (await caller.chat("a")).status == 200, "nothing of it is really gone"


async def test_a_busy_engine_does_not_flush_and_an_idle_one_does() -> None:
    async with called(EnginePlan()) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold()
        request = tasks.create_task(caller.chat("a"))
        await engine.until(lambda: engine.running == ("a",))
        assert (await caller.post("/flush_cache")).status == 400

        engine.finish()
        assert (await request).status == 200
        assert (await caller.post("/flush_cache")).status == 200


async def test_loads_count_what_runs_waits_and_is_held_in_the_cache() -> None:
    plan = EnginePlan(slots=2, token_room=1000, reply_tokens=8)
    async with called(plan) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold(after_tokens=3)
        for rid in "abc":
            tasks.create_task(caller.chat(rid))
        await engine.until(lambda: sum(map(engine.generated, "abc")) == 6)
        read = (await caller.get("/v1/loads?include=core")).json["loads"]

        assert len(read) == 1
        expected = {
            "dp_rank": 0,
            "num_running_reqs": 2,
            "num_waiting_reqs": 1,
            "num_used_tokens": 8,
            "max_total_num_tokens": 1000,
            "max_running_requests": 2,
        }
        assert expected.items() <= read[0].items()
        engine.finish()


async def test_an_aborted_request_is_answered_200_with_what_it_has() -> None:
    async with called(EnginePlan()) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold(after_tokens=2)
        request = tasks.create_task(caller.chat("word"))
        await engine.until(lambda: engine.generated("word") == 2)
        assert (await caller.post("/abort_request", {"rid": "word"})).status == 200
        answer = await request

        assert answer.status == 200
        assert answer.json["choices"][0]["finish_reason"] == "abort"
        assert answer.json["choices"][0]["message"]["content"] == "word word"
        assert engine.aborted == ("word",)


async def test_an_abort_means_every_id_that_begins_so_and_nothing_where_the_id_is_unknown() -> None:
    async with called(EnginePlan()) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold()
        for rid in ("r-1", "r-10", "r-2"):
            tasks.create_task(caller.chat(rid))
        await engine.until(lambda: len(engine.running) == 3)
        await caller.post("/abort_request", {"rid": "r-"})
        await caller.post("/abort_request", {"rid": "r-1"})
        await engine.until(lambda: len(engine.running) == 1)

        assert engine.running == ("r-2",)
        assert set(engine.aborted) == {"r-1", "r-10"}
        engine.finish()


async def test_an_id_that_is_in_use_is_refused() -> None:
    async with called(EnginePlan()) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold()
        tasks.create_task(caller.chat("a"))
        await engine.until(lambda: engine.running == ("a",))

        again = await caller.chat("a")
        assert again.status == 400
        assert "Duplicate request ID" in again.json["message"]
        engine.finish()


async def test_control_wants_the_admin_key_and_everything_else_the_api_key() -> None:
    async with called(EnginePlan(api_key="user", admin_key="boss")) as (_, caller):
        assert (await caller.get("/ready")).status == 200
        assert (await caller.get("/v1/loads")).status == 401
        assert (await caller.get("/v1/loads", Authorization="Bearer user")).status == 200
        assert (await caller.post("/flush_cache", Authorization="Bearer user")).status == 401
        assert (await caller.post("/flush_cache", Authorization="Bearer boss")).status == 200
        assert (await caller.post(CHAT, {}, Authorization="Bearer boss")).status == 401


async def test_without_an_admin_key_the_api_key_controls() -> None:
    async with called(EnginePlan(api_key="user")) as (_, caller):
        assert (await caller.post("/flush_cache")).status == 401
        assert (await caller.post("/flush_cache", Authorization="Bearer user")).status == 200


async def test_a_stream_has_no_headers_before_its_first_token() -> None:
    async with called(EnginePlan()) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold()
        begun = asyncio.Event()
        tasks.create_task(lost(caller.chat("a", begun=begun, stream=True)))
        await engine.until(lambda: engine.running == ("a",))
        engine.crash()

    assert not begun.is_set()
