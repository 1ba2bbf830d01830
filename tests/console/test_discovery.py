"""The console finds the runs of a journal, watches and steers each, and sends its token to nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import html
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from urllib.parse import quote

import httpx
import pytest

from headgate.config import Settings
from headgate.console import serve_console
from headgate.console.discovery import KEPT_S, JournalSource, RefusedAddressError, address_to_ask
from headgate.console.findings import found_in
from headgate.console.sources import Sources
from headgate.core import Model
from headgate.core.events import MonitorStarted
from headgate.models import serve
from headgate.run import run_campaign
from headgate.sampling import StaticRoster
from headgate.storage import Journal, ServedRun
from tests.console.conftest import settings

TOKEN = "monitor-token"  # noqa: S105 - of the test


@asynccontextmanager
async def running(made: Settings, base_url: str) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Give the address of a real run's monitoring API, as a flow run serves it, and what stops the run."""
    stop = asyncio.Event()
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    class Listening:
        handlers: ClassVar = {MonitorStarted: lambda recorded: started.set_result(recorded.event.address)}

        def close(self) -> None: ...

    roster = StaticRoster((Model("baseline-random", base_url=base_url),))
    task = asyncio.create_task(run_campaign(made, roster=roster, stop=stop, sinks=[Listening()], is_unattended=True))
    try:
        await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
        yield await started, stop
    finally:
        stop.set()
        await task


def campaign(folder: Path, name: str, **further: Any) -> Settings:
    given = {
        "campaign": name, "environments": ("affine:abd",), "rates": {"*": 8_000.0}, "enable_monitoring": True,
        "monitor_port": 0, "monitor_token": TOKEN, "drain_timeout_s": 1.0, **further,
    }  # fmt: skip
    return settings(folder, **given)


class Viewer:
    """Somebody who looks at a console."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def text(self, path: str = "/") -> str:
        return html.unescape((await self.http.get(path, headers={"Accept": "text/html"})).text)

    async def until(self, *said: str) -> str:
        """Return the first page, as soon as it says all of this, before 20 seconds are over."""
        async with asyncio.timeout(20):
            while True:
                text = await self.text()
                if all(words in text for words in said):
                    return text
                await asyncio.sleep(0.2)

    async def steer(self, **form: str) -> httpx.Response:
        return await self.http.post("/steer", data=form, headers={"Authorization": "Bearer x"})


@asynccontextmanager
async def looking(made: Settings, **watched: Any) -> AsyncIterator[Viewer]:
    async with (
        serve_console(made, port=0, journals=[made.journal], **watched) as address,
        httpx.AsyncClient(base_url=address) as http,
    ):
        yield Viewer(http)


async def test_runs_of_one_journal_are_found_watched_steered_and_seen_to_end(tmp_path: Path) -> None:
    nightly, daily = campaign(tmp_path, "nightly"), campaign(tmp_path, "daily")
    async with AsyncExitStack() as stack:
        base_url = (await stack.enter_async_context(serve())).base_url
        viewer = await stack.enter_async_context(looking(nightly))
        assert "No run serves its monitoring API now" in await viewer.text()
        first, _ = await stack.enter_async_context(running(nightly, base_url))
        second, stop = await stack.enter_async_context(running(daily, base_url))
        assert first != second
        text = await viewer.until("nightly", "daily", "3 of 3 parts answer")
        assert f"/matrix?run={quote(first)}" in text

        sure = {"verb": "pause", "reason": "new disks", "sure": "yes"}
        assert "Done." in (await viewer.steer(run=second, **sure)).text
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as http:
            paused = {run: len((await http.get(f"{run}/controls")).json()["controls"]) for run in (first, second)}
        assert paused == {first: 0, second: 1}

        stop.set()
        text = await viewer.until('<span class="chip warn">ended</span>')
        assert '<span class="chip bad">' not in text
        again, _ = await stack.enter_async_context(running(daily, base_url))
        await viewer.until(quote(again), "3 of 3 parts answer")
