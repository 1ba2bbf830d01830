"""The accounts of a campaign's models: what was spent before, and models that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headgate.config import Settings
from headgate.core import DAY_S, Model, ModelBudget, Spending
from headgate.run.budgets.account import BudgetStop
from headgate.run.budgets.keeper import Budgets
from headgate.run.budgets.past import PastSpending, beyond
from headgate.simulation import LoopClock, run_virtual
from headgate.storage import Journal, JournalThread

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


def test_after_a_restart_a_model_goes_on_a_day_after_it_spent_and_not_a_day_after_the_restart(tmp_path: Path) -> None:
    async def check(budgets: Budgets, clock: LoopClock, told: list[BudgetStop | None]) -> None:
        budgets.register(LIMITED)
        budgets.remember([PastSpending("a@main", START - 36_000.0, 1_000, 10, 0, 10)])
        journal = JournalThread(Journal(tmp_path, "c"), inline=True)
        await budgets.share(journal)
        (stop,) = told
        assert stop is not None
        assert stop.until == START - 36_000.0 + 60.0 + DAY_S
        await clock.sleep(DAY_S - 36_000.0 + 61.0)
        assert told[-1] is None
        assert budgets.stop_of("a@main") is None
        await budgets.leave()
        journal.close()

    with_budgets(check)


def test_a_model_that_joins_later_knows_what_it_spent_before() -> None:
    async def check(budgets: Budgets, clock: LoopClock, told: list[BudgetStop | None]) -> None:
        budgets.remember([PastSpending("a@main", START - 60.0, 1_000, 10, 0, 10)])
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
        assert await budgets.hold("t-1", budgets.account(LIMITED), Spending(100, 1)) is not None
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
        assert await budgets.hold("t-1", account, Spending(600, 1)) is None
        assert await budgets.hold("t-2", account, Spending(600, 1)) is not None
        budgets.register(Model("a"))
        assert told[-1] is None
        assert account.daily.held == Spending()
        account.daily.validate()

    with_budgets(check)


def test_what_was_spent_without_a_sample_is_known_after_a_restart(tmp_path: Path) -> None:
    async def check(budgets: Budgets, clock: LoopClock, told: list[BudgetStop | None]) -> None:
        budgets.register(LIMITED)
        journal = JournalThread(Journal(tmp_path, "c"), inline=True)
        await budgets.share(journal)
        budgets.settle("a-judgement", budgets.account(LIMITED), Spending(900, 3))
        await budgets.leave()
        journal.close()

        again = Budgets(Settings(), clock=clock, emit=lambda _: None)
        again.register(LIMITED)
        journal = JournalThread(Journal(tmp_path, "c"), inline=True)
        await again.share(journal)
        assert again.account(LIMITED).daily.used(again.now()) == Spending(900, 3)
        assert await again.hold("t-1", again.account(LIMITED), Spending(101, 1)) is not None
        await again.leave()
        journal.close()

    with_budgets(check)


def test_what_two_processes_spend_counts_once_for_each_of_them(tmp_path: Path) -> None:
    async def check(budgets: Budgets, clock: LoopClock, told: list[BudgetStop | None]) -> None:
        other = Budgets(Settings(), clock=clock, emit=lambda _: None)
        journals = [JournalThread(Journal(tmp_path, "c"), inline=True) for _ in range(2)]
        both = list(zip((budgets, other), journals, strict=True))
        for one, journal in both:
            one.register(LIMITED)
            await one.share(journal)
        in_step = [asyncio.create_task(one.keep_in_step()) for one, _ in both]
        for _ in range(4):
            for number, (one, _) in enumerate(both):
                account, needed = one.account(LIMITED), Spending(100, 1)
                assert await one.hold(f"t-{number}", account, needed) is None
                one.settle(f"t-{number}", account, Spending(100, 1))
                one.ended(f"t-{number}")
        await clock.sleep(61.0)
        for one, _ in both:
            account = one.account(LIMITED)
            account.daily.validate()
            assert account.daily.used(one.now()) == Spending(800, 8)
        assert await budgets.hold("t-9", budgets.account(LIMITED), Spending(150, 1)) is None
        stop = await other.hold("t-9", other.account(LIMITED), Spending(60, 1))
        assert stop is not None, "850 of it are spent, and 150 are promised"
        for task in in_step:
            task.cancel()
        await asyncio.wait(in_step)
        for one, journal in both:
            await one.leave()
            one.close()
            journal.close()

    with_budgets(check)


def test_a_model_that_waits_for_what_another_process_may_still_give_back_says_so_and_is_not_told_as_spent() -> None:
    async def main() -> None:
        clock, events = LoopClock(START), list[object]()
        budgets = Budgets(Settings(), clock=clock, emit=events.append)
        budgets.register(LIMITED)
        account = budgets.account(LIMITED)
        budgets.settle("t-1", account, Spending(300, 1))
        account.daily.granted(Spending(0, 0), Spending(700, 0))
        stop = await budgets.hold("t-2", account, Spending(100, 1))
        assert stop is not None
        assert stop.reason.endswith("at the latest, sooner if episodes in progress use less than they hold")
        assert not events
        account.daily.granted(Spending(0, 0), Spending())
        stop = await budgets.hold("t-2", account, Spending(800, 1))
        assert stop is not None
        assert stop.reason.endswith(" UTC")
        budgets.close()

    run_virtual(main())


def test_what_other_machines_spent_is_what_the_store_has_beyond_the_journal() -> None:
    shared = [(START, Spending(700, 7)), (START + 7_200.0, Spending(50, 1))]
    stored = [
        (START + 60.0, Spending(600, 5)),
        (START + 120.0, Spending(400, 4)),
        (START + 7_199.0, Spending(50, 1)),
        (START + 7_260.0, Spending(30, 1)),
    ]
    assert beyond(stored, shared) == [(START + 120.0, Spending(300, 2)), (START + 7_260.0, Spending(30, 1))]


def test_a_budget_that_a_refreshed_roster_brings_is_shared_from_then_on(tmp_path: Path) -> None:
    async def check(budgets: Budgets, clock: LoopClock, told: list[BudgetStop | None]) -> None:
        budgets.register(Model("a"))
        journals = [JournalThread(Journal(tmp_path, "c"), inline=True) for _ in range(2)]
        await budgets.share(journals[0])
        in_step = asyncio.create_task(budgets.keep_in_step())
        await clock.sleep(600.0)
        budgets.register(LIMITED)
        await clock.sleep(1.0)
        budgets.settle("t-1", budgets.account(LIMITED), Spending(400, 1))
        await clock.sleep(31.0)
        other = Budgets(Settings(), clock=clock, emit=lambda _: None)
        other.register(LIMITED)
        await other.share(journals[1])
        assert other.account(LIMITED).daily.used(other.now()) == Spending(400, 1)
        in_step.cancel()
        await asyncio.wait([in_step])
        for one, journal in zip((budgets, other), journals, strict=True):
            await one.leave()
            one.close()
            journal.close()

    with_budgets(check)


def test_what_an_episode_usually_takes_is_held_from_its_start_though_the_grant_is_smaller(tmp_path: Path) -> None:
    async def check(budgets: Budgets, clock: LoopClock, told: list[BudgetStop | None]) -> None:
        budgets.register(LIMITED)
        journal = JournalThread(Journal(tmp_path, "c"), inline=True)
        await budgets.share(journal)
        account = budgets.account(LIMITED)
        account.habits.ended(Spending(100, 10))
        budgets.settle("before", account, Spending(650, 60))
        for number in range(3):
            assert budgets.stop_of("a@main") is None
            budgets.begin(f"t-{number}", "a@main")
        assert budgets.stop_of("a@main") is not None
        for number in range(3):
            for _ in range(10):
                assert await budgets.hold(f"t-{number}", account, Spending(10, 1)) is None
                budgets.settle(f"t-{number}", account, Spending(10, 1))
            budgets.ended(f"t-{number}")
        assert account.daily.used(budgets.now()) == Spending(950, 90)
        await budgets.leave()
        journal.close()

    with_budgets(check)


def test_what_others_spend_of_a_model_that_is_not_here_is_known_when_it_joins(tmp_path: Path) -> None:
    async def check(budgets: Budgets, clock: LoopClock, told: list[BudgetStop | None]) -> None:
        other = Budgets(Settings(), clock=clock, emit=lambda _: None)
        other.register(LIMITED)
        budgets.register(Model("b", budget=ModelBudget(daily_tokens=1_000)))
        journals = [JournalThread(Journal(tmp_path, "c"), inline=True) for _ in range(2)]
        both = list(zip((budgets, other), journals, strict=True))
        for one, journal in both:
            await one.share(journal)
        in_step = [asyncio.create_task(one.keep_in_step()) for one, _ in both]
        for number in range(3):
            other.settle(f"t-{number}", other.account(LIMITED), Spending(100, 1))
            await clock.sleep(40.0)
        budgets.register(LIMITED)
        assert budgets.account(LIMITED).daily.used(budgets.now()) == Spending(300, 3)
        budgets.account(LIMITED).daily.validate()
        for task in in_step:
            task.cancel()
        await asyncio.wait(in_step)
        for one, journal in both:
            await one.leave()
            one.close()
            journal.close()

    with_budgets(check)


def test_a_request_that_is_given_up_while_it_waits_for_a_grant_holds_nothing(tmp_path: Path) -> None:
    async def check(budgets: Budgets, clock: LoopClock, told: list[BudgetStop | None]) -> None:
        budgets.register(LIMITED)
        journal = JournalThread(Journal(tmp_path, "c"), inline=True)
        await budgets.share(journal)
        in_step = asyncio.create_task(budgets.keep_in_step())
        account = budgets.account(LIMITED)
        asking = asyncio.create_task(budgets.hold("a-judgement", account, Spending(900, 1)))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        await clock.sleep(1.0)
        account.daily.validate()
        assert account.daily.held == Spending()
        assert await budgets.hold("t-1", account, Spending(1_000, 1)) is None
        in_step.cancel()
        await asyncio.wait([in_step])
        await budgets.leave()
        journal.close()

    with_budgets(check)
