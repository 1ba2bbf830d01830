"""A training in rounds, each role a task placed by its priority: rollouts wherever there is room, training first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from prefect import task
from prefect.cache_policies import NO_CACHE

from headgate.orchestration.placement.demand import placed
from headgate.orchestration.placement.runner import PlacedFuture, PlacementTaskRunner
from headgate.placement import amounts
from headgate.placement.roles import Place, Reward, Rollout, Train, Trial, names_in

_PLAIN: Final[dict[str, Any]] = {"cache_policy": NO_CACHE, "persist_result": False}


@task(name="rollout", task_run_name="rollout {round_number}.{shard}", **_PLAIN)
def rollout(place: Place, round_number: int, shard: int, shards: int, most: int, seed: int) -> dict[str, Any]:
    """Play episodes with the newest policy until the round has made the next one."""
    return Rollout(place, round_number, shard, shards, most, seed).run()


@task(name="reward", task_run_name="reward {round_number}", **_PLAIN)
def reward(place: Place, round_number: int, batches: int) -> dict[str, Any]:
    """Score so many batches of a round."""
    return Reward(place, round_number, batches).run()


@task(name="train", task_run_name="train {round_number}", **_PLAIN)
def train(place: Place, round_number: int) -> dict[str, Any]:
    """Make the policy of a round from its scored batches."""
    return Train(place, round_number).run()


@task(name="trial", task_run_name="{name}", **_PLAIN)
def trial(place: Place, name: str, episodes: int, is_trained: bool, seed: int) -> dict[str, Any]:
    """Play tasks that nobody trains on, with the newest policy or by chance."""
    return Trial(place, name, episodes, is_trained=is_trained, seed=seed).run()


ROLLOUT_PRIORITY: Final = 2.0
TRIAL_PRIORITY: Final = 4.0
REWARD_PRIORITY: Final = 5.0
TRAIN_PRIORITY: Final = 9.0

TRAIN_CPUS: Final = 2

_MOST_BATCHES: Final = 8
"""Rollouts play at most so many times what a round needs, and then leave their places by themselves."""

_LOOK_S: Final = 0.05
"""How often the folder is looked at for batches; other processes write it."""


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained.

    Attributes:
        place: environment and folder.
        rounds: updates of the policy.
        rollouts: shards that play at a time.
        batches: scored batches per round.
        trial_episodes: episodes that tell how good the policy is before and after.
        priority: added to the priority of every role.
        seed: of all random choices.
    """

    place: Place
    rounds: int
    rollouts: int
    batches: int
    trial_episodes: int
    priority: float = 0.0
    seed: int = 0

    @property
    def most(self) -> int:
        """Batches that a shard plays in a round at most."""
        return _MOST_BATCHES * -(-self.batches // self.rollouts)


@dataclass(slots=True)
class Learned:
    """What came of it.

    Attributes:
        rounds: figures of each round's update, in order.
        before: mean reward by chance; None until it is known.
        after: mean reward of the last policy, on the same tasks.
        episodes: episodes that were played.
    """

    rounds: list[Mapping[str, Any]] = field(default_factory=list)
    before: float | None = None
    after: float | None = None
    episodes: int = 0


class PlacedTraining:
    """Runs one training through a task runner. Owned by one flow run; `learned` may be read when it was cut short."""

    def __init__(self, training: Training, runner: PlacementTaskRunner) -> None:
        self.learned = Learned()
        self._training = training
        self._runner = runner

    async def run(self) -> None:
        """Train all rounds that the folder does not have yet.

        Raises:
            HeadgateError: a role can never be placed, or failed.
        """
        training = self._training
        before = self._try(0)
        policy = training.place.opened().policy()
        first = 1 if policy is None else policy.version + 1
        for number in range(first, training.rounds + 1):
            await self._round(number)
        after = self._try(training.rounds)
        self.learned.before = (await result_of(before))["mean_reward"]
        self.learned.after = (await result_of(after))["mean_reward"]

    async def _round(self, number: int) -> None:
        training, place = self._training, self._training.place
        with placed(
            priority=ROLLOUT_PRIORITY + training.priority,
            labels={"role": "rollout"},
            min_runtime_s=1.0,
            checkpoints=True,
        ):
            playing = [
                self._submit(
                    rollout,
                    place=place,
                    round_number=number,
                    shard=shard,
                    shards=training.rollouts,
                    most=training.most,
                    seed=training.seed,
                )
                for shard in range(training.rollouts)
            ]
        await self._until_played(number, playing)
        with placed(priority=REWARD_PRIORITY + training.priority, labels={"role": "reward"}, checkpoints=True):
            await result_of(self._submit(reward, place=place, round_number=number, batches=training.batches))
        with placed(
            priority=TRAIN_PRIORITY + training.priority,
            labels={"role": "train"},
            resources=amounts(cpu=TRAIN_CPUS),
            checkpoints=True,
        ):
            self.learned.rounds.append(await result_of(self._submit(train, place=place, round_number=number)))
        self.learned.episodes += sum([(await result_of(future))["episodes"] for future in playing])

    async def _until_played(self, number: int, playing: Sequence[PlacedFuture]) -> None:
        """Return when a round has its batches; what waits for them holds no place meanwhile."""
        folder = self._training.place.opened()
        while len(names_in(folder.played, number)) + len(names_in(folder.scored, number)) < self._training.batches:
            ended = [future for future in playing if future.wrapped_future.done()]
            for future in ended:
                await result_of(future)
            if len(ended) == len(playing):
                return  # all have played as much as they may; the round makes do with it
            await asyncio.sleep(_LOOK_S)

    def _try(self, version: int) -> PlacedFuture:
        training = self._training
        with placed(priority=TRIAL_PRIORITY + training.priority, labels={"role": "trial"}, checkpoints=True):
            return self._submit(
                trial,
                place=training.place,
                name=f"trial-{version:03d}",
                episodes=training.trial_episodes,
                is_trained=version > 0,
                seed=training.seed,
            )

    def _submit(self, task: Any, **parameters: Any) -> PlacedFuture:
        return self._runner.submit(task, parameters)


class RoleStoppedError(Exception):
    """A role was cancelled, because its flow run is."""


async def result_of(future: PlacedFuture) -> Mapping[str, Any]:
    """Return what a role has done.

    Raises:
        RoleStoppedError: it was cancelled.
        HeadgateError: it can never be placed.
        Exception: what it raised.
    """
    state = await asyncio.wrap_future(future.wrapped_future)
    if state.is_cancelled():
        raise RoleStoppedError
    figures: Mapping[str, Any] = await state.aresult()
    return figures
