"""Corrections of a list of stored samples: exclude them from every count, include them again, or score them again.

A first press shows how many samples are affected, a second one does it; one list at a time is scored.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse

from headgate.config import Settings
from headgate.console.access import Steering, form_of, steerer_of
from headgate.console.pages import Console
from headgate.console.records import Records
from headgate.console.samples import Listing
from headgate.core.errors import HeadgateError
from headgate.run import Rescored, Rescoring, follow_invalidation, rescore
from headgate.storage import Chosen, Invalidation

_log = logging.getLogger("headgate.console")

MOST_PAIRS: Final = 20


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the forms."""
    _add_invalidation(app, console)
    _add_rescoring(app, console)


def _add_invalidation(app: FastAPI, console: Console) -> None:
    records = console.records

    def shown(request: Request, listing: Listing, rows: pl.DataFrame, **further: Any) -> HTMLResponse:
        pairs = rows.group_by("model", "environment").len().sort("len", descending=True)
        values = {"error": None, "done": None, "fields": {}} | further
        return console.page(
            request, "invalidate.html", listing=listing, count=rows.height, until=rows["finished_at"].max(),
            undo=listing.chosen.invalid is True, pairs=pairs.head(MOST_PAIRS).rows(),
            more=max(0, pairs.height - MOST_PAIRS), **values,
        )  # fmt: skip

    @app.get("/samples/invalidate", dependencies=[Depends(steerer_of)])
    async def form_page(request: Request) -> HTMLResponse:
        listing = Listing.of(request.query_params, time.time())
        return shown(request, listing, await records.rows(listing.chosen))

    @app.post("/samples/invalidate")
    async def invalidate(request: Request, viewer: Steering) -> HTMLResponse:
        fields = await form_of(request, viewer)
        listing = Listing.of(request.query_params, time.time())
        every = await records.rows(listing.chosen)
        # Without samples that ended after the form was shown: a campaign may add to the list every second.
        rows = every.filter(pl.col("finished_at") <= pl.lit(fields.get("until", "")).cast(pl.Float64, strict=False))
        if fields.get("count") != str(rows.height):
            error = f"The list has {every.height:,} samples by now, not the {fields.get('count')} that you saw."
            return shown(request, listing, every, error=error, fields=fields, status=409)
        if rows.is_empty():
            return shown(request, listing, every, error="The list has no samples.", fields=fields, status=422)
        try:
            what = Invalidation(
                _narrowed(rows), fields.get("reason", ""), viewer.name, frozenset(rows["task_id"]),
                resample=fields.get("resample") == "yes", undo=listing.chosen.invalid is True,
            )  # fmt: skip
            done = await records.store.invalidate(what, time.time())
            await follow_invalidation(console.settings, records.store, what, done, time.time())
        except HeadgateError as error:
            return shown(request, listing, every, error=str(error), fields=fields, status=error.http_status)
        await records.index(now=True)
        return shown(request, listing, rows, done=done)


@dataclass(slots=True)
class _Job:
    """One call of `rescore` that was started here.

    Attributes:
        what: what is scored, and how.
        is_preview: whether it only counts.
        looked: samples processed so far.
        total: samples to process.
        done: its result; None while it runs, or if it failed.
        problem: why it failed.
    """

    what: Rescoring
    is_preview: bool
    started_at: float = field(default_factory=time.time)
    looked: int = 0
    total: int = 0
    done: Rescored | None = None
    problem: str = ""
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_running(self) -> bool:
        """Whether it still runs."""
        return self.done is None and not self.problem

    async def run(self, settings: Settings, records: Records) -> None:
        """Run it, and keep its result or problem."""

        def show(looked: int, total: int) -> None:
            self.looked, self.total = looked, total

        try:
            self.done = await rescore(
                settings, records.store, self.what, dry_run=self.is_preview, stop=self.stop, on_progress=show
            )
            await records.index(now=True)
        except HeadgateError as error:
            self.problem = str(error)
        except Exception:  # noqa: BLE001 - whatever fails is reported here, and the console goes on
            _log.exception("Samples could not be scored again")
            self.problem = "It failed; the console's log says why."


def _add_rescoring(app: FastAPI, console: Console) -> None:
    records = console.records
    job: _Job | None = None

    async def shown(request: Request, listing: Listing, *, error: str = "", status: int = 200) -> HTMLResponse:
        rows = await records.rows(listing.chosen)
        values = {"count": rows.height, "job": job, "error": error}
        return console.page(request, "rescore.html", listing=listing, status=status, **values)

    @app.get("/samples/rescore", dependencies=[Depends(steerer_of)])
    async def form_page(request: Request) -> HTMLResponse:
        return await shown(request, Listing.of(request.query_params, time.time()))

    @app.post("/samples/rescore")
    async def start(request: Request, viewer: Steering) -> HTMLResponse:
        nonlocal job
        fields, listing = await form_of(request, viewer), Listing.of(request.query_params, time.time())
        verb = fields.get("verb", "")
        if job is not None and job.is_running:
            if verb == "stop":
                job.stop.set()
                return await shown(request, listing)
            error = f"{job.what.by} is scoring samples already; press again when that has ended."
            return await shown(request, listing, error=error, status=409)
        if verb == "score" and job is not None and fields.get("started_at") == repr(job.started_at):
            job = _Job(job.what, is_preview=False)  # the samples that were counted, even if the list has changed
        elif verb == "count":
            rows = await records.rows(listing.chosen)
            what = Rescoring(
                _narrowed(rows) if rows.height else Chosen(), fields.get("reason", ""), viewer.name,
                frozenset(rows["task_id"]), scorer=fields.get("scorer", "").strip(),
            )  # fmt: skip
            job = _Job(what, is_preview=True)
        else:
            error = "Somebody else has counted another list meanwhile, so nothing was scored."
            return await shown(request, listing, error=error, status=409)
        records.keep_going(job.run(console.settings, records))
        await asyncio.sleep(0.3)  # a short list is counted by then
        return await shown(request, listing)


def _narrowed(rows: pl.DataFrame) -> Chosen:
    """Return a choice that includes these rows, and reads few parts of the store beside theirs."""
    return Chosen(
        models=frozenset(rows["model"].unique()),
        environments=frozenset(rows["environment"].unique()),
        since=float(rows["finished_at"].min() or 0.0),  # type: ignore[arg-type]  # a column of floats
    )
