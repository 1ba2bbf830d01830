"""What an adapter of vLLM can rely on, and what its mistakes cost."""

from __future__ import annotations

import asyncio

from headgate.simulation.engines import EnginePlan
from tests.simulation.engines.calls import CHAT, called, lost

PLAN = EnginePlan(api="vllm")


async def test_a_sleeping_engine_refuses_requests_until_all_of_it_is_awake() -> None:
    async with called(PLAN) as (engine, caller):
        assert (await caller.post("/sleep?level=1")).status == 200
        assert engine.released == {"weights", "kv_cache"}
        assert (await caller.get("/is_sleeping")).json == {"is_sleeping": True}
        refused = await caller.chat("a")
        assert (refused.status, refused.json["error"]["type"]) == (503, "ServiceUnavailableError")

        assert (await caller.post("/wake_up?tags=weights")).body == b""
        assert engine.released == {"kv_cache"}
        assert (await caller.chat("b")).status == 503
        assert (await caller.post("/wake_up?tags=kv_cache")).json == {"status": "awake"}
        assert (await caller.get("/is_sleeping")).json == {"is_sleeping": False}
        assert (await caller.chat("c")).status == 200


async def test_waking_a_tag_that_is_awake_wakes_nothing_and_is_answered_200() -> None:
    async with called(PLAN) as (engine, caller):
        await caller.post("/sleep")
        await caller.post("/wake_up?tags=weights")
        answer = await caller.post("/wake_up?tags=weights&tags=kv_cache")

        assert (answer.status, answer.body) == (200, b"")
        assert engine.released == {"kv_cache"}


async def test_sleep_aborts_what_runs_by_default() -> None:
    async with called(PLAN) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold(after_tokens=1)
        request = tasks.create_task(caller.chat("a"))
        await engine.until(lambda: engine.generated("chatcmpl-a") == 1)
        await caller.post("/sleep")

        assert (await request).json["choices"][0]["finish_reason"] == "abort"
        assert engine.aborted == ("chatcmpl-a",)
        assert engine.is_asleep


async def test_sleep_that_waits_lets_what_runs_come_to_its_end() -> None:
    async with called(PLAN) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold()
        request = tasks.create_task(caller.chat("a"))
        await engine.until(lambda: engine.running == ("chatcmpl-a",))
        sleep = tasks.create_task(caller.post("/sleep?mode=wait"))
        await engine.until_called("POST /sleep")
        assert (await caller.chat("late")).status == 503
        assert not engine.is_asleep

        engine.finish()
        assert (await request).json["choices"][0]["finish_reason"] == "stop"
        assert (await sleep).status == 200
        assert engine.is_asleep


async def test_the_routes_that_change_it_exist_in_dev_mode_only() -> None:
    async with called(EnginePlan(api="vllm", has_dev_mode=False)) as (_, caller):
        for path in ("/sleep", "/wake_up", "/reset_prefix_cache", "/abort_requests"):
            assert (await caller.post(path)).status == 404
        assert (await caller.get("/is_sleeping")).status == 404
        assert (await caller.get("/health")).status == 200


async def test_without_sleep_mode_sleeping_frees_nothing() -> None:
    async with called(EnginePlan(api="vllm", has_sleep_mode=False)) as (engine, caller):
        settings = (await caller.get("/server_info?config_format=json")).json["vllm_config"]
        assert settings["model_config"]["enable_sleep_mode"] is False
        assert settings["scheduler_config"]["max_num_seqs"] == engine.plan.slots

        assert (await caller.post("/sleep")).status == 200
        assert engine.is_asleep


async def test_an_empty_list_aborts_everything() -> None:
    async with called(PLAN) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold()
        for request_id in "ab":
            tasks.create_task(caller.chat(request_id))
        await engine.until(lambda: len(engine.running) == 2)
        await caller.post("/abort_requests", {"request_ids": []})
        await engine.until(lambda: not engine.running)


async def test_a_request_is_aborted_by_the_id_that_its_answer_bears() -> None:
    async with called(PLAN) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold()
        request = tasks.create_task(caller.chat("a"))
        await engine.until(lambda: engine.running == ("chatcmpl-a",))
        await caller.post("/abort_requests", {"request_ids": ["a"]})
        await caller.get("/health")
        assert engine.running == ("chatcmpl-a",)

        await caller.post("/abort_requests", {"request_ids": ["chatcmpl-a"]})
        answer = await request
        assert answer.json["id"] == "chatcmpl-a"
        assert answer.json["choices"][0]["finish_reason"] == "abort"


async def test_the_prefix_cache_is_not_reset_while_blocks_are_held() -> None:
    async with called(PLAN) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold()
        tasks.create_task(caller.chat("a"))
        await engine.until(lambda: engine.running == ("chatcmpl-a",))
        assert (await caller.post("/reset_prefix_cache")).json == {"success": False}

        engine.finish()
        await engine.until(lambda: engine.answered == ("chatcmpl-a",))
        assert (await caller.post("/reset_prefix_cache")).json == {"success": True}


async def test_metrics_tell_what_runs_and_waits() -> None:
    async with called(EnginePlan(api="vllm", slots=1)) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold()
        for request_id in "ab":
            tasks.create_task(caller.chat(request_id))
        await engine.until(lambda: len(engine.waiting) == 1)
        text = (await caller.get("/metrics")).body.decode()
        assert 'vllm:num_requests_running{engine="0",model_name="fake-model"} 1.0' in text
        assert 'vllm:num_requests_waiting{engine="0",model_name="fake-model"} 1.0' in text
        assert 'vllm:cache_config_info{block_size="1",engine="0",num_gpu_blocks="100000"} 1.0' in text
        engine.finish()


async def test_the_api_key_guards_v1_only() -> None:
    async with called(EnginePlan(api="vllm", api_key="user")) as (_, caller):
        assert (await caller.get("/v1/models")).status == 401
        assert (await caller.get("/v1/models", Authorization="Bearer user")).status == 200
        assert (await caller.post("/sleep")).status == 200


async def test_a_model_that_it_does_not_serve_is_unknown() -> None:
    async with called(PLAN) as (_, caller):
        answer = await caller.post(CHAT, {"model": "other", "messages": [{"role": "user", "content": "x"}]})

        assert answer.status == 404
        assert answer.json["error"]["type"] == "NotFoundError"


async def test_a_stream_has_its_headers_before_it_has_a_slot() -> None:
    async with called(PLAN) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold()
        begun = asyncio.Event()
        tasks.create_task(lost(caller.chat("a", begun=begun, stream=True)))
        await begun.wait()

        assert not engine.answered
        engine.crash()
