"""What `headgate elastic status` shows of a worker: how old a count is, and which trouble is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.console import Console

from headgate.cli.elastic.status_table import status_view
from headgate.elastic import EngineLoad
from headgate.elastic.gateway import GatewayStatus, read_pool_document, running_pool
from headgate.simulation.engines import EnginePlan, serve_engine


async def shown(**of_the_worker: Any) -> str:
    """Return what is shown of a pool of one worker of which this is so."""
    async with serve_engine(EnginePlan()) as engine:
        written = {"pool": {"engines": [engine.url]}, "gateway": {"port": 0}}
        async with running_pool(read_pool_document(written), environ={}) as gateway:
            status: GatewayStatus = gateway.status()
    worker = replace(status.pool.workers[0], **of_the_worker)
    console = Console(width=200)
    with console.capture() as said:
        console.print(status_view(replace(status, pool=replace(status.pool, workers=(worker,)))))
    return said.get()


async def test_a_count_of_the_engine_that_differs_from_the_pools_is_told_with_its_age() -> None:
    load = EngineLoad(running=8, waiting=0)

    assert "8, 4 s ago" in await shown(load=load, read_s=4.0, requests=0)
    assert "ago" not in await shown(load=load, read_s=4.0, requests=8)
    assert "ago" not in await shown(load=load, read_s=0.1, requests=0)


async def test_the_last_error_of_a_worker_that_works_again_is_told_as_over() -> None:
    assert "nobody listens there; it has recovered" in await shown(last_error="nobody listens there", failures=0)
    assert "recovered" not in await shown(last_error="nobody listens there", failures=1)
    assert "recovered" not in await shown(last_error="")
