"""Training in rounds, each role a task placed by its priority: training goes first, rollouts use the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

from headgate.orchestration.placement.demand import placed
from headgate.orchestration.placement.runner import PlacedFuture, PlacementTaskRunner
from headgate.placement import PoolSpec, amounts
from headgate.placement.roles import BATCH, Place, Reward, Rollout, Train, Trial, names_in

_PLAIN: Final[dict[str, Any]] = {"cache_policy": NO_CACHE, "persist_result": False}


@task(name="rollout", task_run_name="rollout {round_number}.{shard}", **_PLAIN)
def rollout(place: Place, round_number: int, shard: int, shards: int, most: int, seed: int) -> dict[str, Any]:
    """Play episodes with the newest policy until the round has made the next one."""
    return Rollout(place, round_number, shard, shards, most, seed).run()


@task(name="reward", task_run_name="reward {round_number}", **_PLAIN)
def reward(place: Place, round_number: int, batches: int) -> dict[str, Any]:
    """Score `batches` batches of a round."""
    return Reward(place, round_number, batches).run()


@task(name="train", task_run_name="train {round_number}", **_PLAIN)
def train(place: Place, round_number: int) -> dict[str, Any]:
    """Train the policy of a round on its scored batches."""
    return Train(place, round_number).run()


@task(name="trial", task_run_name="{name}", **_PLAIN)
def trial(place: Place, name: str, episodes: int, is_trained: bool, seed: int) -> dict[str, Any]:
    """Play tasks that training does not use, with the newest policy or at random."""
    return Trial(place, name, episodes, is_trained=is_trained, seed=seed).run()


TRAIN_PRIORITY: Final = 9.0
TRAIN_CPUS: Final = 2

_ASKED: Final[Mapping[str, Mapping[str, Any]]] = {
    "rollout": {"priority": 2.0, "min_runtime_s": 1.0},
    "trial": {"priority": 4.0},
    "reward": {"priority": 5.0},
    "train": {"priority": TRAIN_PRIORITY, "resources": amounts(cpu=TRAIN_CPUS)},
}
"""Role -> its demand, as arguments of `placed`."""

_MOST_BATCHES: Final = 8
"""Rollouts play at most this many times what a round needs, and then leave their places by themselves."""

_LOOK_S: Final = 0.05
"""How often the folder is checked for batches, which other processes write."""


@dataclass(frozen=True, slots=True)
class PlacingOrder:
    """What a flow run should train.

    The fields are the parameters of the flow `place-roles`, which documents them.
    """

    name: str
    environment: str
    rounds: int
    rollouts: int
    episodes: int
    trial_episodes: int
    cluster: str = ""
    pool: str = "rlhf"
    priority: float = 0.0
    folder: str = ".headgate/placement"
    seed: int = 0

    @property
    def place(self) -> Place:
        """The folder and environment of the roles."""
        return Place(self.environment, str((Path(self.folder) / self.name).absolute()))

    @property
    def batches(self) -> int:
        """Scored batches per round."""
        return -(-self.episodes // BATCH)

    def own_pool(self) -> PoolSpec:
        """Return the pool to create if there is none: room for all rollouts, part of it borrowed from training."""
        return PoolSpec.model_validate(
            {
                "name": self.pool,
                "quota": {"cpu": self.rollouts + TRAIN_CPUS - 1},
                "reserved": [{"cpu": TRAIN_CPUS}],
                "reserved_from_priority": min(8.0, TRAIN_PRIORITY + self.priority),
            }
        )


@dataclass(slots=True)
class Learned:
    """The results of a training.

    Figures of each round's update, and the mean reward on the same tasks before (at random) and after; None until
    known.
    """

    rounds: list[Mapping[str, Any]] = field(default_factory=list)
    before: float | None = None
    after: float | None = None
    episodes: int = 0


class PlacedTraining:
    """Runs one training through a task runner. Owned by one flow run; `learned` is readable after an interruption."""

    def __init__(self, order: PlacingOrder, runner: PlacementTaskRunner) -> None:
        self.learned = Learned()
        self._order = order
        self._place = order.place
        self._runner = runner

    async def run(self) -> None:
        """Train all rounds that the folder does not have yet.

        Raises:
            HeadgateError: if a role can never be placed, or failed.
        """
        before = self._try(0)
        policy = self._place.opened().policy()
        first = 1 if policy is None else policy.version + 1
        for number in range(first, self._order.rounds + 1):
            await self._round(number)
        after = self._try(self._order.rounds)
        self.learned.before = (await result_of(before))["mean_reward"]
        self.learned.after = (await result_of(after))["mean_reward"]

    async def _round(self, number: int) -> None:
        order, shards = self._order, self._order.rollouts
        most = _MOST_BATCHES * -(-order.batches // shards)
        playing = [
            self._submit(rollout, round_number=number, shard=shard, shards=shards, most=most, seed=order.seed)
            for shard in range(shards)
        ]
        await self._until_played(number, playing)
        await result_of(self._submit(reward, round_number=number, batches=order.batches))
        self.learned.rounds.append(await result_of(self._submit(train, round_number=number)))
        self.learned.episodes += sum([(await result_of(future))["episodes"] for future in playing])

    async def _until_played(self, number: int, playing: Sequence[PlacedFuture]) -> None:
        """Return when a round has its batches; the wait holds no place."""
        folder = self._place.opened()
        while len(names_in(folder.played, number)) + len(names_in(folder.scored, number)) < self._order.batches:
            ended = [future for future in playing if future.wrapped_future.done()]
            for future in ended:
                await result_of(future)
            if len(ended) == len(playing):
                return  # all have played as much as they may; the round uses what there is
            await asyncio.sleep(_LOOK_S)

    def _try(self, version: int) -> PlacedFuture:
        name, episodes = f"trial-{version:03d}", self._order.trial_episodes
        return self._submit(trial, name=name, episodes=episodes, is_trained=version > 0, seed=self._order.seed)

    def _submit(self, role: Task[Any, Any], **parameters: Any) -> PlacedFuture:
        asked = dict(_ASKED[role.name])
        priority = asked.pop("priority") + self._order.priority
        with placed(priority=priority, labels={"role": role.name}, checkpoints=True, **asked):
            return self._runner.submit(role, {"place": self._place, **parameters})


class RoleStoppedError(Exception):
    """A role was cancelled because its flow run was cancelled."""


async def result_of(future: PlacedFuture) -> Mapping[str, Any]:
    """Return the result of a role.

    Raises:
        RoleStoppedError: if it was cancelled.
        HeadgateError: if it can never be placed.
        Exception: whatever the role raised.
    """
    state = await asyncio.wrap_future(future.wrapped_future)
    if state.is_cancelled():
        raise RoleStoppedError
    figures: Mapping[str, Any] = await state.aresult()
    return figures
