"""kill -9 of a process that holds slots of a global concurrency limit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import pytest

from tests.house.tree import ROOT
from tests.orchestration.slot_site import Site, asked, busy, limit_now, set_limit, unique_host, until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

LONG_FORM_KILLS = 3
"""Slots come back when their lease ends, a minute and more after the kill: only the long form waits for it."""


async def killed_holder(environ: dict[str, str], host: str, slots: int) -> None:
    """Let a process of its own take all slots, and kill it."""
    command = [sys.executable, "-m", "tests.orchestration.slot_holder", host, str(slots)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environ, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"held\n"
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def test_slots_of_a_killed_process_are_never_given_twice_and_come_back(prefect: object, kills: int) -> None:
    host = unique_host()
    site = Site(host, 8, speed=1.0)
    await set_limit(site.rule.name, 8)
    await killed_holder(prefect.environ(), host, 8)  # type: ignore[attr-defined]
    async with site.open(), busy(site):
        await until(lambda: "SlotsDenied" in site.kinds())
        await asyncio.sleep(2)
        seen = await limit_now(site.rule.name)
        assert seen is not None
        assert seen.active_slots == 8
        assert site.in_flight == 0  # they are taken, and stay so for as long as the lease runs
        holders = await asked(lambda service: service.holders())
        assert [h for h in holders if h.holdings.get(site.rule.name)]  # type: ignore[attr-defined]
        if kills >= LONG_FORM_KILLS:
            await until(lambda: site.in_flight == 8, within_s=120)
            assert site.most_in_flight == 8
