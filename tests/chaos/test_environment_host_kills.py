"""Runs whose environments are on Ray nodes while nodes, hosts and their own connection to Ray are killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.core.events import EnvironmentClusterJoined, Event
from tests.run.hosts.site import MODELS, Cluster, cluster, commands_of, left_in, sampled, stored

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.long]


@pytest.fixture(scope="module")
def there() -> Iterator[Cluster]:
    with cluster(3) as made:
        yield made


def _kill_one(word: str) -> Callable[[Cluster, random.Random], None]:
    def kill(there: Cluster, rng: random.Random) -> None:
        if found := sorted(commands_of(there, word)):
            os.kill(rng.choice(found), signal.SIGKILL)

    return kill


def _kill_node(there: Cluster, rng: random.Random) -> None:
    if len(there.nodes) > 1:
        there.kill(rng.choice(there.nodes))


class Told(list[Event]):
    """What a run has told, and whether it has joined the cluster: one that cannot join ends with an error."""

    def __init__(self) -> None:
        super().__init__()
        self.joined = asyncio.get_running_loop().create_future()

    def append(self, event: Event) -> None:
        super().append(event)
        if isinstance(event, EnvironmentClusterJoined) and not self.joined.done():
            self.joined.set_result(None)


KILLS = (_kill_node, _kill_one("headgate.environments.apart"), _kill_one("headgate.run.hosts"))


@pytest.mark.timeout(3_600)
async def test_nothing_is_lost_or_twice_when_nodes_processes_and_connections_are_killed(
    there: Cluster, kills: int, chaos_seed: int, tmp_path: Path
) -> None:
    rng = random.Random(chaos_seed)
    for number in range(max(1, kills // 2)):
        while len(there.nodes) < 3:
            there.add()
        folder, told = tmp_path / str(number), Told()
        running = asyncio.create_task(sampled(folder, there.address, told, tasks=40, num_evaluation_workers=12))
        await asyncio.wait([running, told.joined], return_when=asyncio.FIRST_COMPLETED)
        for kill in rng.sample(KILLS, 2):
            await asyncio.wait([running], timeout=rng.uniform(0.0, 8.0))
            kill(there, rng)
        result = await running
        assert (result.samples, result.open_tasks) == (80, 0)
        rows: list[Any] = await stored(folder)
        assert sorted((model, sequence) for model, sequence, _, _ in rows) == sorted(
            (model.key, sequence) for model in MODELS for sequence in range(40)
        )
        # A process of an environment that is killed is the environment's failure; no host, node or connection is.
        assert all(score == 1.0 or kind == "environment" for _, _, score, kind in rows)
        assert sum(score is None for _, _, score, _ in rows) <= 4
        assert commands_of(there, "headgate.environments.apart") == commands_of(there, "headgate.run.hosts") == {}
        assert left_in(there) == ["[] False", "[]"]
