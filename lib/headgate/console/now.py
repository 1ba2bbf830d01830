"""The screen for whoever is on call: is anything wrong, since when, what holds it, what to do; then every part."""

from __future__ import annotations

import time
from typing import Any, Final

from fastapi import FastAPI
from starlette.datastructures import QueryParams

from headgate.console.findings import Findings
from headgate.console.gates import trouble_of
from headgate.console.pages import Console

_MOST_ENDPOINTS: Final = 25
"""Rows of the table on this screen; Gates has all."""


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the screen."""
    findings = Findings(console.sources)

    def values(_: QueryParams) -> dict[str, Any]:
        runs = [source for source in console.sources.of("run") if source.is_up]
        keys = sorted(
            ((one, key) for one in runs for key in one.said["requests"]), key=lambda pair: trouble_of(pair[1])
        )
        return {
            "findings": findings.now(time.time()),
            "endpoints": keys[:_MOST_ENDPOINTS],
            "endpoints_left": max(0, len(keys) - _MOST_ENDPOINTS),
        }

    console.add_live(app, "/", values)
