"""The roles of a training: what they learn, and that a stop at any moment changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headgate.placement.errors import InvalidPlacementError
from headgate.placement.roles import (
    BATCH,
    Batch,
    Place,
    Policy,
    Reward,
    Role,
    RoleFolder,
    Rollout,
    Train,
    Trial,
    names_in,
    skill_of,
)
from headgate.placement.roles.policy import as_json

GRID = "agentgym:babyai"
FORMULAS = "affine:sat"


def _round(place: Place, number: int, batches: int) -> float:
    """Play, score and learn once; return the mean reward of what was played."""
    Rollout(place, number, 0, 1, most=batches).run()
    mean = Reward(place, number, batches).run()["mean_reward"]
    assert Train(place, number).run()["is_published"]
    return float(mean)


@pytest.mark.long
def test_a_policy_that_trains_on_rollouts_earns_more_than_chance(tmp_path: Path) -> None:
    place = Place(GRID, str(tmp_path))
    before = Trial(place, "trial-before", 20, is_trained=False).run()
    for version in range(1, 5):
        _round(place, version, batches=3)
    after = Trial(place, "trial-after", 20, is_trained=True).run()
    assert (before["version"], after["version"]) == (0, 4)
    assert after["mean_reward"] >= before["mean_reward"] + 0.08


def _roles(place: Place) -> list[Role]:
    rollouts: list[Role] = [Rollout(place, 1, shard, 2, most=2) for shard in range(2)]
    return [*rollouts, Reward(place, 1, 4), Train(place, 1, epochs=3)]


def _worked(place: Place, role: Role, stops: set[int]) -> None:
    """Work on a role in its folder, beginning anew from its checkpoint before the steps in `stops`."""
    for step in range(100):
        if step in stops:
            role = next(fresh for fresh in _roles(place) if fresh.name == role.name)
            role.resume()
        if not role.step():
            return


@pytest.mark.parametrize("stops", [{0, 1, 2, 3, 4}, {2}, {1, 3}], ids=str)
def test_roles_that_were_stopped_leave_the_same_policy_as_those_that_never_were(
    tmp_path: Path, stops: set[int]
) -> None:
    weights = []
    for name, stopped in (("whole", set()), ("stopped", stops)):
        place = Place(FORMULAS, str(tmp_path / name))
        for role in _roles(place):
            _worked(place, role, stopped)
        policy = place.opened().policy()
        assert policy is not None
        weights.append(policy.weights)
    assert np.array_equal(*weights)


def test_a_train_role_killed_after_it_published_takes_its_batches_away_and_learns_from_none_twice(
    tmp_path: Path,
) -> None:
    place = Place(FORMULAS, str(tmp_path))
    _play_and_score(place, batches=2)
    killed = Train(place, 1, epochs=1)
    killed.step()
    folder = place.opened()
    assert len(names_in(folder.scored)) == 2
    published = folder.policy()
    again = Train(place, 1, epochs=1)
    figures = again.run()
    assert (figures["version"], figures["batches"], names_in(folder.scored)) == (1, 2, [])
    assert np.array_equal(folder.policy().weights, published.weights)  # type: ignore[union-attr]


def test_a_reward_role_killed_between_writing_and_taking_away_scores_nothing_twice(tmp_path: Path) -> None:
    place = Place(FORMULAS, str(tmp_path))
    folder = _play_and_score(place, batches=2, scored=1)
    (name,) = names_in(folder.scored)
    (folder.played / name).write_bytes((folder.scored / name).read_bytes())
    assert Reward(place, 1, 2).run()["batches"] == 2
    assert (len(names_in(folder.scored)), names_in(folder.played)) == (2, [])


def _play_and_score(place: Place, batches: int, scored: int | None = None) -> RoleFolder:
    Rollout(place, 1, 0, 1, most=batches).run()
    reward = Reward(place, 1, batches)
    for _ in range(batches if scored is None else scored):
        reward.step()
    return place.opened()


def test_a_rollout_ends_when_its_round_has_its_policy_and_after_so_many_batches_in_any_case(tmp_path: Path) -> None:
    place = Place(FORMULAS, str(tmp_path))
    assert Rollout(place, 1, 0, 1, most=2).run() == {"episodes": 2 * BATCH, "batches": 2}
    place.opened().publish(Policy(np.zeros(3), 1))
    assert Rollout(place, 1, 1, 1, most=2).run()["batches"] == 0
    assert Rollout(place, 2, 0, 1, most=1).run()["batches"] == 1


def test_a_batch_is_read_as_it_was_written(tmp_path: Path) -> None:
    place = Place(GRID, str(tmp_path))
    Rollout(place, 1, 0, 1, most=1).step()
    (name,) = names_in(place.opened().played)
    data = (place.opened().played / name).read_bytes()
    batch = Batch.of_json(data)
    assert len(batch.episodes) == BATCH
    assert all(len(episode.replies) == len(episode.choices) for episode in batch.episodes)
    again = Batch.of_json(as_json(batch))
    assert [e.replies for e in again.episodes] == [e.replies for e in batch.episodes]
    decisions = [(d.tolist(), c, p) for e in batch.episodes for d, c, p in e.choices]
    assert [(d.tolist(), c, p) for e in again.episodes for d, c, p in e.choices] == decisions


def test_an_environment_that_no_policy_can_play_is_refused_by_name() -> None:
    with pytest.raises(InvalidPlacementError, match="No policy can play 'affine:ded' yet"):
        skill_of("affine:ded")
