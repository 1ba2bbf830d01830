"""Budgets in money: the same one for requests that are asked at once and for those in batches."""

from __future__ import annotations

import pytest

from headgate.config import Settings
from headgate.core import ChatReply, Message, Model, ModelBudget, Price, Prices, Sample, errors
from headgate.core.events import Event, PriceMissing, UsageMissing
from headgate.run.budgets.account import Account
from headgate.run.budgets.conversation import conversation_budget
from headgate.run.budgets.keeper import Budgets
from headgate.run.request_side import in_batch
from headgate.simulation import LoopClock, run_virtual

PRICE = Price.of(1.0, 4.0, cached=0.25, batch_discount=0.5)
PRICED = Model(
    "a",
    base_url="http://127.0.0.1:1/v1",
    options=(("max_tokens", 1_000),),
    budget=ModelBudget(daily_cost=0.005, price=PRICE),
)
ASKED = [Message("user", "x" * 400)]
ROW = {"prompt_tokens": 1_000, "completion_tokens": 100, "lane": "now", "cached_tokens": 400, "reasoning_tokens": 0}


def budgets_of(prices: Prices | None = None, **settings: object) -> tuple[Budgets, list[Event]]:
    told: list[Event] = []
    return Budgets(Settings(**settings), clock=LoopClock(), emit=told.append, prices=prices), told


async def waiting_in_a_batch(budgets: Budgets) -> tuple[Account, str]:
    """Have the request of a task wait in a batch; return its model's account, and what its prices are held for."""
    account = budgets.account(PRICED)
    budgets.begin("t-1", PRICED.key)
    conversation = conversation_budget(budgets, PRICED, "t-1", "affine:sat")
    assert conversation is not None
    await conversation.before(ASKED, "batch")
    conversation.waits(name := in_batch("t-1"))
    return account, name


def test_a_batch_holds_its_own_prices_and_is_settled_once_when_it_comes_back() -> None:
    async def main() -> None:
        budgets, _ = budgets_of()
        account, name = await waiting_in_a_batch(budgets)
        held = account.daily.held
        assert 2_000 <= held.cost_micro <= 2_200, "1 000 tokens of reply and a short prompt at half the price"
        reply = ChatReply("right", 200, 100, lane="batch", cached_tokens=100)
        budgets.paid(name, PRICED.key, reply)
        assert (account.daily.used(budgets.now()).cost_micro, account.daily.held.cost_micro) == (50 + 13 + 200, 0)

        again = conversation_budget(budgets, PRICED, "t-1", "affine:sat")
        assert again is not None
        await again.before(ASKED, "done")
        again.after(ASKED, reply, is_counted=True)
        assert account.daily.used(budgets.now()).cost_micro == 263
        assert account.daily.held.cost_micro == 0

    run_virtual(main())


@pytest.mark.parametrize(("prompt", "completion"), [(0, 100), (100, 0)])
def test_a_count_that_cannot_be_read_is_estimated_and_no_cost_is_told_of_half_a_usage(
    prompt: int, completion: int
) -> None:
    async def main() -> None:
        budgets, told = budgets_of()
        account = budgets.account(PRICED)
        conversation = conversation_budget(budgets, PRICED, "t-1", "affine:sat")
        assert conversation is not None
        await conversation.before(ASKED)
        reply = ChatReply("z" * 400, prompt, completion)
        cost = account.budget.cost_of(reply, None)
        assert cost is None
        conversation.after(ASKED, reply.booked(0.0, 1, cost))
        used = account.daily.used(budgets.now())
        assert 170 <= used.tokens <= 250
        assert used.cost_micro >= 90 + 4 * 90
        assert [type(event) for event in told] == [UsageMissing]

    run_virtual(main())


def test_a_prompt_of_a_batch_that_is_not_counted_costs_what_was_held_for_it() -> None:
    async def main() -> None:
        budgets, _ = budgets_of()
        account, name = await waiting_in_a_batch(budgets)
        held = account.daily.held
        budgets.paid(name, PRICED.key, ChatReply("right", 0, 100, lane="batch"))
        assert account.daily.used(budgets.now()) == held
        assert account.daily.held.tokens == 0

    run_virtual(main())


def test_what_is_billed_counts_and_not_what_the_table_says() -> None:
    async def main() -> None:
        budgets, _ = budgets_of()
        conversation = conversation_budget(budgets, PRICED, "t-1", "affine:sat")
        assert conversation is not None
        await conversation.before(ASKED)
        conversation.after(ASKED, ChatReply("right", 100, 100, billed_micro=7, cost_micro=7))
        assert budgets.account(PRICED).daily.used(budgets.now()).cost_micro == 7

    run_virtual(main())


@pytest.mark.parametrize(("billed", "cost"), [(None, 600 + 100 + 400), (9, 9)])
async def test_a_sample_of_outside_workers_has_the_cost_of_its_tokens(billed: int | None, cost: int) -> None:
    sample = Sample(**dict.fromkeys(Sample.__match_args__, "") | ROW | {"attempts": 2, "cost_micro": billed})
    budgets, _ = budgets_of()
    found, spent = budgets.priced(PRICED, sample)
    assert (found.cost_micro, spent) == (cost, (1_100, 2, cost))


async def test_a_model_that_the_table_lacks_is_told_of_once_and_has_no_budget_in_money() -> None:
    table = Prices({"b": PRICE}, "prices.yaml of 2026-11-01 (a list)")
    budgets, told = budgets_of(table, daily_cost=2.5)
    lacking = Model("a", base_url="http://127.0.0.1:1/v1")
    for _ in range(2):
        budgets.register(lacking)
    assert told == [PriceMissing("a@main", table.told)]
    reply = ChatReply("", 10, 5)
    assert budgets.account(lacking).budget.cost_of(reply, None) is None
    with pytest.raises(
        errors.InvalidRosterError, match=r"price of a model: a@main \(got 2.5 and no price\)"
    ) as refused:
        budgets.refuse_unpriced([lacking, Model("b")])
    assert "add it to prices.yaml" in refused.value.next_step


async def test_a_budget_in_money_of_the_roster_needs_a_price() -> None:
    own = Model("a", budget=ModelBudget(daily_cost=1.0))
    budgets, _ = budgets_of()
    with pytest.raises(errors.InvalidRosterError, match=r"daily_cost needs the price of a model: a@main"):
        budgets.refuse_unpriced([own])
    with_settings, _ = budgets_of(daily_cost=1.0)
    with_settings.refuse_unpriced([Model("a"), PRICED])
