"""The roles of a training as Prefect tasks: each goes on from its checkpoint in the folder, wherever it is started."""

from __future__ import annotations

from typing import Any, Final

from prefect import task
from prefect.cache_policies import NO_CACHE

from headgate.placement.roles import Place, Reward, Rollout, Train, Trial

_PLAIN: Final[dict[str, Any]] = {"cache_policy": NO_CACHE, "persist_result": False}


@task(name="rollout", task_run_name="rollout {round_number}.{shard}", **_PLAIN)
def rollout(place: Place, round_number: int, shard: int, shards: int, most: int, seed: int) -> dict[str, Any]:
    """Play episodes with the newest policy until the round has made the next one."""
    return dict(Rollout(place, round_number, shard, shards, most, seed).run_in_folder())


@task(name="reward", task_run_name="reward {round_number}", **_PLAIN)
def reward(place: Place, round_number: int, batches: int) -> dict[str, Any]:
    """Score so many batches of a round."""
    return dict(Reward(place, round_number, batches).run_in_folder())


@task(name="train", task_run_name="train {round_number}", **_PLAIN)
def train(place: Place, round_number: int) -> dict[str, Any]:
    """Make the policy of a round from its scored batches."""
    return dict(Train(place, round_number).run_in_folder())


@task(name="trial", task_run_name="{name}", **_PLAIN)
def trial(place: Place, name: str, episodes: int, is_trained: bool, seed: int) -> dict[str, Any]:
    """Play tasks that nobody trains on, with the newest policy or by chance."""
    return dict(Trial(place, name, episodes, is_trained=is_trained, seed=seed).run_in_folder())
