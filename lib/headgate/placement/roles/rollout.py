"""The rollout role: plays episodes with the newest policy."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import numpy as np

from headgate.placement.roles.batches import Batch, prefix_of, write_whole
from headgate.placement.roles.episodes import PlayedEpisode, played
from headgate.placement.roles.policy import Policy, blank_policy
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
