"""Learning from scored episodes: REINFORCE with a mean baseline, clipped steps, and Adam."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headgate.placement.roles.episodes import ScoredEpisode
from headgate.placement.roles.policy import Policy

_CLIP: Final = 0.2
"""How far one update may move the odds of a choice away from those it was made with (Schulman et al., PPO)."""

_DECAY: Final = (0.9, 0.999)
_TINY: Final = 1e-8


@dataclass(slots=True)
class Learner:
    """Weights on their way to the next version, with Adam's moments. Owned by one train role."""

    weights: NDArray[np.float64]
    first: NDArray[np.float64]
    second: NDArray[np.float64]
    steps: int = 0

    @classmethod
    def of(cls, policy: Policy) -> Learner:
        """Return a learner that begins with a policy."""
        return cls(policy.weights.copy(), np.zeros_like(policy.weights), np.zeros_like(policy.weights))

    def step(self, episodes: Sequence[ScoredEpisode], rate: float) -> None:
        """Take one step along the policy gradient of the episodes."""
        slope = self._slope(episodes)
        self.steps += 1
        self.first = _DECAY[0] * self.first + (1 - _DECAY[0]) * slope
        self.second = _DECAY[1] * self.second + (1 - _DECAY[1]) * slope * slope
        mean = self.first / (1 - _DECAY[0] ** self.steps)
        spread = np.sqrt(self.second / (1 - _DECAY[1] ** self.steps))
        self.weights = self.weights + rate * mean / (spread + _TINY)

    def as_bytes(self) -> bytes:
        """Return everything that goes on from here as a file."""
        buffer = io.BytesIO()
        np.savez(buffer, weights=self.weights, first=self.first, second=self.second, steps=self.steps)
        return buffer.getvalue()

    @classmethod
    def of_bytes(cls, data: bytes) -> Learner:
        """Return the learner of a file."""
        with np.load(io.BytesIO(data)) as arrays:
            return cls(arrays["weights"], arrays["first"], arrays["second"], int(arrays["steps"]))

    def _slope(self, episodes: Sequence[ScoredEpisode]) -> NDArray[np.float64]:
        scores = np.array([episode.score for episode in episodes])
        advantages = (scores - scores.mean()) / (scores.std() + 1e-6)
        policy = Policy(self.weights)
        slope, decisions = np.zeros_like(self.weights), 0
        for episode, advantage in zip(episodes, advantages, strict=True):
            for decision, chosen, chance in episode.choices:
                decisions += 1
                now = policy.probabilities(decision)
                ratio = now[chosen] / chance
                if (ratio - 1.0) * np.sign(advantage) <= _CLIP:
                    slope += advantage * ratio * (decision[chosen] - now @ decision)
        return slope / max(1, decisions)
