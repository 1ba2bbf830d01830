"""Decides whether and when a failed request is retried. Pure: random numbers come in, a decision goes out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from headgate.core import ErrorKind

_WORTH_ANOTHER: Final = frozenset(
    {ErrorKind.RATE_LIMITED, ErrorKind.PROVIDER_FAILURE, ErrorKind.PROVIDER_TIMEOUT, ErrorKind.CONNECTION}
)


@dataclass(frozen=True, slots=True)
class Retry:
    """Send the request again after `after_s` seconds."""

    after_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not retry; `reason` is one line."""

    reason: str


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounded attempts with jittered exponential back-off, never shorter than the provider asks for.

    Failed and rate-limited requests are counted separately: a 429 costs the provider next to nothing, admission paces
    the requests that follow, and giving up early would lose a sample to a passing storm of 429s.

    Attributes:
        max_attempts: failed requests per reply after which the request is given up.
        max_refusals: rate-limited requests per reply after which it is given up; its deadline bounds them as well.
        base_s: ceiling of the first back-off.
        factor: ratio of each further ceiling to the one before.
        max_retry_after_s: a longer Retry-After is not waited for, and asking earlier would only add load: the request
            ends as rate limited, and admission cools the endpoint down.
    """

    max_attempts: int = 4
    max_refusals: int = 64
    base_s: float = 1.0
    factor: float = 2.0
    max_s: float = 30.0
    max_retry_after_s: float = 120.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.max_refusals < 1:
            raise ValueError(
                f"max_attempts and max_refusals must be >= 1 (got {self.max_attempts}, {self.max_refusals})"
            )
        if not 0 <= self.base_s <= self.max_s or self.factor < 1:
            raise ValueError(
                f"0 <= base_s <= max_s and factor >= 1 must hold "
                f"(got base_s {self.base_s:g}, max_s {self.max_s:g}, factor {self.factor:g})"
            )

    def ceiling_s(self, attempt: int) -> float:
        """Return the longest back-off after attempt number `attempt` (from 1)."""
        ceiling = self.base_s
        for _ in range(attempt - 1):
            ceiling *= self.factor
            if ceiling >= self.max_s:
                return self.max_s
        return ceiling

    def decide(self, attempt: int, kind: ErrorKind, retry_after_s: float | None, rng: random.Random) -> Retry | GiveUp:
        """Return what to do after a request failed with `kind` for the `attempt`-th time (from 1; 429s count apart).

        A back-off lies in the upper half of its ceiling, so that clients that failed together retry at different times
        and none retries at once. A Retry-After is honoured with up to a tenth added, for the same reason.
        """
        if kind not in _WORTH_ANOTHER:
            return GiveUp(f"retrying does not help against {kind}")
        allowed = self.max_refusals if kind is ErrorKind.RATE_LIMITED else self.max_attempts
        if attempt >= allowed:
            return GiveUp(f"{allowed} attempts were made")
        if not retry_after_s:
            return Retry(self.ceiling_s(attempt) * rng.uniform(0.5, 1.0))
        if retry_after_s > self.max_retry_after_s:
            return GiveUp(f"the provider asks to wait {retry_after_s:g} s, more than {self.max_retry_after_s:g} s")
        return Retry(retry_after_s * rng.uniform(1.0, 1.1))
