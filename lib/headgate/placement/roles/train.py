"""The train role: makes the next version of the policy from scored batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headgate.placement.roles.policy import Policy, ScoredEpisode, blank_policy, names_in, read_batch
from headgate.placement.roles.role import Place, Role

_CLIP: Final = 0.2
"""How far one update may move the probability of a choice from the one it was made with (Schulman et al., PPO)."""

_DECAY: Final = (0.9, 0.999)
_TINY: Final = 1e-8

EPOCHS: Final = 8
RATE: Final = 0.15


@dataclass(slots=True)
class Learner:
    """Weights being trained into the next version, with Adam's moments. Owned by one train role."""

    weights: NDArray[np.float64]
    first: NDArray[np.float64]
    second: NDArray[np.float64]
    steps: int = 0

    @classmethod
    def of(cls, policy: Policy) -> Learner:
        """Return a learner that starts from a policy."""
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


@dataclass(slots=True)
class _Progress:
    """Progress of an update; part of its checkpoint."""

    version: int = 0
    epoch: int = 0
    names: list[str] = field(default_factory=list)
    mean: float = 0.0
    is_published: bool = False


class Train(Role):
    """The update of a round: version `round_number` of the policy, from the round's scored batches, in `epochs` steps.

    The new policy is published before its batches are removed; after a stop between the two, the next start removes
    them, and no batch is learned from twice.
    """

    def __init__(self, place: Place, round_number: int, epochs: int = EPOCHS, rate: float = RATE) -> None:
        super().__init__(f"train-{round_number:03d}", place)
        self._epochs, self._rate = epochs, rate
        self._progress = _Progress(version=round_number)
        self._learner: Learner | None = None
        self._episodes: list[ScoredEpisode] = []

    def _work(self) -> bool:
        if self._progress.is_published:
            self._take_away()
            return False
        learner = self._prepared()
        if not self._episodes:
            return False
        learner.step(self._episodes, self._rate)
        self._progress.epoch += 1
        if self._progress.epoch >= self._epochs:
            self.folder.publish(Policy(learner.weights, self._progress.version))
            self._progress.is_published = True
        return True

    def _prepared(self) -> Learner:
        if self._learner is None:
            before = self.folder.policy() or blank_policy(self._skill.features)
            self._learner = Learner.of(before)
            self._progress.names = names_in(self.folder.scored, self._progress.version)
        if not self._episodes:
            batches = [read_batch(self.folder.scored / name) for name in self._progress.names]
            self._episodes = [episode for batch in batches if batch is not None for episode in batch.scored()]
            scores = [episode.score for episode in self._episodes]
            self._progress.mean = sum(scores) / max(1, len(scores))
        return self._learner

    def _take_away(self) -> None:
        """Remove all batches of the round, scored or not: the next round plays with another policy."""
        for folder in (self.folder.played, self.folder.scored):
            for name in names_in(folder, self._progress.version):
                (folder / name).unlink(missing_ok=True)

    def figures(self) -> dict[str, Any]:
        """Return the version, how many batches it was trained on, and their mean reward."""
        progress = self._progress
        return {
            "version": progress.version,
            "batches": len(progress.names),
            "steps": progress.epoch,
            "mean_reward": progress.mean,
            "is_published": progress.is_published,
        }

    def _state(self) -> dict[str, Any]:
        return {"progress": self._progress, "learner": self._learner}

    def _restore(self, state: dict[str, Any]) -> None:
        self._progress = _Progress(**state["progress"])
        if (kept := state["learner"]) is not None:
            weights, first, second = (np.array(kept[name]) for name in ("weights", "first", "second"))
            self._learner = Learner(weights, first, second, kept["steps"])
