"""What budgets carry, before a run."""

from __future__ import annotations

from headgate.config import Settings
from headgate.core import Model, ModelBudget
from headgate.run.budgets import budget_plan

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
    assert budget_plan([Model("a")], Settings(daily_tokens=1_000), RATES, {}).unknown == ("a@main",)
    nothing = budget_plan([Model("a")], Settings(), RATES, {("a@main", "affine:sat"): 10.0})
    assert (nothing.limits, nothing.unknown) == ((), ())
