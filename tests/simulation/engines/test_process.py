"""A fake engine as a process: it prints its address, drains on SIGTERM, and can be killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

pytestmark = pytest.mark.slow

CHAT = {"messages": [{"role": "user", "content": "a b"}], "max_tokens": 64, "ignore_eos": True, "stream": True}


@asynccontextmanager
async def engine(*flags: str) -> AsyncIterator[tuple[Process, aiohttp.ClientSession]]:
    """Give a process, and a client of the address that it has printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headgate.cli", "elastic", "fake-engine", "--port", "0", *flags, stdout=PIPE, stderr=PIPE
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


async def test_an_assertion_in_the_scheduler_ends_the_process() -> None:
    async with engine("--release-s", "0") as (process, client):
        await client.post("/release_memory_occupation", json={})
        with pytest.raises(aiohttp.ClientError):
            await client.post("/release_memory_occupation", json={})

        assert await process.wait() == 128 + signal.SIGQUIT
