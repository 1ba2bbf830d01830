"""What budgets carry, before a run."""

from __future__ import annotations

from headgate.config import Settings
from headgate.core import Model, ModelBudget, Price, Prices, Secret
from headgate.core.rates import ModelRates, RateLimits
from headgate.run.budgets.plan import budget_plan, cost_plan, rate_plan

RATES = {"affine:sat": 300.0, "agentgym:babyai": 100.0}


def test_a_budget_carries_as_many_samples_as_their_mean_tokens_allow() -> None:
    models = [Model("a"), Model("b", budget=ModelBudget(daily_tokens=10_000))]
    means = {("a@main", "affine:sat"): 100.0, ("a@main", "agentgym:babyai"): 500.0, ("b@main", "affine:sat"): 50.0}
    plan = budget_plan(models, Settings(daily_tokens=40_000), RATES, means)
    assert plan.unknown == ()
    ours, theirs = plan.limits
    assert (ours.name, ours.demanded_per_day, ours.carries_per_day) == ("daily_tokens a@main", 400.0, 200.0)
    assert (theirs.carries_per_day, theirs.load) == (200.0, 2.0)


def test_a_budget_of_a_model_without_samples_is_unknown_and_none_is_not_told_of() -> None:
    assert budget_plan([Model("a")], Settings(daily_tokens=1_000), RATES, {}).unknown == ("daily_tokens a@main",)
    nothing = budget_plan([Model("a")], Settings(), RATES, {("a@main", "affine:sat"): 10.0})
    assert (nothing.limits, nothing.unknown) == ((), ())


def test_budgets_of_requests_and_of_money_limit_a_day_as_those_of_tokens_do() -> None:
    price = Price.of(1.0, 3.0)
    models = [
        Model("priced", budget=ModelBudget(daily_cost=0.01, price=price)),
        Model("few", budget=ModelBudget(daily_requests=100)),
        Model("free", budget=ModelBudget(price=Price.of(0.0, 0.0))),
        Model("new", budget=ModelBudget(price=price)),
    ]
    settings, tokens = (
        Settings(daily_cost=5.0),
        {(f"{one}@main", "affine:sat"): (100.0, 10.0) for one in ("priced", "free")},
    )
    costs = cost_plan(models, settings, RATES, tokens, Prices())
    plan = budget_plan(models, settings, RATES, {pair: sum(both) for pair, both in tokens.items()}, costs)
    assert {limit.name: (limit.demanded_per_day, round(limit.carries_per_day)) for limit in plan.limits} == {
        "daily_cost priced@main": (400.0, round(0.01 / 130e-6)),
        "daily_requests few@main": (400.0, 100),
    }
    assert plan.unknown == ("daily_cost new@main",), "what has no price, or costs nothing, is not limited by money"


def test_limits_per_minute_carry_what_tokens_of_all_who_share_them_allow() -> None:
    acme = RateLimits(tokens_per_minute=100)
    first = ModelRates(RateLimits(requests_per_minute=1), RateLimits(output_tokens_per_minute=10), "acme", acme)
    second = ModelRates(key=RateLimits(output_tokens_per_minute=20), organisation="acme", shared=acme)
    models = [
        Model("a", base_url="http://m/v1", rates=first),
        Model("b", base_url="http://m/v1", rates=second),
        Model("c", base_url="http://m/v1", api_key=Secret("other"), rates=second),
    ]
    means = {("a@main", "affine:sat"): (80.0, 20.0), ("b@main", "agentgym:babyai"): (160.0, 40.0)}
    plan = rate_plan(models, RATES, means)
    assert {limit.name: (limit.demanded_per_day, limit.carries_per_day) for limit in plan.limits} == {
        "requests_per_minute model a@main": (400.0, 1_440.0),
        "output_tokens_per_minute key of http://m/v1": (800.0, 10 * 1_440 / 25.0),
        "tokens_per_minute organisation acme": (1_200.0, 100 * 1_440 / 125.0),
    }
    assert plan.unknown == ("output_tokens_per_minute key of http://m/v1",)


def test_limits_per_minute_that_runs_have_learnt_count_as_stated_ones_do_and_say_so() -> None:
    models = [Model("a", base_url="http://m/v1", rates=ModelRates(RateLimits(tokens_per_minute=400)))]
    learnt = {("http://m/v1", "a"): RateLimits(tokens_per_minute=100), ("http://other/v1", "a"): RateLimits(1)}
    means = {("a@main", "affine:sat"): (80.0, 20.0)}
    assert {limit.name: limit.carries_per_day for limit in rate_plan(models, RATES, means, learnt).limits} == {
        "tokens_per_minute model a@main": 4 * 1_440.0,
        "tokens_per_minute model a@main, learnt from refusals": 1_440.0,
    }
