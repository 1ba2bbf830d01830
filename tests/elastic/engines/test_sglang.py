"""SGLang: what it dies of is never done to it, whatever got lost on the way."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from headgate.elastic.engines import Engine
from headgate.elastic.errors import EngineError, NotAnEngineError
from headgate.simulation.engines import EnginePlan, FakeEngine, serve_engine
from tests.elastic.engines.conftest import Open
from tests.elastic.engines.subjects import CHAT, PATIENT, chat

RELEASE, RESUME = "/release_memory_occupation", "/resume_memory_occupation"
HASTY = PATIENT.model_copy(update={"start_timeout": 0.5})


def changes(fake: FakeEngine) -> list[str]:
    """The calls that changed an engine, in order."""
    return [call.removeprefix("POST ") for call in fake.calls if call.startswith("POST ") and "abort" not in call]


async def one_answer(engine: Engine) -> bytes:
    async with engine.answer(chat()) as answer:
        return b"".join([chunk async for chunk in answer.chunks])


async def test_it_flushes_before_it_releases_and_generates_once_before_it_is_awake(opened: Open) -> None:
    async with serve_engine(EnginePlan()) as fake:
        engine = await opened(url=fake.url, kind="sglang")
        await engine.sleep()
        await engine.wake()

        assert changes(fake) == ["/flush_cache", RELEASE, RELEASE, RESUME, RESUME, "/generate"]
        assert fake.calls.index("GET /ready") < fake.calls.index("POST /generate")
        assert not fake.crashed


async def test_one_without_a_memory_saver_is_refused(opened: Open) -> None:
    async with serve_engine(EnginePlan(has_memory_saver=False)) as fake:
        engine = await opened(url=fake.url, kind="sglang")

        with pytest.raises(NotAnEngineError, match=r"without --enable-memory-saver: it would say that it sleeps"):
            await engine.check()


async def test_one_whose_second_resume_failed_says_so_and_can_sleep_and_wake_again(opened: Open) -> None:
    async with serve_engine(EnginePlan()) as fake:
        engine = await opened(url=fake.url, kind="sglang")
        await engine.sleep()
        fake.fail_next(1, 202, path=RESUME, is_carried_out=True)
        fake.fail_next(1, 500, path=RESUME)
        with pytest.raises(EngineError):
            await engine.wake()

        load = await engine.load()
        assert load.is_half_asleep
        assert not load.is_asleep
        await engine.sleep()
        load = await engine.load()
        assert load.is_asleep
        assert not load.is_half_asleep
        await engine.wake()
        assert await one_answer(engine)
        assert not fake.crashed


@pytest.mark.parametrize("keys", [{}, {"api_key": "wrong-key"}, {"api_key": "right-key", "admin_key": "wrong-key"}])
async def test_one_that_does_not_take_our_keys_is_refused(opened: Open, keys: dict[str, str]) -> None:
    async with serve_engine(EnginePlan(api_key="right-key", admin_key="admins-key")) as fake:
        engine = await opened(url=fake.url, kind="sglang", **keys)

        with pytest.raises(NotAnEngineError, match="was answered 401: it does not accept this key") as refused:
            await engine.check()

    assert "admin_key" in refused.value.next_step
    assert "wrong-key" not in str(refused.value)


async def test_requests_and_changes_go_with_the_key_of_each(opened: Open) -> None:
    async with serve_engine(EnginePlan(api_key="right-key", admin_key="admins-key")) as fake:
        engine = await opened(url=fake.url, kind="sglang", api_key="right-key", admin_key="admins-key")
        await engine.check()
        await engine.sleep()
        await engine.wake()

        assert b"choices" in await one_answer(engine)


@pytest.mark.parametrize("status", [502, 503])
async def test_a_change_that_was_not_carried_out_is_made_again(opened: Open, status: int) -> None:
    async with serve_engine(EnginePlan()) as fake:
        engine = await opened(url=fake.url, kind="sglang")
        fake.fail_next(2, status, path=RELEASE)
        await engine.sleep()
        fake.fail_next(2, status, path=RESUME)
        await engine.wake()

        assert b"choices" in await one_answer(engine)
        assert not fake.crashed


async def test_a_release_that_was_answered_too_late_is_not_made_twice(opened: Open) -> None:
    async with serve_engine(EnginePlan()) as fake:
        engine = await opened(url=fake.url, kind="sglang")
        fake.fail_next(1, 504, path=RELEASE, is_carried_out=True)
        with pytest.raises(EngineError, match="504"):
            await engine.sleep()

        assert not (await engine.load()).is_asleep
        await engine.sleep()

        assert fake.released == {"kv_cache", "weights"}
        assert not fake.crashed


async def test_a_resume_that_was_answered_too_late_is_not_made_twice(opened: Open) -> None:
    async with serve_engine(EnginePlan()) as fake:
        engine = await opened(url=fake.url, kind="sglang")
        await engine.sleep()
        fake.fail_next(1, 504, path=RESUME, is_carried_out=True)
        with pytest.raises(EngineError, match="504"):
            await engine.wake()

        await engine.wake()

        assert b"choices" in await one_answer(engine)
        assert not fake.crashed


async def test_a_change_without_an_answer_is_taken_for_done(opened: Open) -> None:
    async with serve_engine(EnginePlan(release_s=30)) as fake:
        engine = await opened(HASTY, url=fake.url, kind="sglang")
        with pytest.raises(EngineError, match="not answered within"):
            await engine.sleep()
        with pytest.raises(EngineError, match="not answered within"):
            await engine.sleep()

        assert (await engine.load()).is_asleep
        assert changes(fake).count(RELEASE) == 2
        assert not fake.crashed


async def test_nothing_is_sent_while_a_part_is_released(opened: Open) -> None:
    async with serve_engine(EnginePlan()) as fake:
        engine = await opened(url=fake.url, kind="sglang")
        await engine.sleep()
        fake.fail_next(3, 502, path=RESUME)
        with pytest.raises(EngineError, match="502"):
            await engine.wake()

        with pytest.raises(EngineError, match="sleeps; a request would kill it"):
            await one_answer(engine)

        await engine.wake()
        assert b"choices" in await one_answer(engine)
        assert not fake.crashed


async def test_an_engine_that_was_restarted_while_it_slept_has_nothing_to_resume(opened: Open) -> None:
    async with serve_engine(EnginePlan()) as fake:
        engine = await opened(url=fake.url, kind="sglang")
        await engine.sleep()
    port = urlsplit(fake.url).port or 0

    async with serve_engine(EnginePlan(), port=port) as fresh:
        assert not (await engine.load()).is_asleep
        await engine.wake()

        assert RESUME not in changes(fresh)
        assert b"choices" in await one_answer(engine)
        await engine.sleep()
        assert fresh.released == {"kv_cache", "weights"}


async def test_an_engine_whose_port_was_closed_begins_anew_even_with_the_same_seed(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.elastic.engines.sglang._ONE_LIFE", ("version",))
    async with serve_engine(EnginePlan()) as fake:
        engine = await opened(url=fake.url, kind="sglang")
        await engine.sleep()
    with pytest.raises(EngineError, match="no process listens"):
        await engine.load()

    async with serve_engine(EnginePlan(), port=urlsplit(fake.url).port or 0) as fresh:
        await engine.wake()
        assert RESUME not in changes(fresh)


async def test_an_engine_that_died_of_a_change_begins_anew_even_with_the_same_seed(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.elastic.engines.sglang._ONE_LIFE", ("version",))
    async with serve_engine(EnginePlan()) as fake:
        engine = await opened(url=fake.url, kind="sglang")
        fake.hang(RELEASE)
        falling_asleep = asyncio.create_task(engine.sleep())
        await fake.until_called(f"POST {RELEASE}")
        fake.crash()
        with pytest.raises(EngineError):
            await falling_asleep

    async with serve_engine(EnginePlan(), port=urlsplit(fake.url).port or 0) as fresh:
        await engine.sleep()
        assert fresh.released == {"kv_cache", "weights"}


async def test_a_busy_engine_is_not_even_asked_to_flush(opened: Open) -> None:
    async with serve_engine(EnginePlan()) as fake, asyncio.TaskGroup() as tasks:
        engine = await opened(url=fake.url, kind="sglang")
        fake.hold()
        answering = tasks.create_task(one_answer(engine))
        await fake.until(lambda: len(fake.running) == 1)
        with pytest.raises(EngineError, match="is busy: 1 run and 0 wait"):
            await engine.sleep()

        assert changes(fake) == [CHAT]
        answering.cancel()


async def test_what_is_not_sglang_is_refused_by_name(opened: Open) -> None:
    async with serve_engine(EnginePlan(api="vllm")) as fake:
        engine = await opened(url=fake.url, kind="sglang")

        with pytest.raises(NotAnEngineError, match=f"what answers at {fake.url} does not speak SGLang's API"):
            await engine.check()


async def test_a_cloud_s_metadata_service_is_never_asked(opened: Open) -> None:
    engine = await opened(url="http://169.254.169.254", kind="sglang")

    with pytest.raises(EngineError, match="link-local"):
        await engine.check()
