"""The grid simulator, its baselines and its scores."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.policy import (
    MAX_STEPS,
    Action,
    PolicyFailedError,
    PolicyServer,
    RandomPolicy,
    ScriptedPolicy,
    SlowPolicy,
    SyncPolicyClient,
    baseline_policy,
    load_simulation,
    run_episode,
)
from headgate.jobqueue.policy.simulator import AGENT, FORWARD, LEFT, RIGHT, SUBGOAL, WALL, distances, draw_grid
from tests.examples import examples

NAMES = st.text(min_size=1, max_size=20)


class Saying:
    """A policy that always does the same."""

    def __init__(self, action: Any) -> None:
        self._action = np.asarray(action)

    @property
    def metadata(self) -> Mapping[str, Any]:
        return {}

    def reset(self) -> None:
        pass

    def act(self, observation: Mapping[str, Any]) -> Action:
        return self._action


@given(NAMES, NAMES)
@settings(max_examples=examples(50))
def test_every_subgoal_of_every_grid_can_be_reached(task: str, instance: str) -> None:
    grid = draw_grid(task, instance)
    assert {grid.start, *grid.subgoals} <= set(distances(grid.walls, grid.start))
    assert len({grid.start, *grid.subgoals}) == len(grid.subgoals) + 1
    border = np.concatenate([grid.walls[0], grid.walls[-1], grid.walls[:, 0], grid.walls[:, -1]])
    assert border.all()


def test_a_task_and_its_instance_give_the_same_world_everywhere() -> None:
    grid = draw_grid("tidy_the_kitchen", "7")
    assert (grid.seed, grid.walls.shape, grid.start, grid.direction) == (3729620447, (17, 17), (3, 10), 1)
    assert grid.subgoals == ((12, 6), (12, 9), (12, 1), (8, 2), (9, 9))


def test_instances_of_a_task_are_alike_and_not_the_same() -> None:
    grids = [draw_grid("tidy", str(number)) for number in range(5)]
    assert len({grid.walls.shape for grid in grids}) == len({len(grid.subgoals) for grid in grids}) == 1
    assert len({grid.seed for grid in grids}) == len({grid.walls.tobytes() for grid in grids}) == 5


def test_an_observation_shows_walls_subgoals_and_agent() -> None:
    simulation = load_simulation("tidy", "0")
    seen = simulation.observation()
    kinds = seen["image"][..., 0]
    assert np.array_equal(kinds == WALL, simulation.grid.walls)
    assert kinds[tuple(seen["position"])] == AGENT
    assert tuple(seen["goal"]) == simulation.grid.subgoals[0]
    assert int((kinds == SUBGOAL).sum()) == len(simulation.grid.subgoals)
    assert sorted(seen["image"][..., 1][kinds == SUBGOAL]) == list(range(1, len(simulation.grid.subgoals) + 1))


def test_turns_turn_and_walls_stop() -> None:
    simulation = load_simulation("tidy", "0")
    began = simulation.observation()
    simulation.step(np.array([LEFT]))
    simulation.step(np.array([RIGHT]))
    assert simulation.observation()["direction"] == began["direction"]
    for _ in range(40):
        simulation.step(np.array([FORWARD]))
    stopped = simulation.observation()
    simulation.step(np.array([FORWARD]))
    assert stopped["position"].tolist() == simulation.observation()["position"].tolist()


def test_the_score_is_the_share_of_subgoals_in_their_order() -> None:
    simulation = load_simulation("tidy", "1")
    policy, scores = ScriptedPolicy(), [simulation.q_score]
    while not simulation.is_over:
        simulation.step(policy.act(simulation.observation()))
        scores.append(simulation.q_score)
    count = len(simulation.grid.subgoals)
    assert sorted(set(scores)) == [number / count for number in range(count + 1)]
    assert scores == sorted(scores)


def test_the_scripted_baseline_reaches_everything_and_the_random_one_little() -> None:
    episodes = [(f"task-{number % 10}", str(number)) for number in range(40)]
    scripted = [run_episode(ScriptedPolicy(), load_simulation(*episode)) for episode in episodes]
    drawn = [run_episode(RandomPolicy(), load_simulation(*episode)) for episode in episodes]
    assert all(result["success"] and result["q_score"] == 1.0 for result in scripted)
    assert statistics.mean(result["q_score"] for result in drawn) < 0.3
    assert not any(result["success"] for result in drawn)


@pytest.mark.parametrize("name", ["random", "scripted"])
def test_the_same_episode_gives_the_same_result(name: str) -> None:
    policy = baseline_policy(name)
    first = run_episode(policy, load_simulation("tidy", "3"))
    run_episode(policy, load_simulation("other", "1"))
    assert (
        run_episode(policy, load_simulation("tidy", "3"))
        == first
        == run_episode(baseline_policy(name), load_simulation("tidy", "3"))
    )


def test_a_result_says_what_was_done() -> None:
    result = run_episode(RandomPolicy(), load_simulation("tidy", "3"), max_steps=20)
    assert result == {
        "q_score": result["q_score"],
        "success": False,
        "steps": 20,
        "seed": draw_grid("tidy", "3").seed,
        "simulator": "headgate-grid-1",
        "policy": "baseline-random",
    }


@pytest.mark.parametrize("action", [[3], [-1], [0.5], [0, 1], [], [np.nan]], ids=str)
def test_an_action_that_the_simulator_does_not_know_is_the_policys_failure(action: Any) -> None:
    with pytest.raises(PolicyFailedError, match="0, 1 or 2"):
        run_episode(Saying(action), load_simulation("tidy", "0"))


@pytest.mark.parametrize("action", [2, [2], [[2.0]], np.float32(2)], ids=str)
def test_an_action_may_have_any_shape_of_one_number(action: Any) -> None:
    assert run_episode(Saying(action), load_simulation("tidy", "0"))["steps"] == MAX_STEPS


def test_an_episode_needs_a_step() -> None:
    with pytest.raises(InvalidInputError, match="max_steps must be >= 1"):
        run_episode(RandomPolicy(), load_simulation("tidy", "0"), max_steps=0)


def test_an_unknown_baseline_is_said_with_those_there_are() -> None:
    with pytest.raises(InvalidInputError, match="random, scripted"):
        baseline_policy("clever")
    with pytest.raises(InvalidInputError, match="delay"):
        baseline_policy("random", delay_s=-1)


def test_a_slow_baseline_is_the_same_one_later() -> None:
    waited: list[float] = []
    slow = SlowPolicy(ScriptedPolicy(), 0.2, sleep=waited.append)
    result = run_episode(slow, load_simulation("tidy", "2"))
    assert result == run_episode(ScriptedPolicy(), load_simulation("tidy", "2"))
    assert waited == [0.2] * result["steps"]
    assert slow.metadata["policy"] == "baseline-scripted"


@pytest.mark.parametrize("name", ["random", "scripted"])
async def test_a_policy_behind_a_server_scores_what_it_scores_here(name: str) -> None:
    def over_the_wire(port: int) -> Any:
        with SyncPolicyClient("127.0.0.1", port) as client:
            return [run_episode(client, load_simulation("tidy", instance)) for instance in ("0", "1")]

    async with PolicyServer(baseline_policy(name)) as server:
        results = await asyncio.to_thread(over_the_wire, server.port)
    assert results == [run_episode(baseline_policy(name), load_simulation("tidy", instance)) for instance in ("0", "1")]
