"""Roles work in steps and can be stopped between any two; rollouts play batches, rewards score them."""

from __future__ import annotations

import asyncio
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from headgate.environments import Environment, environment
from headgate.placement.roles.policy import (
    Batch,
    PlayedEpisode,
    Policy,
    RoleFolder,
    blank_policy,
    names_in,
    played,
    prefix_of,
    read_batch,
    scored,
    write_whole,
)
from headgate.placement.roles.skill import Skill, skill_of

Figures = Mapping[str, Any]
"""What a role has done so far: plain numbers, texts and lists."""


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
            UnknownEnvironmentError: nobody registers it.
        """
        return environment(self.environment), skill_of(self.environment)


class Role(ABC):
    """One role of a training. Runs in one thread; `cancel` and `checkpoint` may be called from another.

    A role that was stopped and is restored from its last checkpoint ends with the same files as one that never was.
    """

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.folder = place.opened()
        self._stopped = threading.Event()
        self._step = threading.Lock()  # of a step and a checkpoint: neither sees the other half done

    def run(self) -> Figures:
        """Work until everything is done or `cancel` is called, and return what was done."""
        while not self._stopped.is_set() and self.step():
            pass
        return self.figures()

    def run_in_folder(self) -> Figures:
        """Do what `run` does, from the checkpoint in the folder on, and leave one there after every step."""
        state = self.folder.state(self.name)
        if state is not None:
            self.restore(state)
        goes_on = True
        while goes_on and not self._stopped.is_set():
            goes_on = self.step()
            self.folder.keep_state(self.name, self.checkpoint())
        return self.figures()

    def step(self) -> bool:
        """Do the smallest piece of work, and tell whether there is more."""
        with self._step:
            return self._work()

    def checkpoint(self) -> bytes:
        """Return what `restore` goes on from; waits for the step in progress."""
        with self._step:
            return self._state()

    def cancel(self, task_id: str = "") -> None:
        """Have `run` return after the step in progress."""
        del task_id
        self._stopped.set()

    @abstractmethod
    def restore(self, state: bytes) -> None:
        """Go on from a checkpoint."""

    @abstractmethod
    def figures(self) -> Figures:
        """Return what was done so far."""

    @abstractmethod
    def _work(self) -> bool: ...

    @abstractmethod
    def _state(self) -> bytes: ...

    def _pause(self, seconds: float) -> None:
        """Wait for other roles; a stop ends it."""
        self._stopped.wait(seconds)


BATCH: Final = 8
"""Episodes of a batch: what a stop costs at most, about a tenth of a second of work."""


class Rollout(Role):
    """One shard of the rollouts of a round: plays its part of the tasks until the policy has moved on.

    It ends when the policy of its round is there, and after `most` batches in any case: whoever waits for its place
    does not wait for ever.
    """

    def __init__(self, place: Place, round_number: int, shard: int, shards: int, most: int, seed: int = 0) -> None:
        super().__init__(f"{prefix_of(round_number)}{shard:02d}", place)
        self._environment, self._skill = place.played()
        self._round, self._shard, self._shards = round_number, shard, shards
        self._most, self._seed = most, seed
        self._batches = 0

    def _work(self) -> bool:
        policy = self.folder.policy() or blank_policy(self._skill.features)
        if policy.version >= self._round or self._batches >= self._most:
            return False
        batch = Batch(policy.version, tuple(asyncio.run(self._play(policy))))
        write_whole(self.folder.played / f"{self.name}-{self._batches:06d}.npz", batch.as_bytes())
        self._batches += 1
        return True

    async def _play(self, policy: Policy) -> list[PlayedEpisode]:
        number = (self._round * self._most + self._batches) * self._shards + self._shard
        rng = np.random.default_rng([self._seed, number])
        length = self._environment.spec.data_length
        indices = [(number * BATCH + offset) % length for offset in range(BATCH)]
        return [await played(self._environment, self._skill, policy, index, rng) for index in indices]

    def restore(self, state: bytes) -> None:
        """Go on after the last batch that was written."""
        self._batches = int(json.loads(state)["batches"])

    def figures(self) -> dict[str, Any]:
        """Return how many episodes were played."""
        return {"episodes": self._batches * BATCH, "batches": self._batches}

    def _state(self) -> bytes:
        return json.dumps({"batches": self._batches}).encode()


class Trial(Role):
    """Plays the last tasks of an environment, the highest index first, with one policy: the newest, or none at all."""

    def __init__(self, place: Place, name: str, episodes: int, *, is_trained: bool, seed: int = 0) -> None:
        super().__init__(name, place)
        self._environment, skill = place.played()
        self._skill = skill
        self._wanted, self._seed = episodes, seed
        blank = blank_policy(skill.features)
        self._policy = (self.folder.policy() or blank) if is_trained else blank
        self._scores: list[float] = []

    def _work(self) -> bool:
        if len(self._scores) >= self._wanted:
            return False
        self._scores.append(asyncio.run(self._one(len(self._scores), self._policy)))
        return True

    async def _one(self, number: int, policy: Policy) -> float:
        index = self._environment.spec.data_length - 1 - number
        rng = np.random.default_rng([self._seed, index])
        episode = await played(self._environment, self._skill, policy, index, rng)
        return await scored(self._environment, index, episode.replies)

    def restore(self, state: bytes) -> None:
        """Go on after the last task."""
        self._scores = list(json.loads(state))

    def figures(self) -> dict[str, Any]:
        """Return the mean score."""
        return {
            "version": self._policy.version,
            "episodes": len(self._scores),
            "mean_reward": sum(self._scores) / max(1, len(self._scores)),
        }

    def _state(self) -> bytes:
        return json.dumps(self._scores).encode()


class Reward(Role):
    """Scores batches of a round: each episode is made again from its replies, and the environment says its worth.

    A batch is written with its scores before it is taken away without them: a stop between the two scores it twice,
    to the same file.
    """

    def __init__(self, place: Place, round_number: int, batches: int) -> None:
        super().__init__(f"reward-{round_number:03d}", place)
        self._environment, _ = place.played()
        self._round, self._wanted = round_number, batches
        self._scored: list[str] = []
        self._sum = 0.0
        self._episodes = 0

    def _work(self) -> bool:
        if len(self._scored) >= self._wanted:
            return False
        done = set(self._scored)
        names = names_in(self.folder.played, self._round)
        for left in done.intersection(names):  # it was stopped between the two
            (self.folder.played / left).unlink(missing_ok=True)
        waiting = [name for name in names if name not in done]
        batch = read_batch(self.folder.played / waiting[0]) if waiting else None
        if batch is None:
            return False
        name = waiting[0]
        scores = asyncio.run(self._scores(batch))
        write_whole(self.folder.scored / name, replace(batch, scores=scores).as_bytes())
        (self.folder.played / name).unlink(missing_ok=True)
        self._scored.append(name)
        self._sum += sum(scores)
        self._episodes += len(scores)
        return True

    async def _scores(self, batch: Batch) -> tuple[float, ...]:
        return tuple([await scored(self._environment, e.index, e.replies) for e in batch.episodes])

    def restore(self, state: bytes) -> None:
        """Go on after the last batch that was scored."""
        told = json.loads(state)
        self._scored, self._sum, self._episodes = told["scored"], told["sum"], told["episodes"]

    def figures(self) -> dict[str, Any]:
        """Return how many episodes were scored, and their mean."""
        mean = self._sum / self._episodes if self._episodes else None
        return {"batches": len(self._scored), "episodes": self._episodes, "mean_reward": mean}

    def _state(self) -> bytes:
        return json.dumps({"scored": self._scored, "sum": self._sum, "episodes": self._episodes}).encode()
