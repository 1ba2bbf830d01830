"""The account of one model: its budget, its spending, and why it has to wait."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from headgate.core import NO_SPENDING, ModelBudget, Spending
from headgate.sampling.budgets import DailyBudget, DailyLimits, Habits, SampleLimits

_SINKING: Final = 16
"""What a request is expected to need falls by one part in this many with each request that needs less."""


@dataclass(frozen=True, slots=True)
class BudgetStop:
    """Why no task of a model is started.

    Attributes:
        limit: the setting that is used up.
        until: when it resumes, in seconds since the epoch; None if it waits only for episodes in progress.
    """

    limit: str
    reason: str
    until: float | None
    since: float


class Account:
    """The account of one model. Owned by `Budgets`.

    Attributes:
        budget: what it may spend, and its prices.
        daily: its budget of 24 h; possibly without limits.
        habits: what its requests and samples usually take.
        sample_limits: what one sample may take, by environment; a cache.
        request: what its larger requests need: an episode that starts with less room would only be put off.
        stop: why no task of it is started; None while tasks may start.
        is_counted: whether its spending is counted at all.
        is_asked: whether it is in the roster; an episode may outlast its model's entry.
        is_told: whether the stop was reported by an event.
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
        """Apply another budget. If it has no limits, drop everything held: it would never be given back."""
        self.budget = budget
        self.sample_limits: dict[str, SampleLimits] = {}
        self.daily.limits = DailyLimits.of(budget)
        self.is_counted = budget.is_counted
        if not self.is_counted:
            self.daily.release_all()

    def silence(self) -> None:
        """Cancel the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    @property
    def expected(self) -> Spending:
        """What its next sample probably takes, capped to a whole day's limit; at least one of its larger requests."""
        return self.daily.limits.capped((self.habits.sample or NO_SPENDING).at_least(self.request))

    def granted(self, needed: Spending) -> None:
        """Record a request that fits: after a large one, smaller ones lower the expectation slowly."""
        tokens, requests, cost = self.request
        sunk = Spending(
            tokens - (tokens - needed.tokens) // _SINKING,
            requests - (requests - needed.requests) // _SINKING,
            cost - (cost - needed.cost_micro) // _SINKING,
        )
        self.request = sunk.at_least(needed)
