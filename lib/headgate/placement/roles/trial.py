"""The trial: how good a policy is on tasks that nobody trained on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np

from headgate.placement.roles.episodes import played, scored
from headgate.placement.roles.policy import Policy, blank_policy
from headgate.placement.roles.role import Place, Role


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
