"""The screen for three in the morning: is anything wrong, since when, what holds it, what to do; then every part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

if TYPE_CHECKING:
    from headgate.console.app import Console


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the screen."""

    @app.get("/")
    async def now_page(request: Request) -> HTMLResponse:
        await console.sources.fresh()
        if (kept := console.pages.cached(request)) is not None:
            return kept
        return console.pages.keep(request, console.page(request, "now.html"))
