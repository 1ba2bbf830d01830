"""Budgets of a roster block: the same as those of a roster file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from blocks import ModelEndpoint, ModelRoster, RosterEntry
from headgate.core import ModelBudget, Price, errors
from headgate.sampling import FileRoster

URL = "http://127.0.0.1:8001/v1"
LIMITS: dict[str, Any] = {
    "sample_tokens": 8_000,
    "sample_completion_tokens": 2_000,
    "sample_time_s": 60.0,
    "daily_tokens": 1_000_000,
    "daily_requests": 5_000,
    "daily_cost": 2.5,
}
PRICES: dict[str, Any] = {"price_in": 0.15, "price_out": 0.6, "price_cached_in": 0.03, "batch_discount": 0.5}
BUDGET = ModelBudget(**LIMITS, price=Price.of(0.15, 0.6, cached=0.03, batch_discount=0.5))


async def by_file(folder: Path, **fields: Any) -> ModelBudget:
    path = folder / "roster.yaml"
    path.write_text(yaml.safe_dump({"models": [{"name": "alpha", "base_url": URL} | fields]}))
    return (await FileRoster(path).load()).models[0].budget


async def by_block(**fields: Any) -> ModelBudget:
    entry = RosterEntry(name="alpha", **fields)
    roster = ModelRoster(endpoint=ModelEndpoint(base_url=URL), models=[entry])
    return (await roster.source().load()).models[0].budget


async def test_a_file_and_a_block_give_the_same_budget(tmp_path: Path) -> None:
    assert await by_file(tmp_path, **LIMITS, **PRICES) == BUDGET
    assert await by_block(**LIMITS, **PRICES) == BUDGET


async def test_an_entry_without_budgets_leaves_them_to_the_settings(tmp_path: Path) -> None:
    assert await by_file(tmp_path) == await by_block() == ModelBudget()


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("sample_tokens", 31, "32"),
        ("sample_completion_tokens", 5, "32"),
        ("sample_time_s", 0.0, "greater than 0"),
        ("daily_tokens", 0, "1"),
        ("daily_requests", -1, "1"),
        ("price_in", -0.5, "0"),
        ("batch_discount", 50.0, "1"),
    ],
)
async def test_a_budget_that_cannot_be_is_refused_with_its_value_and_the_rule(
    field: str, value: float, rule: str, tmp_path: Path
) -> None:
    with pytest.raises(errors.InvalidRosterError, match=rf"{field}.*{rule}") as refused:
        await by_file(tmp_path, **{field: value})
    assert str(value) in str(refused.value)
    assert refused.value.next_step
    with pytest.raises(ValidationError, match=rf"(?s){field}.*{rule}.*{value}"):
        RosterEntry(name="alpha", **{field: value})


async def test_a_discount_needs_the_prices_that_it_is_of(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidRosterError, match=r"batch_discount: needs price_in and price_out \(got neither"):
        await by_file(tmp_path, batch_discount=0.5)
    with pytest.raises(ValidationError, match=r"batch_discount of 'alpha' needs price_in and price_out \(got neither"):
        RosterEntry(name="alpha", batch_discount=0.5)


async def test_a_price_of_nothing_is_a_price(tmp_path: Path) -> None:
    free = {"price_in": 0.0, "price_out": 0.0}
    assert (await by_file(tmp_path, **free)).price == (await by_block(**free)).price == Price.of(0, 0)


@pytest.mark.parametrize(("stated", "missing"), [("price_in", "price_out"), ("price_out", "price_in")])
async def test_half_a_price_is_refused_and_not_taken_for_free_tokens(stated: str, missing: str, tmp_path: Path) -> None:
    with pytest.raises(
        errors.InvalidRosterError, match=rf"{stated}: needs price_in and price_out \(got no {missing}; 0"
    ):
        await by_file(tmp_path, **{stated: 0.15})
    with pytest.raises(
        ValidationError, match=rf"{stated} of 'alpha' needs price_in and price_out \(got no {missing}; 0"
    ):
        RosterEntry(name="alpha", **{stated: 0.15})
