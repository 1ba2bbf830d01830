"""The screen for three in the morning: is anything wrong, since when, what holds it, what to do; then every part."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from headgate.console.findings import Findings
from headgate.console.gates import endpoints_of, trouble_of
from headgate.console.sources import Source

if TYPE_CHECKING:
    from headgate.console.app import Console

_MOST_ENDPOINTS: Final = 25
"""In a table at a glance; Gates has all."""


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the screen."""
    findings = Findings(console.sources)

    @app.get("/")
    async def now_page(request: Request) -> HTMLResponse:
        def values() -> dict[str, Any]:
            keys = [
                (source, key)
                for source in console.sources.of("run")
                if source.is_up
                for key in source.said.get("requests", ())
            ]
            keys.sort(key=lambda pair: trouble_of(pair[1]))
            return {
                "findings": findings.now(time.time()),
                "runs": [(source, *_at_a_glance(source)) for source in console.sources.of("run")],
                "endpoints": endpoints_of(keys[:_MOST_ENDPOINTS]),
                "endpoints_left": max(0, len(keys) - _MOST_ENDPOINTS),
            }

        return await console.live_page(request, "now.html", values)


def _at_a_glance(source: Source) -> tuple[int, float, int]:
    """Return a campaign's paused models, its largest lag in seconds, and its errors of the last hour."""
    models = source.said.get("models", ())
    lag = max((pair["lag_s"] for pair in source.said.get("pairs", ())), default=0.0)
    return sum(one["is_paused"] for one in models), lag, sum(one["errors_1h"] for one in models)
