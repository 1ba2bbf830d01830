"""The policy: a softmax over the alternatives of a decision, linear in their features."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headgate.placement.roles.skill import Features


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
