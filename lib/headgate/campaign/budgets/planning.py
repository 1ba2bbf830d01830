"""What budgets of tokens carry per day, before a run: by what samples took that are stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.campaign.budgets.keeper import with_settings
from headgate.config import Settings
from headgate.core import Model
from headgate.sampling import CapacityLimit


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """How many samples a day the budgets of tokens have room for.

    Attributes:
        limits: of the models whose samples are known.
        unknown: keys of the models with a budget, none of whose samples in these environments is known.
    """

    limits: tuple[CapacityLimit, ...]
    unknown: tuple[str, ...]


def budget_plan(
    models: Iterable[Model],
    settings: Settings,
    rates: Mapping[str, float],
    tokens_per_sample: Mapping[tuple[str, str], float],
) -> BudgetPlan:
    """Return what `daily_tokens` carries of what the rates ask for.

    Args:
        models: of the roster.
        settings: their budgets hold for models that have none of their own.
        rates: samples per model and day, by environment.
        tokens_per_sample: mean by model and environment; one that is missing counts as the mean of the model's others.
    """
    limits, unknown = [], []
    for model in models:
        daily_tokens = with_settings(model.budget, settings).daily_tokens
        if daily_tokens is None:
            continue
        known = {name: tokens_per_sample[model.key, name] for name in rates if (model.key, name) in tokens_per_sample}
        weight = sum(rates[name] for name in known)
        tokens = sum(rates[name] * mean for name, mean in known.items())
        if weight and tokens:
            carries = daily_tokens * weight / tokens
            limits.append(CapacityLimit(f"daily_tokens {model.key}", sum(rates.values()), carries))
        else:
            unknown.append(model.key)
    return BudgetPlan(tuple(limits), tuple(unknown))
