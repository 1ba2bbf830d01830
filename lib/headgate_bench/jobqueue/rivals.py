"""The other queues: whether they are there, and running them."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from types import ModuleType
from typing import Final

from headgate_bench.rivals import pgqueuer_jobs, procrastinate_jobs

NOT_INSTALLED: Final = "not installed"
FAILED: Final = "did not run"
RIVALS: Final[tuple[ModuleType, ...]] = (procrastinate_jobs, pgqueuer_jobs)
USUAL_PER_S: Final = {procrastinate_jobs.NAME: 150, pgqueuer_jobs.NAME: 5_000}
"""Jobs per second, roughly: so that burn-downs of all of them take about as long."""

_WITHIN_S: Final = 120.0


def is_installed(rival: ModuleType) -> bool:
    """Return whether all that a rival needs can be imported."""
    return all(importlib.util.find_spec(package) is not None for package in rival.PACKAGES)


async def call(rival: ModuleType, *arguments: str) -> str | None:
    """Run an action of a rival in a process of its own; return what it printed, or None when it failed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", rival.__name__, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_WITHIN_S):
            said, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return said.decode() if process.returncode == 0 else None
