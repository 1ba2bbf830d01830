"""`headgate models`: which models there are to sample, how, at what price, and what is left of their budgets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import reduce
from itertools import chain
from typing import Any, Final

import httpx

from headgate import reports
from headgate.cli.live_runs import live_runs
from headgate.cli.options import ModelChoices
from headgate.cli.output import AsJson, counted, print_json, print_table, say
from headgate.config import LoadedSettings, Settings
from headgate.core import NO_SPENDING, Model, Price, Spending
from headgate.core.errors import HeadgateError, InvalidRosterError
from headgate.core.status import EngineStatus
from headgate.sampling import read_prices, roster_source
from headgate.storage import Journal

_COLUMNS: Final = (
    *("uid", "name", "revision", "served as", "endpoint", "has key", "weight", "parallel"),
    *("lane", "price", "batch price", "budgets", "engines", "paused", "campaign"),
)
_WHERE_SET: Final = _COLUMNS.index("lane")
"""From here on, columns are shown only if some model has a value in them."""

_UNITS: Final = {"daily_tokens": "tokens", "daily_requests": "requests", "daily_cost": "cost"}
"""Budget -> what it counts, in the order of `Spending`; costs and prices are in millionths there."""


def models(choices: ModelChoices | None = None, *, as_json: AsJson = False) -> int:
    """Check the roster and list its models, with lanes, prices and budgets where they are set. Keys are never shown.

    Prices are per million tokens, of prompt and completion. What is left of a budget comes from a campaign that runs
    with --enable-monitoring, else from the journal. While one runs, the table also shows which models are paused and
    why, and the engines of models served from weights: asleep, waiting, starting, awake, or failed and why. Where
    several campaigns of the journal run, it lists the models of each, unless one is named. Without a roster, it lists
    the models that running campaigns report.
    """
    choices = choices or ModelChoices()
    loaded = choices.load()
    settings = loaded.settings
    said = asyncio.run(_told(loaded, choices.url))
    listed = asyncio.run(_listed(settings, said))
    prices = read_prices(settings.prices)
    if settings.daily_cost is not None or any(model.budget.daily_cost is not None for model in listed):
        from headgate.run import refuse_unpriced  # noqa: PLC0415 - most rosters do not need its imports

        refuse_unpriced(listed, settings, prices)
    known = set(chain.from_iterable(said.values()))
    said[""] = {model.key: {} for model in listed if model.key not in known}
    left = {
        campaign: _budgets([m for m in listed if m.key in told], settings, told if campaign else {})
        for campaign, told in said.items()
    }
    lanes = ", ".join(f"{name}={lane}" for name, lane in settings.lanes.items())
    rows: list[list[Any]] = [
        [
            *(m.uid, m.name, m.revision, m.request_name, m.endpoint, "yes" if m.api_key else "no", m.weight),
            *(m.max_parallel, m.lane or lanes, *_by_lane(prices.of(m)), left[campaign][m.key]),
            *(_engines(m, told), told[m.key].get("pause_reason") or "", campaign),
        ]
        for m in listed
        for campaign, told in said.items()
        if m.key in told
    ]
    for row in rows:
        if not row[4]:  # without an endpoint: a run reports it, and no roster says how to reach it
            row[3:8] = [None] * 5
    if as_json:
        print_json([dict(zip((c.replace(" ", "_") for c in _COLUMNS), row, strict=True)) for row in rows])
        return 0
    for row in rows:
        row[9:11] = ["{input:g}/{output:g}".format(**price) if price else "" for price in row[9:11]]
        row[11] = ", ".join(f"{one['left']:,.10g} of {one['limit']:,.10g} {_UNITS[one['name']]}" for one in row[11])
    shown = [at for at in range(len(_COLUMNS)) if at < _WHERE_SET or any(row[at] for row in rows)]
    titles = {"price": "price in/out", "batch price": "in batches", "budgets": "left of 24 h"}
    named, cells = [titles.get(_COLUMNS[at], _COLUMNS[at]) for at in shown], [[row[at] for at in shown] for row in rows]
    spare = ("in batches", "weight", "has key", "served as", "parallel", "uid", "revision")
    print_table(counted(len(listed), "model"), named, cells, right=(0, 6, 7), spare=spare)
    if not all(model.endpoint for model in listed):
        say("– marks values that only the roster has: name it with --roster", stderr=True)
    return 0


async def _listed(settings: Settings, said: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[Model]:
    """Return the models of the roster; if none is named, also those that runs report, without their endpoints.

    Raises:
        InvalidRosterError: the roster cannot be read; or there is none, and no run reports models.
    """
    listed, told = list[Model](), {key: one for campaign in said.values() for key, one in campaign.items()}
    try:
        listed += (await roster_source(settings.roster).load()).models
    except InvalidRosterError as error:
        if settings.roster:
            raise
        if not told:
            step = f"A campaign that runs with --enable-monitoring reports its models. {error.next_step}"
            raise InvalidRosterError(f"{error.message}; no run reports models either", next_step=step) from None
    for key in () if settings.roster else sorted(told.keys() - {model.key for model in listed}):
        listed.append(Model(told[key]["model"], told[key]["revision"], uid=told[key]["uid"]))
    return listed


def _by_lane(price: Price | None) -> list[dict[str, float] | None]:
    """Return prices in the currency per million tokens, at once and in batches."""
    lanes = (price.now, price.batch) if price else (None, None)
    return [of and {what: amount / 1e6 for what, amount in of._asdict().items()} for of in lanes]


def _budgets(
    models: Sequence[Model], settings: Settings, told: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """Return each model's 24 h budgets: the limit, and how much is used, held by episodes in progress, and left."""
    found: dict[str, list[dict[str, Any]]] = {}
    for model in models:
        own = {name: getattr(model.budget, name) for name in _UNITS}
        limits = {name: getattr(settings, name) if limit is None else limit for name, limit in own.items()}
        at_rest = [{"name": name, "used": 0.0, "held": 0.0, "limit": limit} for name, limit in limits.items()]
        said = told[model.key].get("budgets", ()) if model.key in told else at_rest
        found[model.key] = [dict(one) for one in said if one["limit"] is not None]
    if any(found[model.key] for model in models if model.key not in told):
        for key, (tokens, requests, cost) in _spent(settings).items():
            used = dict(zip(_UNITS, (tokens, requests, cost / 1e6), strict=True))
            for one in found.get(key, ()) if key not in told else ():
                one["used"] = used[one["name"]]
    for one in chain.from_iterable(found.values()):
        one["left"] = max(0.0, one["limit"] - one["used"])
    return found


def _spent(settings: Settings) -> dict[str, Spending]:
    """Return each model's spending in the last 24 h, as the campaign's journal counts it."""
    if not Journal.is_there(settings.journal, settings.campaign):
        return {}
    with closing(Journal(settings.journal, settings.campaign)) as journal, journal.told():
        answers = journal.exchange_spending({}, time.time())
    return {
        model: reduce(Spending.plus, (spent for _, spent in answer.news), NO_SPENDING)
        for model, answer in answers.items()
    }


def _engines(model: Model, told: Mapping[str, dict[str, Any]]) -> str:
    if engines := told.get(model.key, {}).get("engines"):
        return reports.engines_said(EngineStatus(**engines))
    return "no campaign runs them" if model.serve else ""


async def _told(loaded: LoadedSettings, url: str | None) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what runs report of models, by campaign and model key; stderr says why a campaign's runs do not answer."""
    said: dict[str, dict[str, dict[str, Any]]] = {}
    try:
        async with live_runs(loaded, url) as runs:
            runs.tell_silent()
            for campaign, monitors in runs.answering.items():
                said[campaign] = {}
                for one in chain(*[(await monitor.document("/status/models"))["models"] for monitor in monitors]):
                    known = said[campaign].setdefault(f"{one['model']}@{one['revision']}", one)
                    known["engines"] = known.get("engines") or one.get("engines")  # of several runs, one may have them
    except (HeadgateError, httpx.HTTPError) as error:
        if url is not None:
            raise
        say(f"runs are not asked: {error}", stderr=True)
    return said
