"""What a model may spend, per sample and per day, and what was spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Spending(NamedTuple):
    """Tokens, requests, and cost: what a request needs, or took.

    Attributes:
        tokens: prompt and completion together.
        requests: attempts that were sent.
        cost_micro: in millionths of the currency in which prices are given.
    """

    tokens: int = 0
    requests: int = 0
    cost_micro: int = 0

    def plus(self, other: Spending) -> Spending:
        """Return the sum."""
        return Spending(self.tokens + other.tokens, self.requests + other.requests, self.cost_micro + other.cost_micro)

    def less(self, other: Spending) -> Spending:
        """Return what is left after `other`, never below 0."""
        return Spending(
            max(0, self.tokens - other.tokens),
            max(0, self.requests - other.requests),
            max(0, self.cost_micro - other.cost_micro),
        )

    def at_least(self, other: Spending) -> Spending:
        """Return the larger of both in each respect."""
        return Spending(
            max(self.tokens, other.tokens),
            max(self.requests, other.requests),
            max(self.cost_micro, other.cost_micro),
        )


NO_SPENDING = Spending()


@dataclass(frozen=True, slots=True)
class ModelBudget:
    """The budgets of one model, as the roster states them; None leaves it to the settings.

    Attributes:
        sample_tokens: prompt and completion tokens over all requests of one sample.
        sample_completion_tokens: completion tokens likewise.
        sample_time_s: seconds that the answered requests of one sample took together.
        daily_tokens: prompt and completion tokens of any 24 h.
        daily_requests: attempts of requests in any 24 h.
        daily_cost: in the currency of the prices, in any 24 h.
        price_in: per million prompt tokens.
        price_out: per million completion tokens.
    """

    sample_tokens: int | None = None
    sample_completion_tokens: int | None = None
    sample_time_s: float | None = None
    daily_tokens: int | None = None
    daily_requests: int | None = None
    daily_cost: float | None = None
    price_in: float = 0.0
    price_out: float = 0.0

    def spending(self, prompt_tokens: int, completion_tokens: int, requests: int = 1) -> Spending:
        """Return what so many tokens amount to: a price per million tokens is millionths per token."""
        cost = round(prompt_tokens * self.price_in + completion_tokens * self.price_out)
        return Spending(prompt_tokens + completion_tokens, requests, cost)
