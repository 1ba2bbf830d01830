"""A campaign whose model is an elastic pool: its gateway in the roster, and workers that come and go behind it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headgate.config import Settings
from headgate.core import Model
from headgate.elastic import ElasticConfig
from headgate.elastic.engines import EngineSpec, open_engine
from headgate.elastic.gateway import Gateway, read_pool_document, running_pool
from headgate.run import RunResult, run_campaign
from headgate.sampling import StaticRoster
from headgate.simulation.engines import EnginePlan, FakeEngine, serve_engine
from headgate.storage import open_store

pytestmark = pytest.mark.slow

INSTANCES = 60
QUICK = {
    "policy": "target",
    "monitoring_interval": 0.1,
    "panic_window": 0.1,
    "stable_window": 0.2,
    "urgent_interval": 0.05,
    "confirm_interval": 0.05,
    "min_stable_period": 0,
    "max_workers": 3,
    "engine_attempts": 1,
}


class Site:
    """Three fake engines behind a gateway, one of them awake, and a campaign of one model that is the pool."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engines: list[FakeEngine] = []
        self._exits = AsyncExitStack()

    async def __aenter__(self) -> Site:
        for _ in range(3):
            self.engines.append(await self._exits.enter_async_context(serve_engine(EnginePlan(slots=2))))
        for engine in self.engines[1:]:
            await _put_to_sleep(engine)
        urls = [{"url": engine.url, "kind": "sglang"} for engine in self.engines]
        document = {"pool": {"name": "site", "engines": urls}, "elastic_config": QUICK, "gateway": {"port": 0}}
        self.gateway: Gateway = await self._exits.enter_async_context(running_pool(read_pool_document(document)))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._exits.aclose()

    async def campaign(self) -> RunResult:
        """Sample a matrix of one environment, each request of it once."""
        settings = Settings(
            journal=self.folder / "journal",
            store=str(self.folder / "samples"),
            environments=["affine:sat"],
            num_evaluation_workers=16,
            batch_flush_interval=0.1,
        )
        model = Model("pool", base_url=self.gateway.base_url, served_name="fake-model", max_parallel=16)
        return await run_campaign(settings, roster=StaticRoster([model]), instances=INSTANCES)

    async def stored(self) -> list[tuple[int, bool]]:
        """Return sequence and whether it was scored, of every sample."""
        store = open_store(str(self.folder / "samples"))
        try:
            scan = await store.scan(columns=["sequence", "score"])
        finally:
            store.close()
        return sorted((sequence, score is not None) for sequence, score in scan.frame.iter_rows())


async def test_a_campaign_loses_nothing_while_workers_wake_die_and_sleep(tmp_path: Path) -> None:
    async with asyncio.timeout(60), Site(tmp_path) as site:
        first, *others = site.engines
        for engine in site.engines:
            engine.hold()
        async with asyncio.TaskGroup() as group:
            campaign = group.create_task(site.campaign())
            for engine in others:
                await engine.until_called("POST /resume_memory_occupation")
                await engine.until(lambda engine=engine: bool(engine.running))
            assert first.running, "the one that was awake has requests"
            first.crash()
            for engine in others:
                engine.finish()
        result = campaign.result()
        assert (result.samples, result.open_tasks) == (INSTANCES, 0)
        assert await site.stored() == [(sequence, True) for sequence in range(INSTANCES)]
        counts = site.gateway.status().pool.counts
        assert (counts.served, counts.lost) == (INSTANCES, 0)
        assert counts.handed_over >= 1
        await _one_sleeps(others)


async def _one_sleeps(engines: list[FakeEngine]) -> None:
    slept = [asyncio.create_task(engine.until(lambda engine=engine: engine.is_asleep)) for engine in engines]
    try:
        await asyncio.wait(slept, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in slept:
            task.cancel()


async def _put_to_sleep(engine: FakeEngine) -> None:
    adapter = await open_engine(EngineSpec(url=engine.url, kind="sglang"), ElasticConfig())
    try:
        await adapter.check()
        await adapter.sleep()
    finally:
        await adapter.close()
