"""`headgate models`: whom there is to sample, and how the engines of those that Headgate serves stand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx

from headgate import reports
from headgate.cli.options import PricedRosterChoices
from headgate.cli.output import AsJson, counted, print_json, print_table
from headgate.config import Settings
from headgate.core import Model
from headgate.core.errors import HeadgateError
from headgate.core.status import EngineStatus
from headgate.sampling import read_prices, roster_source
from headgate.telemetry import MonitorClient


def models(choices: PricedRosterChoices | None = None, *, as_json: AsJson = False) -> int:
    """Check the roster and list its models. Keys are never shown.

    While a campaign with --enable-monitoring runs, it shows which models are paused and why, and the state of the
    engines of those served from weights: asleep, waiting, starting, awake, or failed and why.
    """
    settings = (choices or PricedRosterChoices()).load().settings
    roster = asyncio.run(roster_source(settings.roster).load())
    if settings.daily_cost is not None or any(model.budget.daily_cost is not None for model in roster.models):
        from headgate.run import budgets  # noqa: PLC0415 - most rosters have no need of what it imports

        budgets.refuse_unpriced(roster.models, settings, read_prices(settings.prices))
    rows: list[tuple[object, ...]] = [
        (m.uid, m.name, m.revision, m.request_name, m.endpoint, "yes" if m.api_key else "no", m.weight, m.max_parallel)
        for m in roster.models
    ]
    told = asyncio.run(_told(settings))
    columns: tuple[str, ...] = ("uid", "name", "revision", "served as", "endpoint", "has key", "weight", "parallel")
    if any(model.serve is not None for model in roster.models):
        columns += ("engines",)
        rows = [(*row, _engines(model, told)) for row, model in zip(rows, roster.models, strict=True)]
    if any(one["status"] == "paused" for one in told.values()):
        columns += ("paused",)
        paused = [told.get(model.key, {}).get("pause_reason") or "" for model in roster.models]
        rows = [(*row, why) for row, why in zip(rows, paused, strict=True)]
    if as_json:
        print_json([dict(zip((c.replace(" ", "_") for c in columns), row, strict=True)) for row in rows])
    else:
        print_table(
            counted(len(rows), "model"), columns, rows, right=(0, 6, 7), spare=("weight", "has key", "served as")
        )
    return 0


def _engines(model: Model, told: Mapping[str, dict[str, Any]]) -> str:
    if model.serve is None:
        return ""
    engines = told.get(model.key, {}).get("engines")
    return reports.engines_said(EngineStatus(**engines)) if engines else "no campaign runs them"


async def _told(settings: Settings) -> Mapping[str, dict[str, Any]]:
    """Return what a running campaign tells of models, by their keys; nothing where none answers."""
    async with MonitorClient(settings) as monitor:
        try:
            if await monitor.campaign() is None:
                return {}
            return {f"{one['model']}@{one['revision']}": one for one in await monitor.models()}
        except (HeadgateError, httpx.HTTPError):
            return {}
