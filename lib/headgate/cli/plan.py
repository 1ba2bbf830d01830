"""`headgate plan`: is the capacity sufficient for the rates?"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from headgate import reports, sampling, storage
from headgate import run as runs
from headgate.cli.options import Choices
from headgate.cli.output import CHECK_FAILED, AsJson, print_json, print_table, say
from headgate.config import Settings
from headgate.core import Model, Prices
from headgate.core.errors import InvalidInputError, JournalError, StoreError
from headgate.core.rates import RateLimits
from headgate.telemetry import json_safe

ASSUMED_EPISODE_S = 30.0
"""Assumed where the store has no sample to measure; Affine's runner calls tasks under 30 s fast."""

_UNKNOWN_ROWS = 12
"""Maximum number of limits that are listed although their capacity is unknown."""


def plan(
    choices: Choices | None = None,
    *,
    episode_s: Annotated[
        float | None, Parameter(help="Assume episodes of this many seconds where none was measured yet.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Compare the samples that the rates demand with what workers and endpoints can do, before a run.

    Exit status 4 when the demand exceeds what the workers or an endpoint can do.
    """
    if episode_s is not None and not episode_s > 0:
        raise InvalidInputError(f"--episode-s must be > 0 (got {episode_s:g})")
    settings = (choices or Choices()).load().settings
    prices = sampling.read_prices(settings.prices)
    found, models, unknown, unknown_rates, costs = asyncio.run(
        _plan(settings, prices, ASSUMED_EPISODE_S if episode_s is None else episode_s)
    )
    lanes = _lanes(settings, models, prices)
    if as_json:
        further = {
            "unknown_budgets": unknown,
            "unknown_rates": unknown_rates,
            "costs": [asdict(cost) for cost in costs],
            "auto_lanes": lanes,
            "capacity": json_safe(runs.capacity_plan(settings, models)),
        }
        print_json(_document(found) | further)
    else:
        _print(found)
        _print_costs(prices, costs, lanes)
        for name in [*unknown, *unknown_rates][:_UNKNOWN_ROWS]:
            say(f"{name}: capacity unknown, as no stored sample has token counts")
    return 0 if found.fits else CHECK_FAILED


def _lanes(settings: Settings, models: Sequence[Model], prices: Prices) -> dict[str, str]:
    """Return how requests that can wait are sent to models whose lane is `auto`, and why."""
    asked = "auto" in settings.lanes.values()
    return {
        model.key: "in batches, which cost less"
        if prices.batch_is_cheaper(model)
        else "at once: no price says that its batches cost less"
        for model in models
        if model.lane == "auto" or (asked and not model.lane)
    }


def _print_costs(prices: Prices, costs: Sequence[runs.CostPlan], lanes: Mapping[str, str]) -> None:
    told = [
        f"{cost.model}: {reports.money(cost.per_day)} a day"
        + ("" if cost.share == 1 else f" for the {cost.share:.0%} of its samples whose tokens are known")
        for cost in costs
    ]
    told += [f"lane auto, {model}: requests that can wait are sent {how}" for model, how in lanes.items()]
    if prices.told:
        told.append(f"prices: {prices.told}")
    for line in told:
        say(line)


async def _plan(
    settings: Settings, prices: Prices, assumed_s: float
) -> tuple[sampling.CapacityCheck, Sequence[Model], Sequence[str], Sequence[str], Sequence[runs.CostPlan]]:
    models = (await sampling.roster_source(settings.roster).load()).models
    runs.refuse_unpriced(models, settings, prices)
    environments = runs.sampled_environments(settings)
    pairs = await _stored_pairs(settings)
    measured = _measured_s(pairs)
    rates = runs.rates_of(settings, environments)
    tokens = _tokens_per_sample(pairs)
    sums = {pair: sum(parts) for pair, parts in tokens.items()}
    costs = runs.cost_plan(models, settings, rates, tokens, prices)
    budgets = runs.budget_plan(models, settings, rates, sums, costs, prices)
    per_minute = runs.rate_plan(models, rates, tokens, _learnt(settings))
    check = sampling.capacity_check(
        models,
        rates,
        workers=settings.num_evaluation_workers,
        boost=settings.low_sample_multiplier,
        episode_s={name: measured.get(name, assumed_s) for name in environments},
        is_measured={name: name in measured for name in environments},
        further=(*budgets.limits, *per_minute.limits),
        outside=runs.outside_executors(settings, environments),
    )
    return check, models, budgets.unknown, per_minute.unknown, costs


def _learnt(settings: Settings) -> Mapping[tuple[str, ...], RateLimits]:
    """Return the limits per minute that processes of the last day left in the journal, by provider and model."""
    with suppress(JournalError):
        if storage.Journal.is_there(settings.journal, settings.campaign):
            with closing(storage.Journal(settings.journal, settings.campaign)) as journal:
                return journal.limits.rates(time.time())
    return {}


async def _stored_pairs(settings: Settings) -> Sequence[storage.PairSummary]:
    """Return the store's summary of each model and environment; empty if it cannot be read."""
    try:
        return (await storage.sample_store(settings).summary(time.time())).pairs
    except StoreError:
        return ()


def _tokens_per_sample(pairs: Sequence[storage.PairSummary]) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the mean prompt and completion tokens of a sample by model and environment, unscored ones included.

    Pairs whose samples have no tokens are left out: they were never answered, or the endpoint counts none.
    """
    return {
        (pair.model, pair.environment): (pair.prompt_tokens / samples, pair.completion_tokens / samples)
        for pair in pairs
        if (samples := pair.count + pair.unscored) and (pair.prompt_tokens or pair.completion_tokens)
    }


def _measured_s(pairs: Sequence[storage.PairSummary]) -> dict[str, float]:
    """Return the mean duration of an episode, in seconds, of each environment with stored samples."""
    seconds, samples = defaultdict[str, float](float), defaultdict[str, float](float)
    for pair in pairs:
        if pair.mean_latency_s is not None:
            seconds[pair.environment] += pair.mean_latency_s * pair.count
            samples[pair.environment] += pair.count
    return {name: seconds[name] / samples[name] for name in seconds}


def _print(found: sampling.CapacityCheck) -> None:
    print_table(
        "Demand and capacity per day",
        ("limit", "demanded", "carries", "load"),
        [
            (limit.name, limit.demanded_per_day, limit.carries_per_day, f"{limit.load:.0%}")
            for limit in found.limits[:12]
        ],
        right=(1, 2, 3),
    )
    for name, seconds in found.episode_s.items():
        kind = "measured" if found.is_measured[name] else "assumed"
        say(f"{name}: {seconds:.1f} s per episode ({kind})")
    if (rate := _binding_rate(found)) is not None:
        say(f"of the limits per minute, {rate.name} binds first: a day's samples take {24 * rate.load:.1f} h under it")
    verdict = "fits" if found.fits else "does not fit"
    say(
        f"{found.demanded_per_day:,.0f} samples a day ({found.boosted_per_day:,.0f} while every model is boosted) "
        f"{verdict}: {found.binding.name} binds at {found.binding.load:.0%}; "
        f"{found.workers_needed:.1f} workers are busy on average"
        + (f", and {found.outside_needed:.1f} outside workers" if found.outside_needed else "")
    )


def _binding_rate(found: sampling.CapacityCheck) -> sampling.CapacityLimit | None:
    """Return the limit per minute with the highest load; None where none is stated."""
    return next((limit for limit in found.limits if limit.name.partition(" ")[0] in RateLimits._fields), None)


def _document(found: sampling.CapacityCheck) -> dict[str, object]:
    of_check = ("fits", "demanded_per_day", "boosted_per_day", "workers_needed")
    of_limit = ("name", "demanded_per_day", "carries_per_day", "load")
    rate = _binding_rate(found)
    return {
        **{name: getattr(found, name) for name in of_check},
        "binding": found.binding.name,
        "binding_rate": None if rate is None else {"name": rate.name, "hours": 24 * rate.load},
        "limits": [{name: getattr(limit, name) for name in of_limit} for limit in found.limits],
        "episode_s": dict(found.episode_s),
        "is_measured": dict(found.is_measured),
    }
