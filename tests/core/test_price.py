"""What tokens cost, to the millionth."""

from __future__ import annotations

import pytest

from headgate.core import ChatReply, LanePrice, Model, ModelBudget, Price, Prices

PRICE = Price.of(0.25, 2.0, cached=0.025, reasoning=3.0, batch_discount=0.5)


@pytest.mark.parametrize(
    ("reply", "cost"),
    [
        (ChatReply("", 1_003, 101), 251 + 202),  # 250.75 and 202: half of a millionth is rounded up, once
        (ChatReply("", 1_000, 100, cached_tokens=800), 50 + 20 + 200),
        (ChatReply("", 1_000, 100, reasoning_tokens=60), 250 + 80 + 180),
        (ChatReply("", 1_000, 100, cached_tokens=800, reasoning_tokens=60, lane="batch"), 25 + 10 + 40 + 90),
        (ChatReply("", 2, 0), 1),
        (ChatReply("", 0, 0), None),
        (ChatReply("said, and not counted", 2, 0), None),
    ],
)
def test_each_kind_of_token_has_its_price(reply: ChatReply, cost: int | None) -> None:
    assert PRICE.cost_of(reply) == cost


def test_a_price_is_no_binary_fraction() -> None:
    assert LanePrice.of(0.1, 0.7).cost(3_000_000, 1_000_000) == 1_000_000
    assert LanePrice.of(0.15, 0.6).cost(10**12, 10**12) == 750_000_000_000


def test_cached_tokens_and_thoughts_cost_the_same_as_others_unless_it_is_said() -> None:
    assert LanePrice.of(1.0, 4.0) == LanePrice(1_000_000, 4_000_000, 1_000_000, 4_000_000)


def test_a_lane_without_a_price_has_no_cost_and_counts_at_the_other_one_in_a_budget() -> None:
    price = Price.of(1.0, 4.0)
    assert price.cost_of(ChatReply("", 10, 5, lane="batch")) is None
    assert ModelBudget(price=price).spending(10, 5, lane="batch").cost_micro == 30


@pytest.mark.parametrize(
    ("price", "is_cheaper"),
    [
        (Price.of(1.0, 4.0), False),
        (Price.of(1.0, 4.0, batch_discount=0.0), False),
        (Price.of(1.0, 4.0, batch_discount=0.5), True),
        (Price(LanePrice.of(1.0, 4.0), LanePrice.of(0.5, 5.0)), False),
        (Price(None, LanePrice.of(0.5, 2.0)), False),
    ],
)
def test_batches_are_cheaper_where_no_token_costs_more_in_them(price: Price, is_cheaper: bool) -> None:
    assert Prices({"m": price}, "a table").batch_is_cheaper(Model("m")) is is_cheaper


def test_a_roster_entry_goes_before_the_table_and_a_key_before_a_name() -> None:
    cheap, dear, own = Price.of(1, 1), Price.of(2, 2), Price.of(3, 3)
    prices = Prices({"m@v2": cheap, "m": dear, "org/served": own}, "a table")
    assert prices.of(Model("m", revision="v2")) == cheap
    assert prices.of(Model("m")) == dear
    assert prices.of(Model("x", served_name="org/served")) == own
    assert prices.of(Model("m", budget=ModelBudget(price=own))) == own
    assert prices.of(Model("x")) is None
    assert prices.lacks(Model("x"))
    assert not Prices().lacks(Model("x"))
