"""Budgets before a run: what is spent of a day, and how many samples a day they allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from headgate.admission import request_key
from headgate.config import Settings, value_for
from headgate.core import DAY_S, NO_SPENDING, Model, ModelBudget, Prices
from headgate.core.errors import InvalidRosterError
from headgate.core.rates import NO_RATES, RateLimits
from headgate.sampling import CapacityLimit


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """How many samples a day the daily budgets, or the limits per minute, have room for.

    Attributes:
        limits: the limits whose capacity is known.
        unknown: names of limits whose use per sample cannot be told from any stored sample in these environments.
    """

    limits: tuple[CapacityLimit, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CostPlan:
    """What a day of one model costs.

    Attributes:
        per_day: cost in the currency of its price.
        share: fraction of its samples that are in environments where the tokens of a sample are known.
    """

    model: str
    per_day: float
    share: float


def budget_plan(
    models: Iterable[Model],
    settings: Settings,
    rates: Mapping[str, float],
    tokens_per_sample: Mapping[tuple[str, str], float],
    costs: Iterable[CostPlan] = (),
    prices: Prices | None = None,
) -> BudgetPlan:
    """Return how much of the demanded rates `daily_tokens`, `daily_requests` and `daily_cost` allow.

    A sample counts as one request, the least that it takes.

    Args:
        models: the roster's models.
        settings: their budgets apply to models that have none of their own.
        rates: samples per model and day, by environment.
        tokens_per_sample: mean by model and environment; a missing one counts as the mean of the model's others.
        costs: costs of the models that have a price, for the same rates.
        prices: prices of models whose roster entry has none; money limits no model without a price.
    """
    per_day = {cost.model: cost.per_day / cost.share for cost in costs}
    prices = prices or Prices()
    demanded, limits, unknown = sum(rates.values()), list[CapacityLimit](), list[str]()
    for model in models:
        budget = with_settings(model.budget, settings)
        known = {name: tokens_per_sample[model.key, name] for name in rates if (model.key, name) in tokens_per_sample}
        weight = sum(rates[name] for name in known)
        tokens = sum(rates[name] * mean for name, mean in known.items()) / weight if weight else 0.0
        costs_nothing = prices.of(model) is None or per_day.get(model.key) == 0
        for name, most, mean in (
            ("daily_tokens", budget.daily_tokens, tokens),
            ("daily_requests", budget.daily_requests, 1.0),
            (
                "daily_cost",
                None if costs_nothing else budget.daily_cost,
                per_day.get(model.key, 0.0) / (demanded or 1.0),
            ),
        ):
            if most is not None and mean:
                limits.append(CapacityLimit(f"{name} {model.key}", demanded, most / mean))
            elif most is not None:
                unknown.append(f"{name} {model.key}")
    return BudgetPlan(tuple(limits), tuple(unknown))


def cost_plan(
    models: Iterable[Model],
    settings: Settings,
    rates: Mapping[str, float],
    tokens_per_sample: Mapping[tuple[str, str], tuple[float, float]],
    prices: Prices,
) -> list[CostPlan]:
    """Return the daily cost of each model that has a price and samples; cached tokens are priced like others.

    Args:
        models: the roster's models.
        settings: the source of each request's lane.
        rates: samples per model and day, by environment.
        tokens_per_sample: mean prompt and completion tokens by model and environment; a missing one is left out.
        prices: prices of models whose roster entry has none.
    """
    found = []
    for model in models:
        price, day, known = prices.of(model), NO_SPENDING, 0.0
        for name, rate in rates.items():
            if price is None or (tokens := tokens_per_sample.get((model.key, name))) is None:
                continue
            lane = model.lane or value_for(settings.lanes, name) or "now"
            is_batch = lane == "batch" or (lane == "auto" and price.batch_is_cheaper)
            prompt, completion = (round(rate * part) for part in tokens)
            budget = ModelBudget(price=price)
            day = day.plus(budget.spending(prompt, completion, lane="batch" if is_batch else "now"))
            known += rate
        if known:
            found.append(CostPlan(model.key, day.cost_micro / 1e6, known / sum(rates.values())))
    return found


def rate_plan(
    models: Iterable[Model],
    rates: Mapping[str, float],
    tokens: Mapping[tuple[str, str], tuple[float, float]],
    learnt: Mapping[tuple[str, ...], RateLimits] = MappingProxyType({}),
) -> BudgetPlan:
    """Return how much of the demanded rates the limits per minute allow, if requests come evenly over the day.

    A sample counts as one request. Samples of unknown size count as the mean of the others under the same limit; a
    limit of tokens under which no size is known is unknown.

    Args:
        models: the roster's models.
        rates: samples per model and day, by environment.
        tokens: mean prompt and completion tokens of a sample, by model and environment.
        learnt: limits that neither the roster nor the answers state, learnt from refusals; by provider and model.
    """
    stated: dict[tuple[str, ...], list[tuple[Model, RateLimits]]] = {}
    for model in models:
        account, asked = (model.endpoint, model.api_key.reveal()), request_key(model).account
        scopes: dict[tuple[str, ...], RateLimits] = {
            ("model", *account, model.request_name): model.rates.own,
            ("key", *account): model.rates.key,
            ("organisation", model.rates.organisation): model.rates.shared,
            ("learnt", *asked): learnt.get(asked, NO_RATES),
        }
        for scope, limits in scopes.items():
            stated.setdefault(scope, []).append((model, limits))
    found: list[CapacityLimit] = []
    unknown: list[str] = []
    for scope, members in stated.items():
        those, known_limits = zip(*members, strict=True)
        first = those[0]
        names = {"model": f"model {first.key}", "learnt": f"model {first.key}, learnt from refusals"}
        name = (names | {"key": f"key of {first.endpoint}"}).get(scope[0], " ".join(scope))
        known = [(rate, tokens[m.key, e]) for m in those for e, rate in rates.items() if (m.key, e) in tokens]
        weight, demanded = sum(rate for rate, _ in known), sum(rates.values()) * len(those)
        sent, said = (sum(rate * mean[i] for rate, mean in known) / weight if weight else 0.0 for i in (0, 1))
        for unit, said_limits, mean in zip(
            RateLimits._fields, zip(*known_limits, strict=True), (1.0, sent, said, sent + said), strict=True
        ):
            limit = min((each for each in said_limits if each is not None), default=None)
            if limit is not None and mean:
                found.append(CapacityLimit(f"{unit} {name}", demanded, limit * DAY_S / 60 / mean))
            elif limit is not None:
                unknown.append(f"{unit} {name}")
    return BudgetPlan(tuple(found), tuple(unknown))


def with_settings(budget: ModelBudget, settings: Settings) -> ModelBudget:
    """Return a model's budget with the settings' daily limits where it has none of its own."""
    return replace(
        budget,
        daily_tokens=settings.daily_tokens if budget.daily_tokens is None else budget.daily_tokens,
        daily_requests=settings.daily_requests if budget.daily_requests is None else budget.daily_requests,
        daily_cost=settings.daily_cost if budget.daily_cost is None else budget.daily_cost,
    )


def refuse_unpriced(models: Iterable[Model], settings: Settings, prices: Prices) -> None:
    """Refuse a budget in money for a model of unknown cost.

    Raises:
        InvalidRosterError: naming every such model.
    """
    found = {
        model.key: budget.daily_cost
        for model in models
        if (budget := with_settings(model.budget, settings)).daily_cost is not None
        and prices.of(model) is None
        and (model.budget.daily_cost is not None or prices.lacks(model))
    }
    if found:
        listed = ", ".join(f"{key} (got {cost:g} and no price)" for key, cost in found.items())
        in_table = f"add it to {prices.told}" if prices.told else "name a table of prices (setting prices)"
        raise InvalidRosterError(
            f"daily_cost needs the price of a model: {listed}",
            next_step=f"Give the model price_in and price_out, or {in_table}, or leave daily_cost out.",
        )
