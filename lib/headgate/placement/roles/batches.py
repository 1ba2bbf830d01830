"""The folder through which the roles work together: files that are there whole or not at all."""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headgate.placement.roles.policy import Choice, PlayedEpisode, Policy, ScoredEpisode


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

    def as_bytes(self) -> bytes:
        """Return the batch as a file."""
        choices = [choice for episode in self.episodes for choice in episode.choices]
        told = {"indices": [e.index for e in self.episodes], "replies": [e.replies for e in self.episodes]}
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            version=self.version,
            told=json.dumps(told),
            per_episode=[len(e.choices) for e in self.episodes],
            alternatives=[len(decision) for decision, _, _ in choices],
            features=np.concatenate([decision for decision, _, _ in choices]),
            chosen=[chosen for _, chosen, _ in choices],
            chances=[chance for _, _, chance in choices],
            scores=np.array(self.scores, dtype=np.float64),
        )
        return buffer.getvalue()

    @classmethod
    def of_bytes(cls, data: bytes) -> Batch:
        """Return the batch of a file."""
        with np.load(io.BytesIO(data)) as arrays:
            told = json.loads(str(arrays["told"]))
            decisions = np.split(arrays["features"], np.cumsum(arrays["alternatives"])[:-1])
            chosen, chances = arrays["chosen"].tolist(), arrays["chances"].tolist()
            choices: list[Choice] = list(zip(decisions, chosen, chances, strict=True))
            ends = np.cumsum(arrays["per_episode"]).tolist()
            starts = [0, *ends[:-1]]
            episodes = tuple(
                PlayedEpisode(index, tuple(replies), tuple(choices[start:end]))
                for index, replies, start, end in zip(told["indices"], told["replies"], starts, ends, strict=True)
            )
            return cls(int(arrays["version"]), episodes, tuple(arrays["scores"].tolist()))


@dataclass(frozen=True, slots=True)
class RoleFolder:
    """Where the roles of one training meet. Every process opens its own; all of it survives a kill at any moment."""

    path: Path

    @property
    def played(self) -> Path:
        """Batches without scores, written by rollouts, taken away by reward."""
        return self.path / "played"

    @property
    def scored(self) -> Path:
        """Batches with scores, written by reward, taken away by train."""
        return self.path / "scored"

    def policy(self) -> Policy | None:
        """Return the newest policy, None before the first."""
        try:
            return Policy.of_bytes((self.path / "policy.npz").read_bytes())
        except FileNotFoundError:
            return None

    def publish(self, policy: Policy) -> None:
        """Make a policy the newest."""
        write_whole(self.path / "policy.npz", policy.as_bytes())

    def state(self, role: str) -> bytes | None:
        """Return the last checkpoint of a role."""
        try:
            return (self.path / "states" / role).read_bytes()
        except FileNotFoundError:
            return None

    def keep_state(self, role: str, state: bytes) -> None:
        """Replace a role's checkpoint."""
        write_whole(self.path / "states" / role, state)


def prefix_of(round_number: int) -> str:
    """Return how the names of a round's batches begin."""
    return f"rollout-{round_number:03d}-"


def names_in(folder: Path, round_number: int | None = None) -> list[str]:
    """Return the batches of a folder, of one round or of all."""
    prefix = "" if round_number is None else prefix_of(round_number)
    return sorted(path.name for path in folder.glob(f"{prefix}*.npz"))


def read_batch(path: Path) -> Batch | None:
    """Return a batch, None when somebody has taken it away meanwhile."""
    try:
        return Batch.of_bytes(path.read_bytes())
    except FileNotFoundError:
        return None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that nobody ever sees half of."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(data)
    beside.replace(path)
