"""What the server does by itself: a line of statistics every minute, in the legacy protocol's words."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.job import JobState
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.server.legacy_ledger import type_of
from headgate.jobqueue.server.service import Service

_log = logging.getLogger("headgate.jobqueue")


def statistics_line(ledger: Ledger) -> str:
    """Return the line of statistics; runs on the desk."""
    jobs = ledger.totals()
    servers: Counter[str] = Counter()
    busy: Counter[str] = Counter()
    for one in ledger.resources().values():
        servers[one.spec.pool] += 1
        busy[one.spec.pool] += not one.is_free
    used = {pool: f"{busy[pool]}/{servers[pool]} ({busy[pool] / servers[pool]:.1%})" for pool in sorted(servers)}
    running = Counter(type_of(job) for job in ledger.running())
    parts = (
        f"Jobs: {sum(jobs.values())}",
        f"Pending jobs: {jobs[JobState.PENDING]}",
        f"In progress: {jobs[JobState.IN_PROGRESS]}",
        f"Finished jobs: {jobs[JobState.DONE]}",
        f"Dead jobs: {jobs[JobState.DEAD]}",
        f"Resource pools: {len(servers)}",
        f"Resource counts: {dict(sorted(servers.items()))}",
        f"Resource utilization by resource type: {used}",
        f"In-progress jobs per resource type: {running}",
    )
    return " | ".join(parts)


async def periodic_statistics(service: Service) -> None:
    """Write a line of statistics every now and then, until cancelled."""
    every_s = service.settings.statistics_every_s
    while every_s:
        await asyncio.sleep(every_s)
        try:
            line = await service.desk.do(lambda ledger, _: statistics_line(ledger))
        except StoreFailedError as error:
            _log.warning("No statistics: %s", error.message)
        else:
            _log.info("%s", line)
