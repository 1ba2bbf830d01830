"""A fake engine as a process of its own: prints its address, drains on SIGTERM, dies as a real one does."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, Final

from headgate.simulation.engines.plan import EnginePlan
from headgate.simulation.engines.serving import serve_engine

_DIED: Final = 128 + signal.SIGQUIT
"""Exit status of a real engine whose scheduler raised."""


async def run_engine(plan: EnginePlan, *, host: str = "127.0.0.1", port: int = 0) -> None:
    """Serve a fake engine until SIGTERM or SIGINT, and return when its requests are answered.

    Its address is printed once it listens. Where it dies, the process ends with it.

    Raises:
        InvalidInputError: the address cannot be listened on.
    """
    leaving = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leaving.set)
    async with serve_engine(plan, host=host, port=port) as engine:
        print(engine.url, flush=True)  # the address is what the command is asked for
        await _first(leaving.wait(), engine.until(lambda: engine.crashed))
        if not engine.crashed:
            await engine.drain()
        if engine.crashed:
            # A process that is killed runs no clean-up, either.
            os._exit(_DIED)


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of `waits` has come to its end."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
