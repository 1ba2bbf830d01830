"""What `headgate elastic status` shows of a worker: how old a count is, and which trouble is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from headgate.cli.elastic.status_table import status_view
from headgate.elastic import EngineLoad, WorkerState
from headgate.elastic.gateway import GatewayClient, GatewayStatus, read_pool_document, running_pool
from headgate.simulation.engines import EnginePlan, serve_engine
from tests.cli.conftest import Command


async def stands(failed: int = 0, **of_the_worker: Any) -> GatewayStatus:
    """Return how a pool stands of whose one worker this is so, and which has failed so many times."""
    async with serve_engine(EnginePlan()) as engine:
        written = {"pool": {"engines": [engine.url]}, "gateway": {"port": 0}}
        async with running_pool(read_pool_document(written), environ={}) as gateway:
            status: GatewayStatus = gateway.status()
    worker = replace(status.pool.workers[0], **({"worker_id": "http://one:1"} | of_the_worker))
    counts = replace(status.pool.counts, failures={worker.worker_id: failed})
    return replace(status, pool=replace(status.pool, workers=(worker,), counts=counts))


async def shown(**of_the_worker: Any) -> str:
    """Return what is shown of a pool of one worker of which this is so."""
    console = Console(width=200)
    with console.capture() as said:
        console.print(status_view(await stands(**of_the_worker)))
    return said.get()


async def test_a_worker_that_waits_for_its_place_is_not_awake() -> None:
    said = await shown(state=WorkerState.STARTING, is_leased=False)
    assert "0 of 1 workers awake" in said
    assert "starting (waits for its place)" in said


async def test_a_count_of_the_engine_that_differs_from_the_pools_is_told_with_its_age() -> None:
    load = EngineLoad(running=8, waiting=0)

    assert "8, 4 s ago" in await shown(load=load, read_s=4.0, requests=0)
    assert "ago" not in await shown(load=load, read_s=4.0, requests=8)
    assert "ago" not in await shown(load=load, read_s=0.1, requests=0)


async def test_the_last_error_of_a_worker_that_works_again_is_told_as_over() -> None:
    assert "no process listens there; it has recovered" in await shown(
        last_error="no process listens there", failures=0
    )
    assert "recovered" not in await shown(last_error="no process listens there", failures=1)
    assert "recovered" not in await shown(last_error="")


async def test_a_failure_is_told_although_those_in_a_row_began_again_between_two_looks(
    headgate: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had failed three times, started when it was woken, and failed again."""
    before = await stands(3, state=WorkerState.FAILED, failures=3)
    woken = await stands(3, state=WorkerState.STARTING, failures=3)
    after = await stands(4, state=WorkerState.FAILED, failures=1, last_error="out of memory")
    told = {"status": lambda _: before, "wake": lambda _, __: woken, "watch": lambda _: iter([woken, after])}
    for method, answers in told.items():
        monkeypatch.setattr(GatewayClient, method, answers)
    said = headgate("elastic", "wake", "one", "--wait")
    assert said.err.startswith("waiting until it is done; Ctrl-C ends only the wait\n")
    assert "http://one:1 has failed: out of memory" in said.err
    assert said.status == 3
