"""What is kept of one model: its budget, what it spent, and why it has to wait."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from headgate.core import NO_SPENDING, ModelBudget, Spending
from headgate.sampling.budgets import DailyBudget, DailyLimits, Habits, SampleLimits

_SINKING: Final = 16
"""What is expected of a request sinks by one part in so many with each request that needs less."""


@dataclass(frozen=True, slots=True)
class BudgetStop:
    """Why nothing of a model is started.

    Attributes:
        limit: the setting that is used up.
        until: when it goes on, in seconds since the epoch; None while only episodes in progress keep it from that.
    """

    limit: str
    reason: str
    until: float | None
    since: float


class Account:
    """What is kept of one model. Owned by `Budgets`.

    Attributes:
        budget: what it may spend, and its prices.
        daily: its budget of 24 h; it may be without limits.
        habits: what its requests and samples usually take.
        sample_limits: what one sample may take, by environment, where that was asked before.
        request: what its larger requests need: an episode that began with less room would only be put off.
        stop: why nothing of it is started; None while it may go on.
        is_counted: whether what it spends is counted at all.
        is_asked: whether it is in the roster; an episode may outlast that.
        is_told: whether an event told of the stop.
    """

    def __init__(self, alias: str, budget: ModelBudget) -> None:
        self.alias = alias
        self.daily = DailyBudget(DailyLimits())
        self.take(budget)
        self.habits = Habits()
        self.request = Spending(1, 1, 0)
        self.is_asked = True
        self.is_told = False
        self.stop: BudgetStop | None = None
        self.timer: asyncio.TimerHandle | None = None

    def take(self, budget: ModelBudget) -> None:
        """Have another budget from now on. Without one, nothing stays held: nobody would give it back."""
        self.budget = budget
        self.sample_limits: dict[str, SampleLimits] = {}
        self.daily.limits = DailyLimits.of(budget)
        self.is_counted = budget.is_counted
        if not self.is_counted:
            self.daily.release_all()

    def silence(self) -> None:
        """Stop the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    @property
    def expected(self) -> Spending:
        """What its next sample probably takes, as far as a whole day allows it; at least one of its larger requests."""
        return self.daily.limits.capped((self.habits.sample or NO_SPENDING).at_least(self.request))

    def granted(self, needed: Spending) -> None:
        """Note a request that fits: after a large one, smaller ones let what is expected sink slowly."""
        tokens, requests, cost = self.request
        sunk = Spending(
            tokens - (tokens - needed.tokens) // _SINKING,
            requests - (requests - needed.requests) // _SINKING,
            cost - (cost - needed.cost_micro) // _SINKING,
        )
        self.request = sunk.at_least(needed)
