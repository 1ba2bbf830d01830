"""Roles work in steps and can be killed at any moment; rollouts play batches, rewards score them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from headgate.durable.files import write_whole
from headgate.environments import Environment, environment
from headgate.placement.roles.policy import (
    Batch,
    PlayedEpisode,
    Policy,
    RoleFolder,
    as_json,
    blank_policy,
    names_in,
    played,
    prefix_of,
    read_batch,
    scored,
)
from headgate.placement.roles.skill import Skill, skill_of


@dataclass(frozen=True, slots=True)
class Place:
    """Where a role works: its environment, and the folder that it shares with the other roles."""

    environment: str
    folder: str

    def opened(self) -> RoleFolder:
        """Return the folder."""
        return RoleFolder(Path(self.folder))

    def played(self) -> tuple[Environment, Skill]:
        """Return the environment and how a policy plays it.

        Raises:
            InvalidPlacementError: no policy can play it.
            UnknownEnvironmentError: no environment of this name is registered.
        """
        return environment(self.environment), skill_of(self.environment)


class Role(ABC):
    """One role of a training. Works in steps in the training's folder, and leaves a checkpoint after each.

    A role that is killed at any moment and run again ends with the same files as one that never was killed.
    """

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.folder = place.opened()
        self._environment, self._skill = place.played()

    def run(self) -> dict[str, Any]:
        """Resume from the checkpoint in the folder, work until everything is done, and return the figures."""
        self.resume()
        while self.step():
            pass
        return self.figures()

    def resume(self) -> None:
        """Resume from the checkpoint in the folder, if there is one."""
        state = self.folder.state(self.name)
        if state is not None:
            self._restore(orjson.loads(state))

    def step(self) -> bool:
        """Do the smallest piece of work, leave a checkpoint, and tell whether there is more."""
        goes_on = self._work()
        write_whole({self.folder.path / "states" / self.name: as_json(self._state())})
        return goes_on

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """Return the progress so far: plain numbers, texts and lists."""

    @abstractmethod
    def _work(self) -> bool: ...

    @abstractmethod
    def _state(self) -> Any: ...

    @abstractmethod
    def _restore(self, state: Any) -> None: ...


BATCH: Final = 8
"""Episodes per batch. A stop loses one batch at most, about a tenth of a second of work."""


class Rollout(Role):
    """One shard of a round's rollouts: plays its part of the tasks until the next policy is published.

    It ends when the policy of its round is published, and after `most` batches in any case, so that work that waits for
    its group does not wait for ever.
    """

    def __init__(self, place: Place, round_number: int, shard: int, shards: int, most: int, seed: int = 0) -> None:
        super().__init__(f"{prefix_of(round_number)}{shard:02d}", place)
        self._round, self._shard, self._shards = round_number, shard, shards
        self._most, self._seed = most, seed
        self._batches = 0

    def _work(self) -> bool:
        policy = self.folder.policy() or blank_policy(self._skill.features)
        if policy.version >= self._round or self._batches >= self._most:
            return False
        batch = Batch(policy.version, tuple(asyncio.run(self._play(policy))))
        write_whole({self.folder.played / f"{self.name}-{self._batches:06d}.json": as_json(batch)})
        self._batches += 1
        return True

    async def _play(self, policy: Policy) -> list[PlayedEpisode]:
        number = (self._round * self._most + self._batches) * self._shards + self._shard
        rng = np.random.default_rng([self._seed, number])
        length = self._environment.spec.data_length
        indices = [(number * BATCH + offset) % length for offset in range(BATCH)]
        return [await played(self._environment, self._skill, policy, index, rng) for index in indices]

    def figures(self) -> dict[str, Any]:
        """Return how many episodes were played."""
        return {"episodes": self._batches * BATCH, "batches": self._batches}

    def _state(self) -> dict[str, int]:
        return {"batches": self._batches}

    def _restore(self, state: dict[str, int]) -> None:
        self._batches = state["batches"]


class Trial(Role):
    """Plays the last tasks of an environment, the highest index first, with one policy: the newest, or none at all."""

    def __init__(self, place: Place, name: str, episodes: int, *, is_trained: bool, seed: int = 0) -> None:
        super().__init__(name, place)
        self._wanted, self._seed = episodes, seed
        newest = self.folder.policy() if is_trained else None
        self._policy = newest or blank_policy(self._skill.features)
        self._scores: list[float] = []

    def _work(self) -> bool:
        if len(self._scores) >= self._wanted:
            return False
        index = self._environment.spec.data_length - 1 - len(self._scores)
        rng = np.random.default_rng([self._seed, index])
        episode = asyncio.run(played(self._environment, self._skill, self._policy, index, rng))
        self._scores.append(asyncio.run(scored(self._environment, index, episode.replies)))
        return True

    def figures(self) -> dict[str, Any]:
        """Return the mean score."""
        return {
            "version": self._policy.version,
            "episodes": len(self._scores),
            "mean_reward": sum(self._scores) / max(1, len(self._scores)),
        }

    def _state(self) -> list[float]:
        return self._scores

    def _restore(self, state: list[float]) -> None:
        self._scores = state


class Reward(Role):
    """Scores batches of a round: each episode is replayed from its replies, and the environment scores it.

    A batch is written with its scores before the one without is removed; after a stop between the two, it may be scored
    again, into the same file.
    """

    def __init__(self, place: Place, round_number: int, batches: int) -> None:
        super().__init__(f"reward-{round_number:03d}", place)
        self._round, self._wanted = round_number, batches
        self._scored: list[str] = []
        self._sum = 0.0
        self._episodes = 0

    def _work(self) -> bool:
        if len(self._scored) >= self._wanted:
            return False
        done = set(self._scored)
        names = names_in(self.folder.played, self._round)
        for left in done.intersection(names):  # the role was stopped before it removed the batch
            (self.folder.played / left).unlink(missing_ok=True)
        waiting = [name for name in names if name not in done]
        batch = read_batch(self.folder.played / waiting[0]) if waiting else None
        if batch is None:
            return False
        name = waiting[0]
        scores = asyncio.run(self._scores(batch))
        write_whole({self.folder.scored / name: as_json(replace(batch, scores=scores))})
        (self.folder.played / name).unlink(missing_ok=True)
        self._scored.append(name)
        self._sum += sum(scores)
        self._episodes += len(scores)
        return True

    async def _scores(self, batch: Batch) -> tuple[float, ...]:
        return tuple([await scored(self._environment, e.index, e.replies) for e in batch.episodes])

    def figures(self) -> dict[str, Any]:
        """Return how many episodes were scored, and their mean."""
        mean = self._sum / self._episodes if self._episodes else None
        return {"batches": len(self._scored), "episodes": self._episodes, "mean_reward": mean}

    def _state(self) -> dict[str, Any]:
        return {"scored": self._scored, "sum": self._sum, "episodes": self._episodes}

    def _restore(self, state: dict[str, Any]) -> None:
        self._scored, self._sum, self._episodes = state["scored"], state["sum"], state["episodes"]
