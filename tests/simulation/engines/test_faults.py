"""What goes wrong goes wrong as it was asked for, on both faces."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import get_args

import aiohttp
import pytest

from headgate.core.errors import InvalidInputError
from headgate.simulation.engines import Api, EnginePlan, serve_engine
from tests.simulation.engines.calls import Called, called, lost

both = pytest.mark.parametrize("api", get_args(Api))


@both
async def test_a_client_that_goes_away_takes_its_request_with_it(api: Api) -> None:
    async with called(EnginePlan(api=api, slots=1)) as (engine, caller):
        engine.hold()
        running = asyncio.create_task(caller.chat("a"))
        await engine.until(lambda: len(engine.running) == 1)
        waiting = asyncio.create_task(caller.chat("b", stream=True))
        await engine.until(lambda: len(engine.waiting) == 1)
        waiting.cancel()
        await engine.until(lambda: not engine.waiting)
        running.cancel()
        await engine.until(lambda: not engine.running)

        assert [each.removeprefix("chatcmpl-") for each in engine.aborted] == ["b", "a"]
        assert not engine.answered


@both
async def test_a_crash_breaks_every_connection_at_once_and_nobody_listens(api: Api) -> None:
    async with called(EnginePlan(api=api)) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold(after_tokens=1)
        begun = asyncio.Event()
        tasks.create_task(lost(caller.chat("a")))
        tasks.create_task(lost(caller.chat("b", begun=begun, stream=True)))
        await engine.until(lambda: len(engine.running) == 2)
        await begun.wait()
        engine.crash()
        tasks.create_task(lost(caller.get("/health")))

    assert engine.crash_reason == "kill -9"
    assert not engine.answered
    assert not engine.aborted


@both
async def test_it_hangs_until_it_is_let_go(api: Api) -> None:
    async with called(EnginePlan(api=api)) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hang()
        calls = [tasks.create_task(call) for call in (caller.get("/health"), caller.chat("a"))]
        await engine.until(lambda: len(engine.calls) == 2)
        assert not any(call.done() for call in calls)

        engine.let_go()
        assert [(await call).status for call in calls] == [200, 200]


async def test_one_route_hangs_alone_and_stands_before_it_takes_effect() -> None:
    async with called(EnginePlan(api="vllm")) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hang("/sleep")
        sleep = tasks.create_task(caller.post("/sleep"))
        await engine.until_called("POST /sleep")
        assert (await caller.chat("a")).status == 200
        assert not engine.is_asleep

        engine.let_go()
        await sleep
        assert engine.is_asleep


async def test_a_control_call_takes_effect_although_its_caller_has_gone_away() -> None:
    async with called(EnginePlan()) as (engine, caller):
        engine.hang()
        late = asyncio.create_task(caller.post("/release_memory_occupation", {"tags": ["kv_cache"]}))
        await engine.until_called("POST /release_memory_occupation")
        late.cancel()
        await asyncio.wait([late])
        assert not engine.is_asleep

        engine.let_go()
        await engine.until(lambda: engine.released == {"kv_cache"})


async def test_a_call_made_again_while_the_first_is_under_way_kills_sglang() -> None:
    async with called(EnginePlan(resume_s=0.01)) as (engine, caller), asyncio.TaskGroup() as tasks:
        await caller.post("/release_memory_occupation", {"tags": ["weights"]})
        for _ in range(2):
            tasks.create_task(either(caller.post("/resume_memory_occupation", {"tags": ["weights"]})))
        await engine.until(lambda: engine.crashed)

    assert "KeyError" in engine.crash_reason


async def test_a_stream_stands_still_while_its_engine_hangs() -> None:
    async with called(EnginePlan()) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold(after_tokens=2)
        request = tasks.create_task(caller.chat("a", stream=True))
        await engine.until(lambda: engine.generated("a") == 2)
        engine.hang()
        engine.finish()
        assert engine.generated("a") == 2

        engine.let_go()
        assert (await request).body.endswith(b"data: [DONE]\n\n")


@both
async def test_the_next_control_calls_fail_and_requests_do_not(api: Api) -> None:
    async with called(EnginePlan(api=api)) as (engine, caller):
        engine.fail_next(2)
        assert (await caller.chat("a")).status == 200
        assert [(await caller.get("/health")).status for _ in range(3)] == [502, 502, 200]

        engine.fail_next(1, 503, path="/v1/chat/completions")
        assert (await caller.get("/health")).status == 200
        assert [(await caller.chat(each)).status for each in "bc"] == [503, 200]


async def test_a_call_may_fail_and_take_effect_all_the_same() -> None:
    async with called(EnginePlan(api="vllm")) as (engine, caller):
        engine.fail_next(1, path="/sleep", is_carried_out=True)

        assert (await caller.post("/sleep")).status == 502
        assert engine.is_asleep


async def test_draining_answers_what_is_there_and_refuses_what_comes() -> None:
    async with called(EnginePlan()) as (engine, caller), asyncio.TaskGroup() as tasks:
        engine.hold()
        request = tasks.create_task(caller.chat("a"))
        await engine.until(lambda: engine.running == ("a",))
        drained = tasks.create_task(engine.drain())
        assert (await caller.get("/ready")).status == 503
        assert (await caller.chat("b")).status == 503
        assert not drained.done()

        engine.finish()
        await drained
        assert (await request).status == 200


async def test_an_address_that_is_taken_is_told() -> None:
    async with serve_engine() as engine:
        port = int(engine.url.rpartition(":")[2])
        with pytest.raises(InvalidInputError, match=f"port {port} of 127.0.0.1 is in use"):
            async with serve_engine(port=port):
                pass


@pytest.mark.parametrize(("name", "value"), [("slots", 0), ("token_s", -1.0), ("resume_s", float("nan")), ("api", "x")])
def test_an_impossible_plan_is_refused_with_its_value(name: str, value: object) -> None:
    with pytest.raises(InvalidInputError, match=f"{name} must be .*got"):
        EnginePlan(**{name: value})  # type: ignore[arg-type]


async def either(call: Awaitable[Called]) -> None:
    """Make a call that may be answered or lost."""
    with contextlib.suppress(aiohttp.ClientError):
        await call
