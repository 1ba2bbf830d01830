"""The rollout role: plays episodes with the newest policy."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import numpy as np

from headgate.placement.roles.batches import Batch, names_in, write_whole
from headgate.placement.roles.episodes import PlayedEpisode, played
from headgate.placement.roles.policy import Policy, blank_policy
from headgate.placement.roles.role import Place, Role

BATCH: Final = 8
"""Episodes of a batch: what a stop costs at most, about a tenth of a second of work."""

_LOOK_AGAIN_S: Final = 0.05


class Rollout(Role):
    """One shard of the rollouts: plays every `shards`-th task until the policy has reached a version.

    It plays no more than `ahead` batches that nobody has scored yet: a policy learns little from old episodes.
    """

    def __init__(
        self, place: Place, shard: int, shards: int, until_version: int, seed: int = 0, ahead: int = 16
    ) -> None:
        super().__init__(f"rollout-{shard:02d}", place)
        self._environment, self._skill = place.played()
        self._shard, self._shards = shard, shards
        self._until, self._seed, self._ahead = until_version, seed, ahead
        self._batches = 0

    def _work(self) -> bool:
        policy = self.folder.policy() or blank_policy(self._skill.features)
        if policy.version >= self._until:
            return False
        waiting = sum(name.startswith(self.name) for name in names_in(self.folder.played))
        if waiting >= self._ahead:
            self._pause(_LOOK_AGAIN_S)
            return True
        episodes = asyncio.run(self._play(policy))
        batch = Batch(policy.version, tuple(episodes))
        write_whole(self.folder.played / f"{self.name}-{self._batches:06d}.npz", batch.as_bytes())
        self._batches += 1
        return True

    async def _play(self, policy: Policy) -> list[PlayedEpisode]:
        first = self._batches * BATCH
        rng = np.random.default_rng([self._seed, self._shard, self._batches])
        length = self._environment.spec.data_length
        indices = [((first + number) * self._shards + self._shard) % length for number in range(BATCH)]
        return [await played(self._environment, self._skill, policy, index, rng) for index in indices]

    def restore(self, state: bytes) -> None:
        """Go on after the last batch that was written."""
        self._batches = int(json.loads(state)["batches"])

    def figures(self) -> dict[str, Any]:
        """Return how many episodes were played."""
        return {"episodes": self._batches * BATCH, "batches": self._batches}

    def _state(self) -> bytes:
        return json.dumps({"batches": self._batches}).encode()
