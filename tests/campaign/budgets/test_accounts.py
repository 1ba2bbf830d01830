"""The accounts of a campaign's models: what was spent before, and models that leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headgate.campaign.budgets import Budgets, BudgetStop, PastSpending
from headgate.config import Settings
from headgate.core import DAY_S, Model, ModelBudget, Spending
from headgate.simulation import LoopClock, run_virtual

START = 1_767_225_600.0
LIMITED = Model("a", budget=ModelBudget(daily_tokens=1_000))


def with_budgets(check: Callable[[Budgets, LoopClock, list[BudgetStop | None]], Any]) -> None:
    """Run a check with budgets, and what they told of the model."""

    async def main() -> None:
        clock = LoopClock(START)
        budgets = Budgets(Settings(), clock=clock, emit=lambda _: None)
        told: list[BudgetStop | None] = []
        budgets.changed = lambda _alias, stop: told.append(stop)
        await check(budgets, clock, told)
        budgets.close()

    run_virtual(main())


def test_after_a_restart_a_model_goes_on_a_day_after_it_spent_and_not_a_day_after_the_restart() -> None:
    async def check(budgets: Budgets, clock: LoopClock, told: list[BudgetStop | None]) -> None:
        budgets.register(LIMITED)
        budgets.restore([PastSpending("a@main", START - 36_000.0, 700, 300, 10, 10)])
        (stop,) = told
        assert stop is not None
        assert stop.until == START - 36_000.0 + 60.0 + DAY_S
        await clock.sleep(DAY_S - 36_000.0 + 61.0)
        assert told[-1] is None
        assert budgets.stop_of("a@main") is None

    with_budgets(check)


def test_a_model_that_joins_later_knows_what_it_spent_before() -> None:
    async def check(budgets: Budgets, clock: LoopClock, told: list[BudgetStop | None]) -> None:
        budgets.restore([PastSpending("a@main", START - 60.0, 700, 300, 10, 10)])
        budgets.register(LIMITED)
        assert budgets.stop_of("a@main") is not None

    with_budgets(check)


def test_nothing_is_told_of_a_model_that_has_left_and_what_it_spent_is_remembered() -> None:
    async def check(budgets: Budgets, clock: LoopClock, told: list[BudgetStop | None]) -> None:
        budgets.register(LIMITED)
        budgets.begin("t-1", "a@main")
        budgets.settle("t-1", budgets.account(LIMITED), Spending(1_000, 1))
        budgets.begin("t-2", "a@main")
        assert len(told) == 1
        budgets.dismiss("a@main")
        assert budgets.hold("t-1", budgets.account(LIMITED), Spending(100, 1)) is not None
        budgets.ended("t-1")
        budgets.ended("t-2")
        await clock.sleep(3_600.0)
        assert len(told) == 1
        budgets.register(LIMITED)
        assert len(told) == 2
        assert budgets.account(LIMITED).daily.held == Spending()

    with_budgets(check)


def test_a_budget_that_is_taken_away_leaves_nothing_held_and_nothing_stopped() -> None:
    async def check(budgets: Budgets, clock: LoopClock, told: list[BudgetStop | None]) -> None:
        budgets.register(LIMITED)
        account = budgets.account(LIMITED)
        assert budgets.hold("t-1", account, Spending(600, 1)) is None
        assert budgets.hold("t-2", account, Spending(600, 1)) is not None
        budgets.register(Model("a"))
        assert told[-1] is None
        assert account.daily.held == Spending()
        account.daily.validate()

    with_budgets(check)
