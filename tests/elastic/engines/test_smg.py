"""A gateway's worker: in its list while awake, out of it before it sleeps."""

from __future__ import annotations

import asyncio

import pytest

from headgate.elastic.engines import SmgEngine
from headgate.elastic.errors import EngineError, NotAnEngineError
from headgate.simulation.engines import EnginePlan, serve_engine
from tests.elastic.engines.conftest import Open
from tests.elastic.engines.routers import serve_router
from tests.elastic.engines.subjects import PATIENT, chat

BRIEF = PATIENT.model_copy(update={"drain_timeout": 0.05})


async def test_it_is_added_when_it_wakes_and_taken_out_before_anything_is_released(opened: Open) -> None:
    async with serve_engine() as fake, serve_router(looks=3) as router:
        engine = await opened(url=fake.url, router=router.url)
        await engine.check()
        assert router.urls == [fake.url]

        fake.hang("/flush_cache")
        falling_asleep = asyncio.create_task(engine.sleep())
        await fake.until_called("POST /flush_cache")
        assert router.workers == {}
        fake.let_go()
        await falling_asleep

        fake.hang("/ready")
        waking = asyncio.create_task(engine.wake())
        await fake.until_called("GET /ready")
        assert router.workers == {}
        fake.let_go()
        await waking
        assert router.urls == [fake.url]


async def test_the_gateway_makes_no_pause_of_its_own(opened: Open) -> None:
    async with serve_engine(EnginePlan(api_key="right-key")) as fake, serve_router() as router:
        engine = await opened(url=fake.url, router=router.url, api_key="right-key")
        await engine.check()

        assert router.asked == [{"url": fake.url, "health": {"drain_settle_secs": 0}, "api_key": "right-key"}]


async def test_what_the_gateway_had_sent_runs_to_its_end_before_the_engine_sleeps(opened: Open) -> None:
    async with serve_engine(EnginePlan(reply_tokens=3)) as fake, serve_router() as router:
        engine = await opened(url=fake.url, router=router.url)
        gateway = await opened(url=fake.url, kind="sglang")
        await engine.check()
        fake.hold(1)
        async with asyncio.TaskGroup() as tasks:
            sent = tasks.create_task(_read(gateway))
            await fake.core.bell.until(lambda: len(fake.running) == 1)
            falling_asleep = tasks.create_task(engine.sleep())
            await fake.until_called("GET /v1/loads", times=4)
            assert not falling_asleep.done()
            fake.finish()
        assert b'"finish_reason":"stop"' in sent.result()
        assert fake.released == {"weights", "kv_cache"}


async def test_an_engine_that_does_not_get_idle_is_a_worker_again(opened: Open) -> None:
    async with serve_engine() as fake, serve_router() as router:
        engine = await opened(BRIEF, url=fake.url, router=router.url)
        gateway = await opened(url=fake.url, kind="sglang")
        await engine.check()
        fake.hold(1)
        async with gateway.answer(chat(stream=True)) as answer:
            await anext(answer.chunks)

            with pytest.raises(EngineError, match="was busy for"):
                await engine.sleep()

            assert router.urls == [fake.url]
            assert not fake.released


async def test_an_engine_that_is_found_busy_at_the_last_moment_is_a_worker_again(opened: Open) -> None:
    async with serve_engine() as fake, serve_router() as router:
        engine = await opened(url=fake.url, router=router.url)
        await engine.check()
        fake.fail_next(1, 400, path="/flush_cache")

        with pytest.raises(EngineError, match="is busy: it does not flush its cache"):
            await engine.sleep()

        assert router.urls == [fake.url]
        assert not fake.released


async def test_check_puts_the_gateway_s_list_right(opened: Open) -> None:
    async with serve_engine() as fake, serve_router() as router:
        engine = await opened(url=fake.url, router=router.url)
        await engine.check()
        alone = await opened(url=fake.url, kind="sglang")
        await alone.sleep()

        again = await opened(url=fake.url, router=router.url)
        await again.check()

        assert router.workers == {}


async def test_it_is_taken_out_and_put_back_while_it_drains(opened: Open) -> None:
    async with serve_engine() as fake, serve_router() as router:
        engine = await opened(url=fake.url, router=router.url)
        assert isinstance(engine, SmgEngine)
        await engine.route()
        await engine.route()
        assert router.urls == [fake.url]
        await engine.unroute()
        await engine.unroute()
        assert router.workers == {}
        await engine.route()
        assert router.urls == [fake.url]


async def test_a_gateway_that_does_not_take_the_worker_is_an_error_in_time(opened: Open) -> None:
    async with serve_engine() as fake, serve_router(looks=10**9) as router:
        engine = await opened(PATIENT.model_copy(update={"start_timeout": 1.0}), url=fake.url, router=router.url)

        with pytest.raises(EngineError, match=r"did not add it as a worker within 1 s: .* is pending"):
            await engine.wake()


async def test_a_gateway_that_does_not_take_our_key_is_refused(opened: Open) -> None:
    async with serve_engine() as fake, serve_router(key="right-key") as router:
        wrong = await opened(url=fake.url, router=router.url)
        with pytest.raises(NotAnEngineError, match="401") as refused:
            await wrong.check()
        assert refused.value.next_step == "Give the gateway's key as router_key."

        right = await opened(url=fake.url, router=router.url, router_key="right-key")
        assert (await right.check()).models == ("fake-model",)


async def test_what_is_no_gateway_is_refused_by_name(opened: Open) -> None:
    async with serve_engine() as fake:
        engine = await opened(url=fake.url, router=fake.url)

        with pytest.raises(NotAnEngineError, match=f"{fake.url} does not answer as an SGLang gateway"):
            await engine.check()


async def _read(engine: object) -> bytes:
    async with engine.answer(chat()) as answer:  # type: ignore[attr-defined]
        return b"".join([chunk async for chunk in answer.chunks])
