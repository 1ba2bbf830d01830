"""Has the conversations of a list scored again: first counted, then, on a second press, scored; one list at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field

from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse

from headgate.config import Settings
from headgate.console.access import Steering, form_of, steerer_of
from headgate.console.invalidation import narrowed
from headgate.console.pages import Console
from headgate.console.records import Records
from headgate.console.samples import Listing
from headgate.core.errors import HeadgateError
from headgate.run import Rescored, Rescoring, rescore
from headgate.storage import Chosen

_log = logging.getLogger("headgate.console")


@dataclass(slots=True)
class _Job:
    """One call of `rescore` that was started here.

    Attributes:
        what: is scored.
        is_preview: whether it only counts.
        looked: samples that it has looked at.
        total: samples that it looks at.
        done: what came of it, None while it goes on, and where it failed.
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
        """Whether it goes on."""
        return self.done is None and not self.problem

    async def run(self, settings: Settings, records: Records) -> None:
        """Do it, and keep what came of it."""

        def show(looked: int, total: int) -> None:
            self.looked, self.total = looked, total

        try:
            self.done = await rescore(
                settings, records.store, self.what, dry_run=self.is_preview, stop=self.stop, on_progress=show
            )
            await records.index(now=True)
        except HeadgateError as error:
            self.problem = error.message
        except Exception:  # noqa: BLE001 - whatever fails is reported here, and the console goes on
            _log.exception("Samples could not be scored again")
            self.problem = "it failed; the console's log says why"


def add_routes(app: FastAPI, console: Console) -> None:
    """Add the routes of the form."""
    records = console.records
    job: _Job | None = None

    async def shown(request: Request, listing: Listing, *, error: str = "", status: int = 200) -> HTMLResponse:
        rows = await records.rows(listing.chosen)
        values = {"count": rows.height, "job": job, "error": error}
        return console.pages.page(request, "rescore.html", listing=listing, status=status, **values)

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
            error = f"{job.what.by} has samples scored already; this waits until that has ended"
            return await shown(request, listing, error=error, status=409)
        if verb == "score" and job is not None and fields.get("started_at") == repr(job.started_at):
            job = _Job(job.what, is_preview=False)  # what was counted, whatever the list has by now
        elif verb == "count":
            rows = await records.rows(listing.chosen)
            what = Rescoring(
                narrowed(rows) if rows.height else Chosen(), fields.get("reason", ""), viewer.name,
                frozenset(rows["task_id"]), scorer=fields.get("scorer", "").strip(),
            )  # fmt: skip
            job = _Job(what, is_preview=True)
        else:
            error = "Somebody else has counted another list meanwhile, so nothing was scored"
            return await shown(request, listing, error=error, status=409)
        records.keep_going(job.run(console.settings, records))
        await asyncio.sleep(0.3)  # few samples are counted by then
        return await shown(request, listing)
