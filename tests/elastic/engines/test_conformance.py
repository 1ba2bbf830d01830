"""What every engine does, whoever wrote it: one suite over all adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headgate.elastic.engines import Engine, Outgoing
from headgate.elastic.errors import EngineError
from tests.elastic.engines.subjects import CHAT, IMPATIENT, KINDS, Subject, chat, subject_of


@pytest.fixture(params=KINDS)
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject_of(request.param) as found:
        yield found


async def read(engine: Engine, request: Outgoing) -> bytes:
    async with engine.answer(request) as answer:
        assert answer.status == 200, answer
        return b"".join([chunk async for chunk in answer.chunks])


async def test_check_tells_what_it_serves_and_takes(subject: Subject) -> None:
    facts = await subject.engine.check()

    assert facts.models == ("fake-model",)
    assert facts.slots == 8
    assert not facts.is_asleep


async def test_it_is_called_by_its_address_and_kind(subject: Subject) -> None:
    assert subject.engine.name == subject.spec.url
    assert subject.engine.kind == subject.kind


async def test_load_counts_what_runs_and_an_idle_engine_is_idle(subject: Subject) -> None:
    assert (await subject.engine.load()).is_idle
    subject.inside.hold()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read(subject.engine, chat("r1")))
        tasks.create_task(read(subject.engine, chat("r2")))
        await subject.inside.until_running(2)
        load = await subject.engine.load()
        subject.inside.finish()

    assert load.running == 2
    assert not load.is_asleep


async def test_a_whole_answer_arrives(subject: Subject) -> None:
    body = await read(subject.engine, chat(words="one two three"))

    assert b"one two three" in body


async def test_a_stream_arrives_while_it_is_generated(subject: Subject) -> None:
    subject.inside.hold()

    async with subject.engine.answer(chat(words="one two three", stream=True)) as answer:
        assert answer.content_type.startswith("text/event-stream")
        so_far = b""
        while b"one" not in so_far:
            so_far += await anext(answer.chunks)
        assert subject.inside.running() == 1
        assert b"[DONE]" not in so_far
        subject.inside.finish()
        rest = b"".join([chunk async for chunk in answer.chunks])

    assert b"three" in rest
    assert rest.endswith(b"data: [DONE]\n\n")


async def test_leaving_a_stream_early_ends_the_request_in_the_engine(subject: Subject) -> None:
    subject.inside.hold()

    async with subject.engine.answer(chat(stream=True)) as answer:
        await anext(answer.chunks)
        await subject.inside.until_running(1)

    await subject.inside.until_running(0)


async def test_a_cancelled_request_ends_in_the_engine(subject: Subject) -> None:
    subject.inside.hold()
    waiting = asyncio.create_task(read(subject.engine, chat()))
    await subject.inside.until_running(1)

    waiting.cancel()

    await subject.inside.until_running(0)
    assert waiting.cancelled() or waiting.cancelling()


async def test_an_aborted_request_ends_and_no_other_does(subject: Subject) -> None:
    subject.inside.hold()
    async with asyncio.TaskGroup() as tasks:
        aborted = tasks.create_task(read(subject.engine, chat("r1")))
        other = tasks.create_task(read(subject.engine, chat("r10")))
        await subject.inside.until_running(2)

        await subject.engine.abort("r1")

        await aborted
        assert not other.done()
        assert subject.inside.running() == 1
        subject.inside.finish()

    assert b"three" in other.result()
    assert b"three" not in aborted.result()


async def test_aborting_what_is_not_there_does_nothing(subject: Subject) -> None:
    subject.inside.hold()
    async with asyncio.TaskGroup() as tasks:
        kept = tasks.create_task(read(subject.engine, chat("r1")))
        await subject.inside.until_running(1)

        await subject.engine.abort("unknown")
        await subject.engine.abort("")

        assert subject.inside.running() == 1
        subject.inside.finish()

    assert b"three" in kept.result()


async def test_an_idle_engine_sleeps_and_wakes_and_says_so(subject: Subject) -> None:
    await subject.engine.sleep()

    assert subject.inside.is_released()
    assert (await subject.engine.load()).is_asleep
    assert (await subject.engine.check()).is_asleep

    await subject.engine.wake()

    assert not subject.inside.is_released()
    assert not (await subject.engine.load()).is_asleep
    assert b"one" in await read(subject.engine, chat())


async def test_sleeping_and_waking_twice_is_as_once(subject: Subject) -> None:
    await subject.engine.wake()
    await subject.engine.sleep()
    await subject.engine.sleep()

    assert subject.inside.is_released()

    await subject.engine.wake()
    await subject.engine.wake()

    assert b"one" in await read(subject.engine, chat())


async def test_a_busy_engine_refuses_to_sleep_before_anything_is_released(subject: Subject) -> None:
    busy = await subject.opened_again(IMPATIENT.model_copy(update={"engine_timeout": 20.0, "start_timeout": 20.0}))
    subject.inside.hold()
    async with asyncio.TaskGroup() as tasks:
        kept = tasks.create_task(read(subject.engine, chat()))
        await subject.inside.until_running(1)

        with pytest.raises(EngineError, match="busy"):
            await busy.sleep()

        assert not subject.inside.is_released()
        assert subject.inside.running() == 1
        subject.inside.finish()
    await busy.close()

    assert b"three" in kept.result()


async def test_another_adapter_finds_it_asleep_and_wakes_it(subject: Subject) -> None:
    await subject.engine.sleep()
    await subject.engine.close()

    again = await subject.opened_again()

    assert (await again.check()).is_asleep
    await again.wake()
    assert b"one" in await read(again, chat())
    await again.sleep()
    assert subject.inside.is_released()
    await again.close()


async def test_spurious_failures_are_tried_again(subject: Subject) -> None:
    for call in (subject.engine.check, subject.engine.load, subject.engine.sleep, subject.engine.wake):
        subject.inside.fail_next(2)
        await call()

    assert b"one" in await read(subject.engine, chat())


async def test_so_many_failures_are_an_error_and_not_for_ever(subject: Subject) -> None:
    subject.inside.fail_next(3)
    with pytest.raises(EngineError) as failed:
        await subject.engine.load()

    assert not failed.value.is_final
    assert (await subject.engine.load()).is_idle


async def test_an_engine_that_hangs_is_an_error_in_time(subject: Subject) -> None:
    impatient = await subject.opened_again(IMPATIENT)
    subject.inside.hang()

    for call in (impatient.check, impatient.load, impatient.sleep, impatient.wake):
        with pytest.raises(EngineError) as failed:
            await call()
        assert not failed.value.is_final

    subject.inside.let_go()
    await impatient.close()


async def test_a_dead_engine_is_an_error_for_every_call(subject: Subject) -> None:
    subject.inside.kill()

    for call in (subject.engine.check, subject.engine.load, subject.engine.sleep, subject.engine.wake):
        with pytest.raises(EngineError) as failed:
            await call()
        assert not failed.value.is_final
    with pytest.raises(EngineError):
        await read(subject.engine, chat())


async def test_an_answer_that_breaks_off_is_an_error_where_it_is_read(subject: Subject) -> None:
    subject.inside.hold()
    async with subject.engine.answer(chat(stream=True)) as answer:
        await anext(answer.chunks)
        subject.inside.kill()

        with pytest.raises(EngineError):
            async for _ in answer.chunks:
                pass


async def test_an_answer_is_never_asked_for_twice(subject: Subject) -> None:
    before = subject.inside.calls()
    subject.inside.kill()
    with pytest.raises(EngineError):
        await read(subject.engine, chat())

    assert subject.inside.calls() <= before + 1


async def test_a_refusal_of_the_engine_is_an_answer(subject: Subject) -> None:
    words = chat(words="refuse this") if subject.kind == "ray" else Outgoing("r1", CHAT, b"no JSON")

    async with subject.engine.answer(words) as answer:
        body = b"".join([chunk async for chunk in answer.chunks])

    assert answer.status == 400
    assert body


async def test_the_same_request_may_come_back_to_the_same_engine(subject: Subject) -> None:
    subject.inside.hold()
    async with subject.engine.answer(chat("r1", stream=True)) as answer:
        await anext(answer.chunks)
    subject.inside.finish()

    assert b"one" in await read(subject.engine, chat("r1"))


async def test_closing_twice_is_legal_and_leaves_the_engine(subject: Subject) -> None:
    await subject.engine.close()
    await subject.engine.close()

    again = await subject.opened_again()
    assert (await again.load()).is_idle
    await again.close()
