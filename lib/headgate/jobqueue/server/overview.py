"""The page at `/`: the queue for people, as far as their token lets them see it."""

from __future__ import annotations

import asyncio
from typing import Final

from headgate.jobqueue.job import JobState
from headgate.jobqueue.port import JobQuery
from headgate.jobqueue.server.answers import Answer
from headgate.jobqueue.server.route import Call
from headgate.jobqueue.server.v1_resources import resources_of, statistics_of
from headgate.jobqueue.wire import JobOut

_DEAD_READ: Final = 1000
_DEAD_SHOWN: Final = 20


async def overview(call: Call) -> Answer:
    """Return the page that shows the queue to people."""
    from headgate.jobqueue.server.page import PageData, page_html, page_policy  # noqa: PLC0415 - jinja2 takes its time

    teams = call.caller.teams
    statistics, servers = await call.look(
        lambda ledger, _: (statistics_of(ledger, teams), resources_of(ledger, call.caller))
    )
    query = JobQuery(JobState.DEAD, teams, limit=_DEAD_READ)
    dead = await call.service.listings.ask(lambda reader: reader.jobs(query))
    latest = sorted(dead, key=lambda job: job.finished_at, reverse=True)[:_DEAD_SHOWN]
    data = PageData(statistics, servers, [JobOut.of(job) for job in latest], call.service.clock.wall())
    html = await asyncio.to_thread(page_html, data)
    return Answer(200, html.encode(), {"Content-Security-Policy": page_policy()}, b"text/html; charset=utf-8")
