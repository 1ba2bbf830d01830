"""Serving until told to stop: what `headgate serve-baselines` runs."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.models.baselines import installed_environment
from headgate.models.endpoint import serve
from headgate.models.faults import FaultPlan
from headgate.models.simulated import SimulationPlan

if TYPE_CHECKING:
    from headgate.environments import Environment


def run_baselines(
    host: str = "127.0.0.1",
    port: int = 8001,
    plan: FaultPlan | None = None,
    *,
    simulation: SimulationPlan | None = None,
    find_environment: Callable[[str], Environment] = installed_environment,
    tls: ssl.SSLContext | None = None,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve the baselines until SIGINT or SIGTERM; `announce` gets one line with the address once it listens.

    They play the environments that `find_environment` returns.

    Raises:
        InvalidInputError: if the address cannot be listened on.
    """

    async def main() -> None:
        served = serve(plan, host=host, port=port, simulation=simulation, find_environment=find_environment, tls=tls)
        async with served as endpoint:
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
