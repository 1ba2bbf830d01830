"""The policy that is learned, and the episodes that it plays."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.core import Message, seed_of
from headgate.environments import Continue, Environment, Score
from headgate.placement.roles.skill import Features, Skill


@dataclass(frozen=True, slots=True)
class Policy:
    """Weights of one version; version 0 has none and chooses by chance."""

    weights: NDArray[np.float64]
    version: int = 0

    def probabilities(self, decision: Features) -> NDArray[np.float64]:
        """Return how likely each alternative is chosen."""
        logits = decision @ self.weights
        odds = np.exp(logits - logits.max())
        chances: NDArray[np.float64] = odds / odds.sum()
        return chances

    def choose(self, decision: Features, rng: np.random.Generator) -> tuple[int, float]:
        """Return a drawn alternative with its probability."""
        chances = self.probabilities(decision)
        chosen = int(rng.choice(len(chances), p=chances))
        return chosen, float(chances[chosen])

    def as_bytes(self) -> bytes:
        """Return the policy as a file."""
        buffer = io.BytesIO()
        np.savez(buffer, weights=self.weights, version=self.version)
        return buffer.getvalue()

    @classmethod
    def of_bytes(cls, data: bytes) -> Policy:
        """Return the policy of a file."""
        with np.load(io.BytesIO(data)) as arrays:
            return cls(arrays["weights"], int(arrays["version"]))


def blank_policy(features: int) -> Policy:
    """Return version 0."""
    return Policy(np.zeros(features))


Choice = tuple[Features, int, float]
"""A decision, the alternative that was taken, and its probability then."""


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """One episode as it was played, without a score.

    Attributes:
        index: the task.
        replies: what was said, in order; with the index they make the episode again.
        choices: what was decided for them.
    """

    index: int
    replies: tuple[str, ...]
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class ScoredEpisode:
    """The choices of an episode and its score in [0, 1]."""

    choices: tuple[Choice, ...]
    score: float


async def played(
    environment: Environment, skill: Skill, policy: Policy, index: int, rng: np.random.Generator
) -> PlayedEpisode:
    """Return task `index` as the policy plays it."""
    episode = await environment.open(index, seed_of(environment.spec.name, index))
    try:
        conversation: list[Message] = list(episode.opening)
        replies: list[str] = []
        choices: list[Choice] = []
        for _ in range(environment.spec.max_rounds):
            decisions = skill.decisions(conversation)
            drawn = [policy.choose(decision, rng) for decision in decisions]
            choices += [(d, chosen, chance) for d, (chosen, chance) in zip(decisions, drawn, strict=True)]
            replies.append(skill.reply(conversation, [chosen for chosen, _ in drawn]))
            answer = await episode.answer(replies[-1])
            if not isinstance(answer, Continue):
                break
            conversation += [Message("assistant", replies[-1]), *answer.messages]
        return PlayedEpisode(index, tuple(replies), tuple(choices))
    finally:
        await episode.close()


async def scored(environment: Environment, index: int, replies: tuple[str, ...]) -> float:
    """Return the environment's score of an episode with these replies; 0 when they do not end it."""
    episode = await environment.open(index, seed_of(environment.spec.name, index))
    try:
        for reply in replies:
            answer = await episode.answer(reply)
            if isinstance(answer, Score):
                return float(answer.value)
        return 0.0
    finally:
        await episode.close()
