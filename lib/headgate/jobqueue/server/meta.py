"""Routes about the server itself: its page, its health, its metrics and its description."""

from __future__ import annotations

import asyncio
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic_core import to_json

from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.job import JobState
from headgate.jobqueue.records import JobQuery
from headgate.jobqueue.server.answers import Answer, ok
from headgate.jobqueue.server.documents import HealthOut
from headgate.jobqueue.server.metrics import queue_gauges
from headgate.jobqueue.server.route import Call
from headgate.jobqueue.server.v1_servers import resources_of, statistics_of
from headgate.jobqueue.wire import JobOut

_HEALTH_S: Final = 5.0
"""A writer that has not answered after this does not work, whatever it is doing."""

_DEAD_READ: Final = 1000
_DEAD_SHOWN: Final = 20


async def health(call: Call) -> Answer[HealthOut]:
    """Say whether the server works: the writer answers, and its last transaction went through."""
    service = call.service
    uptime_s = round(service.clock.monotonic() - service.started_at, 1)
    try:
        async with asyncio.timeout(_HEALTH_S):
            jobs = await call.look(lambda ledger, _: ledger.totals())
    except (TimeoutError, StoreFailedError):
        failing = HealthOut(status="failing", database="failing", uptime_s=uptime_s, jobs={})
        return Answer(to_json(failing), 503, media_type="application/json")
    return ok(HealthOut(status="healthy", database="open", uptime_s=uptime_s, jobs=jobs))


async def metrics(call: Call) -> Answer[bytes]:
    """Return figures for Prometheus."""
    now = await call.look(lambda ledger, _: queue_gauges(ledger))
    text = call.service.metrics.text(now, len(call.service.long_polls))
    return Answer(text, media_type=CONTENT_TYPE_LATEST)


async def openapi(call: Call) -> Answer[bytes]:
    """Return the description of all routes."""
    return Answer(to_json(call.request.app.openapi()))


async def overview(call: Call) -> Answer[bytes]:
    """Return the page that shows the queue to people."""
    from headgate.jobqueue.server.page import page_html, page_policy  # noqa: PLC0415 - jinja2 takes its time

    teams = call.caller.teams
    statistics, servers = await call.look(
        lambda ledger, _: (statistics_of(ledger, teams, call.caller.pools), resources_of(ledger, call.caller))
    )
    query = JobQuery(JobState.DEAD, teams, limit=_DEAD_READ)
    dead = await call.service.listed(lambda reader: reader.jobs(query))
    latest = sorted(dead, key=lambda job: job.finished_at, reverse=True)[:_DEAD_SHOWN]
    shown = [JobOut.of(job) for job in latest]
    html = await asyncio.to_thread(page_html, statistics, servers, shown, call.service.clock.wall())
    return Answer(html.encode(), headers={"Content-Security-Policy": page_policy()}, media_type="text/html")
