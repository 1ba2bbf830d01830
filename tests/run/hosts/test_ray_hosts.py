"""Environments on the nodes of a real Ray cluster: nodes come and are killed, and every sample is taken once."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from headgate.core.errors import EnvironmentHostsError
from headgate.core.events import EnvironmentClusterLost, EnvironmentHostEnded, EnvironmentHostStarted
from headgate.run.hosts import hosts
from tests.run.hosts.site import MODELS, cluster, commands_of, left_in, sampled, stored

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def there():
    with cluster(2) as made:
        yield made


async def until(holds, within_s=60.0):
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def assert_all_is_stored_and_nothing_left(there, tmp_path, result, tasks):
    due = sorted((model.key, number, 1.0, None) for model in MODELS for number in range(tasks))
    assert (result.samples, result.scored, result.open_tasks) == (len(due), len(due), 0)
    assert sorted(await stored(tmp_path)) == due
    assert commands_of(there, "headgate.environments.apart") == {}
    assert commands_of(there, "headgate.run.hosts") == {}
    assert left_in(there) == ["[] False", "[]"]


@pytest.mark.long
async def test_a_killed_node_and_a_lost_connection_cost_no_sample_and_nothing_is_left(there, tmp_path):
    told = []

    def of(kind):
        return [event for event in told if isinstance(event, kind)]

    while len(there.nodes) < 2:  # this test ran before, and killed one
        there.add()
    running = asyncio.create_task(sampled(tmp_path, there.address, told, tasks=60))
    await until(lambda: len(of(EnvironmentHostStarted)) == 2 or running.done())
    there.kill(there.nodes[0])
    await until(lambda: of(EnvironmentHostEnded) or running.done())
    assert of(EnvironmentHostEnded)[0].episodes > 0
    (speaker,) = commands_of(there, "headgate.run.hosts")
    os.kill(speaker, signal.SIGKILL)
    await assert_all_is_stored_and_nothing_left(there, tmp_path, await running, tasks=60)
    assert of(EnvironmentClusterLost)


async def test_a_lost_connection_costs_no_sample_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "FIRST_PAUSE_S", 0.1)
    told = []
    with cluster(0) as there:
        running = asyncio.create_task(sampled(tmp_path, there.address, told, tasks=12))
        await until(lambda: any(isinstance(one, EnvironmentHostStarted) for one in told) or running.done())
        (speaker,) = commands_of(there, "headgate.run.hosts")
        os.kill(speaker, signal.SIGKILL)
        await assert_all_is_stored_and_nothing_left(there, tmp_path, await running, tasks=12)
    assert any(isinstance(one, EnvironmentClusterLost) for one in told)


async def test_a_cluster_that_is_not_there_is_refused_before_anything_is_started(tmp_path):
    with pytest.raises(EnvironmentHostsError, match=r"Nothing answers at 127\.0\.0\.1:1 within 3 s"):
        await sampled(tmp_path, "127.0.0.1:1", [], tasks=1)
