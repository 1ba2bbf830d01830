"""SGLang's weights: released only where the engine has them back when it wakes."""

from __future__ import annotations

import logging

import pytest

from headgate.elastic.engines import Engine
from headgate.simulation.engines import EnginePlan, serve_engine
from tests.elastic.engines.conftest import Open
from tests.elastic.engines.subjects import chat


async def answer_of(engine: Engine) -> bytes:
    async with engine.answer(chat()) as answer:
        return b"".join([chunk async for chunk in answer.chunks]).split(b'"choices"')[1]


@pytest.mark.parametrize("has_backup", [True, False])
async def test_an_engine_answers_after_its_sleep_as_before(opened: Open, has_backup: bool) -> None:
    async with serve_engine(EnginePlan(has_weights_backup=has_backup)) as fake:
        engine = await opened(url=fake.url, kind="sglang")
        await engine.check()
        before = await answer_of(engine)
        await engine.sleep()
        assert (await engine.load()).is_asleep
        assert ("weights" in fake.core.released) is has_backup
        await engine.wake()

        assert await answer_of(engine) == before


async def test_one_that_keeps_its_weights_is_told_of(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    async with serve_engine(EnginePlan(has_weights_backup=False)) as fake:
        engine = await opened(url=fake.url, kind="sglang")
        with caplog.at_level(logging.WARNING, "headgate.elastic"):
            await engine.check()

    assert "without --enable-weights-cpu-backup: it frees its KV cache when it sleeps" in caplog.text


async def test_another_adapter_finds_asleep_what_kept_its_weights(opened: Open) -> None:
    async with serve_engine(EnginePlan(has_weights_backup=False)) as fake:
        await (await opened(url=fake.url, kind="sglang")).sleep()

        assert (await (await opened(url=fake.url, kind="sglang")).load()).is_asleep
