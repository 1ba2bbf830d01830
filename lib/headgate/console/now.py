"""The screen for three in the morning: is anything wrong, since when, what holds it, what to do; then every part."""

from __future__ import annotations

import time
from typing import Any, Final

from fastapi import FastAPI
from starlette.datastructures import QueryParams

from headgate.console.findings import Findings
from headgate.console.gates import trouble_of
from headgate.console.pages import Console
from headgate.console.sources import Source

_MOST_ENDPOINTS: Final = 25
"""In a table at a glance; Gates has all."""


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the screen."""
    findings = Findings(console.sources)

    def values(_: QueryParams) -> dict[str, Any]:
        runs = console.sources.of("run")
        keys = [(source, key) for source in runs if source.is_up for key in source.said.get("requests", ())]
        keys.sort(key=lambda pair: trouble_of(pair[1]))
        return {
            "findings": findings.now(time.time()),
            "runs": [(source, *_at_a_glance(source)) for source in runs],
            "endpoints": keys[:_MOST_ENDPOINTS],
            "endpoints_left": max(0, len(keys) - _MOST_ENDPOINTS),
        }

    console.add_live(app, "/", values)


def _at_a_glance(source: Source) -> tuple[int, float, int]:
    """Return a campaign's paused models, its largest lag in seconds, and its errors of the last hour."""
    models = source.said.get("models", ())
    lag = max((pair["lag_s"] for pair in source.said.get("pairs", ())), default=0.0)
    return sum(one["is_paused"] for one in models), lag, sum(one["errors_1h"] for one in models)
