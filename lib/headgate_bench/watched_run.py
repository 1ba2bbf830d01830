"""A campaign in its own process, with its monitoring API: the cost of watching it is measured from outside."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path
from typing import Final

from headgate.config import Settings
from headgate.core import DAY_S
from headgate.models import ChatClient
from headgate.simulation import free_environments
from headgate.telemetry import new_registry, serve_monitor
from headgate_bench.campaign import measured_run
from headgate_bench.echo_environment import fleet, free_names

_NS: Final = 1e9


def cpu_s(process: int) -> float:
    """Return the CPU time of a process on this machine in seconds, to the microsecond."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / _NS


async def _sample(provider: str, models: int, environments: int, per_s: float, folder: Path) -> None:
    names = free_names(environments)
    rate = per_s * DAY_S / (models * environments)
    settings = Settings(
        campaign="bench-console",
        journal=folder / "journal",
        store=str(folder / "samples"),
        rates=dict.fromkeys(names, rate),
        low_sample_threshold=0,
        num_evaluation_workers=64,
        batch_flush_interval=0.5,
        drain_timeout_s=0.0,
    )
    environs = free_environments(dict.fromkeys(names, rate))
    async with (
        ChatClient() as client,
        measured_run(settings, fleet(models, provider), environs, client, rng=random.Random(0)) as campaign,
        serve_monitor(campaign.status, new_registry(campaign.status), port=0) as server,
    ):
        print(f"Run at {server.address}", flush=True)
        await campaign.run()


if __name__ == "__main__":
    provider_url, models, environments, per_s, folder = sys.argv[1:]
    try:
        asyncio.run(_sample(provider_url, int(models), int(environments), float(per_s), Path(folder)))
    except KeyboardInterrupt:
        os._exit(0)
