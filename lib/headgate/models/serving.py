"""Serving until told to stop: what `headgate serve-baselines` runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from headgate.models.endpoint import serve
from headgate.models.faults import FaultPlan
from headgate.models.simulated import SimulationPlan


def run_baselines(
    host: str = "127.0.0.1",
    port: int = 8001,
    plan: FaultPlan | None = None,
    *,
    simulation: SimulationPlan | None = None,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve the baselines until SIGINT or SIGTERM; `announce` gets one line with the address once it listens.

    Raises:
        InvalidInputError: if the address cannot be listened on.
    """

    async def main() -> None:
        async with serve(plan, host=host, port=port, simulation=simulation) as endpoint:
            announce(f"Baselines (not language models) answer at {endpoint.base_url}")
            await stop_signal()

    asyncio.run(main())


async def stop_signal() -> None:
    """Return at the first SIGINT or SIGTERM."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        await stopped.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
