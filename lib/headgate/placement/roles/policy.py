"""The policy being trained, the episodes that it plays, and the folder through which roles exchange both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from headgate.core import Message, seed_of
from headgate.durable.files import write_whole
from headgate.environments import Continue, Environment, Score
from headgate.placement.roles.skill import Features, Skill


def as_json(value: object) -> bytes:
    """Return a value encoded as in the files that roles leave for each other and for their next start."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


@dataclass(frozen=True, slots=True)
class Policy:
    """Weights of one version; version 0 has zero weights and chooses at random."""

    weights: NDArray[np.float64]
    version: int = 0

    def probabilities(self, decision: Features) -> NDArray[np.float64]:
        """Return the probability of each alternative."""
        logits = decision @ self.weights
        odds = np.exp(logits - logits.max())
        chances: NDArray[np.float64] = odds / odds.sum()
        return chances

    def choose(self, decision: Features, rng: np.random.Generator) -> tuple[int, float]:
        """Return a randomly drawn alternative with its probability."""
        chances = self.probabilities(decision)
        chosen = int(rng.choice(len(chances), p=chances))
        return chosen, float(chances[chosen])

    @classmethod
    def of_json(cls, data: bytes) -> Policy:
        """Return the policy that `as_json` wrote."""
        told = orjson.loads(data)
        return cls(np.array(told["weights"]), told["version"])


def blank_policy(features: int) -> Policy:
    """Return version 0."""
    return Policy(np.zeros(features))


Choice = tuple[Features, int, float]
"""A decision, the alternative chosen, and its probability at that time."""


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """One episode as it was played, without a score.

    Attributes:
        index: task index.
        replies: the policy's replies, in order; with the index they reproduce the episode.
        choices: the choices behind the replies.
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
            choices += [(decision, *choice) for decision, choice in zip(decisions, drawn, strict=True)]
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


@dataclass(frozen=True, slots=True)
class Batch:
    """Some episodes of one policy version; `scores` is empty until they are scored."""

    version: int
    episodes: tuple[PlayedEpisode, ...]
    scores: tuple[float, ...] = ()

    def scored(self) -> tuple[ScoredEpisode, ...]:
        """Return its episodes with their scores."""
        pairs = zip(self.episodes, self.scores, strict=True)
        return tuple(ScoredEpisode(episode.choices, score) for episode, score in pairs)

    @classmethod
    def of_json(cls, data: bytes) -> Batch:
        """Return the batch that `as_json` wrote."""
        told = orjson.loads(data)
        episodes = tuple(
            PlayedEpisode(
                each["index"],
                tuple(each["replies"]),
                tuple((np.array(decision), chosen, chance) for decision, chosen, chance in each["choices"]),
            )
            for each in told["episodes"]
        )
        return cls(told["version"], episodes, tuple(told["scores"]))


@dataclass(frozen=True, slots=True)
class RoleFolder:
    """The shared folder of one training. Every process opens its own; the files survive a kill at any moment."""

    path: Path

    @property
    def played(self) -> Path:
        """Batches without scores, written by rollouts, removed by reward."""
        return self.path / "played"

    @property
    def scored(self) -> Path:
        """Batches with scores, written by reward, removed by train."""
        return self.path / "scored"

    def policy(self) -> Policy | None:
        """Return the newest policy, None before the first."""
        data = _read(self.path / "policy.json")
        return None if data is None else Policy.of_json(data)

    def publish(self, policy: Policy) -> None:
        """Make a policy the newest."""
        write_whole({self.path / "policy.json": as_json(policy)})

    def state(self, role: str) -> bytes | None:
        """Return the last checkpoint of a role."""
        return _read(self.path / "states" / role)


def prefix_of(round_number: int) -> str:
    """Return the prefix of the names of a round's batches."""
    return f"rollout-{round_number:03d}-"


def names_in(folder: Path, round_number: int | None = None) -> list[str]:
    """Return the batches of a folder, of one round or of all."""
    prefix = "" if round_number is None else prefix_of(round_number)
    return sorted(path.name for path in folder.glob(f"{prefix}*.json"))


def read_batch(path: Path) -> Batch | None:
    """Return a batch; None if it was removed meanwhile."""
    data = _read(path)
    return None if data is None else Batch.of_json(data)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
