"""Rollouts, a reward and a training in a pool of 6 CPUs with two reserved groups of 2: who runs, who is stopped."""

from __future__ import annotations

import pytest

from headgate.placement.request import Stage
from tests.placement.ledger.world import World, pool, reserved, rules


@pytest.fixture
def world() -> World:
    world = World(pool(cpu=6, reserved=(reserved(2), reserved(2))), preemption=rules(same_pool_threshold=1.0))
    for name in ("rollout-1", "rollout-2"):
        world.submit(name, 1.5, priority=3.0, role="rollout")
    return world


def test_two_rollouts_run_at_once(world: World) -> None:
    assert world.running() == {"rollout-1", "rollout-2"}


def test_a_reward_takes_a_reserved_group_and_stops_whom_it_must(world: World) -> None:
    world.submit("reward", 2, priority=8.5, role="reward")
    assert "reward" in world.running()
    assert world.request("reward").group_id in world.reserved_groups()


def test_a_training_that_finds_no_room_stops_a_rollout_and_not_the_reward(world: World) -> None:
    world.submit("reward", 2, priority=8.5, role="reward")
    world.submit("train", 2, priority=9.0, role="train")
    assert {"reward", "train"} <= world.running()
    assert set(world.stopped()) <= {"rollout-1", "rollout-2"}
    assert len(world.reserved_groups()) == 2


def test_one_more_rollout_changes_nothing_for_those_above_it(world: World) -> None:
    world.submit("reward", 2, priority=8.5, role="reward")
    world.submit("train", 2, priority=9.0, role="train")
    world.submit("rollout-3", 1.5, priority=4.5, role="rollout")
    assert {"reward", "train"} <= world.running()


def test_all_victims_finish_and_the_reserved_groups_stay_two(world: World) -> None:
    world.submit("reward", 2, priority=8.5, role="reward")
    world.submit("train", 2, priority=9.0, role="train")
    world.submit("rollout-3", 1.5, priority=4.5, role="rollout")
    while running := sorted(world.running()):
        world.end(running[0])
        assert len(world.reserved_groups()) == 2
    assert {request.stage for request in world.ledger.requests.values()} == {Stage.DONE}
    assert all(world.ledger.groups[name].state == "free" for name in world.reserved_groups())
