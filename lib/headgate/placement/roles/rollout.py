"""The roles that make batches: rollouts play them, rewards score them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any, Final

import numpy as np

from headgate.placement.roles.batches import Batch, names_in, prefix_of, read_batch, write_whole
from headgate.placement.roles.policy import PlayedEpisode, Policy, blank_policy, played, scored
from headgate.placement.roles.role import Place, Role

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
