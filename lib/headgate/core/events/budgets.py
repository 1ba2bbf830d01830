"""What happens to budgets of tokens, requests and cost."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.events.event import Event


@dataclass(frozen=True, slots=True)
class DailyBudgetSpent(Event):
    """A model has used up a budget of 24 h; nothing of it is started until there is room again.

    `limit` names the setting; `used` counts what episodes in progress may still take; `until` is in seconds since the
    epoch, and None while only episodes in progress keep it from going on.
    """

    model: str
    limit: str
    used: float
    allowed: float
    until: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class DailyBudgetFreed(Event):
    """There is room again in the budgets of a model, and it goes on."""

    model: str
    limit: str
    held_for_s: float


@dataclass(frozen=True, slots=True)
class UsageMissing(Event):
    """An endpoint does not say how many tokens a model's answers took; budgets count an estimate. Told once."""

    model: str
    estimated_tokens: int
