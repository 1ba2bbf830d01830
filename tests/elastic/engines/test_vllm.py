"""vLLM: its sleep mode, and what it takes for it."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from headgate.elastic.errors import EngineError, NotAnEngineError
from headgate.simulation.engines import EnginePlan, FakeEngine, serve_engine
from tests.elastic.engines.conftest import Open
from tests.elastic.engines.subjects import chat


async def others_call(fake: FakeEngine, path: str) -> None:
    """Change the engine from elsewhere."""
    async with aiohttp.ClientSession() as session, session.post(fake.url + path) as answer:
        assert answer.status == 200


async def test_the_weights_wake_before_the_cache_and_the_prefixes_are_forgotten(opened: Open) -> None:
    async with serve_engine(EnginePlan(api="vllm")) as fake:
        engine = await opened(url=fake.url, kind="vllm")
        await engine.sleep()
        await engine.sleep()
        assert fake.released == {"weights", "kv_cache"}
        await engine.wake()
        await engine.wake()

        changes = [call for call in fake.calls if call.startswith("POST")]
        assert changes == ["POST /sleep", "POST /wake_up", "POST /wake_up", "POST /reset_prefix_cache"]


async def test_one_without_development_mode_is_refused(opened: Open) -> None:
    async with serve_engine(EnginePlan(api="vllm", has_dev_mode=False)) as fake:
        engine = await opened(url=fake.url, kind="vllm")

        with pytest.raises(NotAnEngineError, match="without VLLM_SERVER_DEV_MODE=1, and cannot be put to sleep"):
            await engine.check()


async def test_one_without_sleep_mode_is_refused(opened: Open) -> None:
    async with serve_engine(EnginePlan(api="vllm", has_sleep_mode=False)) as fake:
        engine = await opened(url=fake.url, kind="vllm")

        with pytest.raises(NotAnEngineError, match="without --enable-sleep-mode, and cannot be put to sleep"):
            await engine.check()


async def test_one_that_does_not_take_our_key_is_refused(opened: Open) -> None:
    async with serve_engine(EnginePlan(api="vllm", api_key="right-key")) as fake:
        wrong = await opened(url=fake.url, kind="vllm", api_key="wrong-key")
        with pytest.raises(NotAnEngineError, match="401"):
            await wrong.check()

        right = await opened(url=fake.url, kind="vllm", api_key="right-key")
        assert (await right.check()).models == ("fake-model",)


async def test_a_request_of_others_is_not_lost_when_it_comes_as_the_engine_goes_to_sleep(opened: Open) -> None:
    async with serve_engine(EnginePlan(api="vllm", reply_tokens=3)) as fake:
        engine = await opened(url=fake.url, kind="vllm")
        fake.hold(1)
        fake.hang("/sleep")
        async with asyncio.TaskGroup() as tasks:
            falling_asleep = tasks.create_task(engine.sleep())
            await fake.until_called("POST /sleep")
            other = tasks.create_task(_read(engine))
            await fake.core.bell.until(lambda: len(fake.running) == 1)
            fake.let_go()
            await fake.core.bell.until(lambda: fake.core.is_paused)
            fake.finish()
            await falling_asleep

        assert b'"finish_reason":"stop"' in other.result()
        assert fake.released == {"weights", "kv_cache"}


async def test_an_engine_of_which_others_woke_a_part_is_woken_whole(opened: Open) -> None:
    async with serve_engine(EnginePlan(api="vllm")) as fake:
        engine = await opened(url=fake.url, kind="vllm")
        await engine.sleep()
        await others_call(fake, "/wake_up?tags=weights")
        assert (await engine.load()).is_asleep

        await engine.wake()

        assert not fake.released


async def test_an_engine_that_others_put_to_sleep_is_found_asleep(opened: Open) -> None:
    async with serve_engine(EnginePlan(api="vllm")) as fake:
        engine = await opened(url=fake.url, kind="vllm")
        await others_call(fake, "/sleep?level=1")

        assert (await engine.check()).is_asleep


async def test_a_failure_in_the_midst_of_waking_is_mended_by_the_next_call(opened: Open) -> None:
    async with serve_engine(EnginePlan(api="vllm")) as fake:
        engine = await opened(url=fake.url, kind="vllm")
        await engine.sleep()
        fake.fail_next(1, 500, path="/wake_up", is_carried_out=True)
        with pytest.raises(EngineError, match="500"):
            await engine.wake()

        await engine.wake()

        assert not fake.released
        assert not (await engine.load()).is_asleep


async def test_it_reads_tokens_where_they_are_told(opened: Open) -> None:
    async with serve_engine(EnginePlan(api="vllm", token_room=1000, reply_tokens=3)) as fake:
        engine = await opened(url=fake.url, kind="vllm")
        facts = await engine.check()
        fake.hold(1)
        async with engine.answer(chat(words="one two three", stream=True)) as answer:
            await anext(answer.chunks)
            await fake.core.bell.until(lambda: fake.core.used_tokens == 4)
            load = await engine.load()

    assert facts.slots == load.slots == 8
    if load.token_slots is not None:
        assert load.tokens == round(4 * load.token_slots / 1000)


async def test_what_is_no_vllm_is_refused_by_name(opened: Open) -> None:
    async with serve_engine(EnginePlan(api="sglang")) as fake:
        engine = await opened(url=fake.url, kind="vllm")

        with pytest.raises(NotAnEngineError, match=f"what answers at {fake.url} does not speak vLLM's API"):
            await engine.check()


async def _read(engine: object) -> bytes:
    async with engine.answer(chat()) as answer:  # type: ignore[attr-defined]
        return b"".join([chunk async for chunk in answer.chunks])
