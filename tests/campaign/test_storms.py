"""A provider in a storm of 429s: nothing of its own is lost, and nobody else waits for it. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.campaign import Campaign, CampaignPlan, CampaignResult, EndpointChats, RequestSide
from headgate.config import Settings
from headgate.core import Model, Sample
from headgate.core.events import Event, TaskDeferred
from headgate.sampling import StaticRoster
from headgate.simulation import LoopClock, MemoryStore, free_environments, run_virtual
from tests.campaign.providers import Providers, StormyProvider

WORKERS = 8
STORM = (120.0, 420.0)
"""Five minutes."""


class StormWorld:
    """One campaign against providers, and everything that it did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore()
        self.events: list[Event] = []
        self.result: CampaignResult | None = None
        self.statuses: list[Any] = []

    def run(
        self,
        roster: Sequence[Model],
        providers: Providers,
        *,
        rate_per_s: float = 4.0,
        duration_s: float = 900.0,
        **settings: Any,
    ) -> None:
        async def main() -> CampaignResult:
            clock = LoopClock()
            chosen = Settings(
                journal=self.folder,
                batch_flush_interval=1,
                num_evaluation_workers=WORKERS,
                low_sample_threshold=0,
                drain_timeout_s=120,
                queue_warning_threshold=50_000,
                queue_pause_threshold=60_000,
                **settings,
            )
            requests = RequestSide(chosen, clock=clock, emit=self.events.append)
            plan = CampaignPlan(
                chosen,
                StaticRoster(list(roster)),
                free_environments({"test:free": rate_per_s * 86_400}, data_length=100_000),
                self.store,
                EndpointChats(providers, requests, clock=clock),
                requests=requests,
                duration_s=duration_s,
            )
            campaign = Campaign(plan, clock=clock, emit=self.events.append, inline=True)

            async def look() -> None:
                while True:
                    await clock.sleep(10)
                    self.statuses.append((clock.monotonic(), campaign.status()))

            async with asyncio.TaskGroup() as group:
                looking = group.create_task(look())
                result = await campaign.run()
                looking.cancel()
            requests.admission.validate()
            assert all(key.in_flight == 0 for key in requests.admission.snapshots()), "no lease is left"
            assert requests.admission.waiting() == 0
            return result

        self.result = run_virtual(main())

    def samples_of(self, name: str) -> list[Sample]:
        return [s for s in self.store.samples if s.model.startswith(f"{name}@")]


@pytest.fixture
def world(tmp_path: Path) -> StormWorld:
    return StormWorld(tmp_path / "journal")


def model(host: str, **fields: Any) -> Model:
    return Model(host, uid=sum(map(ord, host)), base_url=f"http://{host}/v1", max_parallel=WORKERS, **fields)


def test_a_storm_at_one_provider_costs_the_other_nothing_and_loses_no_sample(tmp_path: Path) -> None:
    alone = StormWorld(tmp_path / "alone")
    calm_alone = StormyProvider()
    alone.run([model("calm")], Providers(calm=calm_alone))
    world = StormWorld(tmp_path / "both")
    calm, stormy = StormyProvider(), StormyProvider(storms=[STORM])
    world.run([model("calm"), model("stormy")], Providers(calm=calm, stormy=stormy))
    print(calm_alone.throughput(*STORM), calm.throughput(*STORM), len(stormy.refused), len(stormy.answered), [(round(t), round(stormy.throughput(t,t+20),2)) for t in range(400,900,20)], world.result.open_tasks, len(world.store.samples), world.result.stopped_by, sum(isinstance(e,TaskDeferred) for e in world.events))
    share = calm.throughput(*STORM) / calm_alone.throughput(*STORM)
    assert share >= 0.95, f"the calm provider kept {share:.1%} of its throughput"
    assert {s.error_kind for s in world.store.samples} == {None}
    before = stormy.throughput(60, 120)
    recovered = next(
        at for at in range(420, 900) if stormy.throughput(at, at + 20) >= 0.9 * before
    ) - STORM[1]
    assert recovered <= 60, f"{recovered} s until 90 % of {before:.2f} per s"
