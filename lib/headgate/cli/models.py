"""`headgate models`: whom there is to sample, and how the engines of those that Headgate serves stand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx

from headgate import reports
from headgate.cli.options import RosterChoices
from headgate.cli.output import AsJson, counted, print_json, print_table
from headgate.config import Settings
from headgate.core.errors import HeadgateError
from headgate.core.status import EngineStatus
from headgate.sampling import roster_source
from headgate.telemetry import MonitorClient


def models(choices: RosterChoices | None = None, *, as_json: AsJson = False) -> int:
    """Check the roster and list its models. Keys are never shown.

    For models served from weights it shows the state of their engines while a campaign with --enable-monitoring runs:
    asleep, waiting, starting, awake, or failed and why.
    """
    settings = (choices or RosterChoices()).load().settings
    roster = asyncio.run(roster_source(settings.roster).load())
    rows: list[tuple[object, ...]] = [
        (m.uid, m.name, m.revision, m.request_name, m.endpoint, "yes" if m.api_key else "no", m.weight, m.max_parallel)
        for m in roster.models
    ]
    columns: tuple[str, ...] = ("uid", "name", "revision", "served as", "endpoint", "has key", "weight", "parallel")
    if any(model.serve is not None for model in roster.models):
        told = asyncio.run(_engines(settings))
        columns += ("engines",)
        rows = [
            (*row, "" if model.serve is None else told.get(model.key, "no campaign runs them"))
            for row, model in zip(rows, roster.models, strict=True)
        ]
    if as_json:
        print_json([dict(zip((c.replace(" ", "_") for c in columns), row, strict=True)) for row in rows])
    else:
        print_table(
            counted(len(rows), "model"), columns, rows, right=(0, 6, 7), spare=("weight", "has key", "served as")
        )
    return 0


async def _engines(settings: Settings) -> Mapping[str, str]:
    """Return how engines stand, by the key of their model, as a running campaign tells it; none where none answers."""
    async with MonitorClient(settings) as monitor:
        try:
            if await monitor.campaign() is None:
                return {}
            told: list[dict[str, Any]] = await monitor.models()
        except (HeadgateError, httpx.HTTPError):
            return {}
    return {
        f"{each['model']}@{each['revision']}": reports.engines_said(EngineStatus(**each["engines"]))
        for each in told
        if each.get("engines")
    }
