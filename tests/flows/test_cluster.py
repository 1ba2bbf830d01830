"""The parameter `cluster` of the sampling flows: every environment is played on the nodes of a Ray cluster."""

from __future__ import annotations

import asyncio

import pytest

from blocks import RayCluster
from flows.sampling import sample_environment
from tests.flows.places import Places, window
from tests.run.hosts.site import cluster, commands_of, left_in

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]


async def test_a_window_plays_its_episodes_on_the_cluster_that_a_block_names(prefect: object, places: Places) -> None:
    with cluster(1) as there:
        await RayCluster(address=there.address).save("nodes", overwrite=True)
        settings = places.settings(episodes_apart="all")
        given = window(places, cluster="nodes", duration_s=20.0, settings=settings)
        running = asyncio.create_task(sample_environment(**given))
        async with asyncio.timeout(120):
            while not commands_of(there, "headgate.environments.apart"):
                assert not running.done(), running.result()
                await asyncio.sleep(0.2)
        counts = await running
        stored = await places.stored()
        assert 0 < counts["samples"] == counts["scored"] == stored.height == await places.assert_nothing_lost()
        assert commands_of(there, "headgate.environments.apart") == {}
        assert left_in(there) == ["[] False", "[]"]
