"""Limits per minute on requests and tokens, as providers state them, and their state in an answer's headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

RATE_UNITS: Final = ("requests", "input_tokens", "output_tokens", "tokens")
"""What a provider counts per minute; `tokens` are input and output together. Vectors of rates are in this order."""


class RateLimits(NamedTuple):
    """Limits per minute; None is no limit. In the order of `RATE_UNITS`."""

    requests_per_minute: int | None = None
    input_tokens_per_minute: int | None = None
    output_tokens_per_minute: int | None = None
    tokens_per_minute: int | None = None


NO_RATES: Final = RateLimits()


@dataclass(frozen=True, slots=True)
class ModelRates:
    """The limits per minute that apply to a model, as the roster states them.

    Attributes:
        own: limits of the model at its provider.
        key: limits shared by all models at the same address with the same API key.
        organisation: the organisation whose quota it shares with models at other addresses and keys; empty for none.
        shared: limits of the organisation.
    """

    own: RateLimits = NO_RATES
    key: RateLimits = NO_RATES
    organisation: str = ""
    shared: RateLimits = NO_RATES

    @property
    def is_any(self) -> bool:
        """Whether anything is limited."""
        return any(limit is not None for limits in (self.own, self.key, self.shared) for limit in limits)


UNLIMITED: Final = ModelRates()


class RateNote(NamedTuple):
    """What an answer states about one limit; None where it states nothing.

    Attributes:
        unit: index in `RATE_UNITS`.
        limit: per minute.
        reset_s: seconds until the limit has capacity again.
    """

    unit: int
    limit: float | None = None
    remaining: float | None = None
    reset_s: float | None = None
