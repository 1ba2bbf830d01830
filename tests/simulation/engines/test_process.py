"""A fake engine as a process: it prints its address, drains on SIGTERM, and can be killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields

import aiohttp
import pytest

from headgate.simulation.engines import EnginePlan, FaultScript
from headgate.simulation.engines.__main__ import main

pytestmark = pytest.mark.slow

CHAT = {"messages": [{"role": "user", "content": "a b"}], "max_tokens": 64, "ignore_eos": True, "stream": True}


@asynccontextmanager
async def engine(*flags: str) -> AsyncIterator[tuple[Process, aiohttp.ClientSession]]:
    """Give a process, and a client of the address that it has printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headgate.simulation.engines", *flags, stdout=PIPE, stderr=PIPE
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        async with aiohttp.ClientSession(url) as client:
            yield process, client
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_it_drains_on_sigterm_and_ends_with_0() -> None:
    async with (
        engine("--token-s", "0.01") as (process, client),
        client.post("/v1/chat/completions", json=CHAT) as answer,
    ):
        process.send_signal(signal.SIGTERM)

        assert (await answer.read()).endswith(b"data: [DONE]\n\n")
        assert await process.wait() == 0


async def test_killed_it_breaks_its_connections_at_once() -> None:
    async with engine("--token-s", "60") as (process, client):
        request = asyncio.create_task(client.post("/v1/chat/completions", json=CHAT))
        async with client.get("/ready") as ready:
            assert ready.status == 200
        process.kill()

        with pytest.raises(aiohttp.ClientError):
            await request
        assert await process.wait() == -signal.SIGKILL


async def test_an_assertion_in_the_scheduler_ends_the_process() -> None:
    async with engine("--is-never-idle") as (process, client):
        with pytest.raises(aiohttp.ClientError):
            await client.post("/release_memory_occupation", json={})

        assert await process.wait() == 128 + signal.SIGQUIT


async def test_what_is_wrong_with_a_plan_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--slots", "0"]) == 2
    assert "slots must be >= 1 (got 0)" in capsys.readouterr().err


def test_every_attribute_of_the_plan_has_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    names = {each.name for plan in (EnginePlan, FaultScript) for each in fields(plan)} - {"faults"}

    assert [name for name in sorted(names) if f"{name.replace('_', '-')}" not in shown] == []
