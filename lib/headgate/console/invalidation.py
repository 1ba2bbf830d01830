"""Has the samples of a list count no longer, or again: shown how many that are first, with a reason, and kept."""

from __future__ import annotations

import time
from typing import Any, Final

import polars as pl
from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse

from headgate.console.access import Steering, form_of, steerer_of
from headgate.console.pages import Console
from headgate.console.samples import Listing
from headgate.core.errors import HeadgateError
from headgate.run import follow_invalidation
from headgate.storage import Chosen, Invalidation

MOST_PAIRS: Final = 20


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the form."""
    records = console.records

    def shown(request: Request, listing: Listing, rows: pl.DataFrame, **further: Any) -> HTMLResponse:
        pairs = rows.group_by("model", "environment").len().sort("len", descending=True)
        values = {"error": None, "done": None, "fields": {}} | further
        return console.pages.page(
            request, "invalidate.html", listing=listing, count=rows.height, undo=listing.chosen.invalid is True,
            pairs=pairs.head(MOST_PAIRS).rows(), more=max(0, pairs.height - MOST_PAIRS), **values,
        )  # fmt: skip

    @app.get("/samples/invalidate", dependencies=[Depends(steerer_of)])
    async def form_page(request: Request) -> HTMLResponse:
        listing = Listing.of(request.query_params, time.time())
        return shown(request, listing, await records.rows(listing.chosen))

    @app.post("/samples/invalidate")
    async def invalidate(request: Request, viewer: Steering) -> HTMLResponse:
        fields = await form_of(request, viewer)
        listing = Listing.of(request.query_params, time.time())
        rows = await records.rows(listing.chosen)
        if fields.get("count") != str(rows.height):
            error = f"The list has {rows.height:,} samples by now, not the {fields.get('count')} that you saw"
            return shown(request, listing, rows, error=error, fields=fields, status=409)
        if rows.is_empty():
            return shown(request, listing, rows, error="The list has no samples", fields=fields, status=422)
        try:
            what = Invalidation(
                narrowed(rows), fields.get("reason", ""), viewer.name, frozenset(rows["task_id"]),
                resample=fields.get("resample") == "yes", undo=listing.chosen.invalid is True,
            )  # fmt: skip
            done = await records.store.invalidate(what, time.time())
            await follow_invalidation(console.settings, records.store, what, done, time.time())
        except HeadgateError as error:
            return shown(request, listing, rows, error=error.message, fields=fields, status=error.http_status)
        await records.index(now=True)
        return shown(request, listing, rows, done=done)


def narrowed(rows: pl.DataFrame) -> Chosen:
    """Return what chooses at least these rows, and few parts of the store beside theirs."""
    return Chosen(
        models=frozenset(rows["model"].unique()),
        environments=frozenset(rows["environment"].unique()),
        since=float(rows["finished_at"].min() or 0.0),  # type: ignore[arg-type]  # a column of floats
    )
