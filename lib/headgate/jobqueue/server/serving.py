"""Serves one job queue over HTTP, from opening its database to the last answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from headgate.core import SystemClock
from headgate.core.audit import record_change
from headgate.core.events import Emit
from headgate.core.tasks import cancelled
from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.generator.exchange import Imports
from headgate.jobqueue.job import JobState
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.names import user_name
from headgate.jobqueue.server.app import build_app
from headgate.jobqueue.server.health_checks import HealthChecks
from headgate.jobqueue.server.legacy import type_of
from headgate.jobqueue.server.service import Service
from headgate.jobqueue.server.settings import ServerSettings
from headgate.jobqueue.stores import open_store
from headgate.jobqueue.writer import LedgerWriter
from headgate.net import event_loop
from headgate.net.asgi import serving
from headgate.net.authority import Authority, Rate
from headgate.net.hosts import is_loopback
from headgate.net.listener import allow_many_connections, bound, url_of
from headgate.net.refusals import check_binding
from headgate.net.tls import server_context
from headgate.net.token_stores import open_tokens

_log = logging.getLogger("headgate.jobqueue")

_SWITCH_S: Final = 0.0005
"""How long the writer's thread and the event loop leave each other waiting for the interpreter while both have work.
With Python's 5 ms each commit waits that long for the loop and each answer for the writer: a third of the jobs per
second."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that listens."""

    url: str
    service: Service


@asynccontextmanager
async def running_server(
    settings: ServerSettings, imports: Imports | None = None, emit: Emit | None = None
) -> AsyncIterator[RunningServer]:
    """Serve the job queue in the running event loop for as long as the context is open.

    Leaving it ends all waiting in line, finishes requests in progress, and closes the database.

    Args:
        settings: the server's settings.
        imports: jobs and policy servers to add before the first request.
        emit: called with an event for each job that died, from a thread.

    Raises:
        JobConflictError: if a job to import exists with other contents.
        InvalidSettingError: if the address cannot be bound, or needs a token and there is none.
        StoreInUseError: if another process serves this database.
        StoreFailedError: if the database cannot be used.
    """
    clock = SystemClock()
    with contextlib.ExitStack() as stack:
        store = open_store(settings.database)
        owner = f"{user_name(os.environ) or 'unknown user'}@{socket.gethostname()} process {os.getpid()}"
        writer = LedgerWriter(store, clock, owner, emit)
        writer.open()
        stack.callback(writer.close)
        if imports is not None:
            taken = await writer.do(imports.into)
            after = f"new jobs: {taken.added}; policy servers: {len(imports.resources)}"
            record_change("jobqueue import", "files of --import", after=after)
        tokens = open_tokens(settings.database)
        rate = Rate(settings.rate_per_s, settings.rate_burst)
        authority = Authority(tokens, needs_no_tokens=is_loopback(settings.host), rate=rate)
        stack.callback(authority.close)
        now = time.time()
        check_binding(
            settings.host,
            "the job queue",
            is_guarded=any(token.ended_by(now) is None for token in tokens.tokens()),
            next_step="Create one with `headgate jobqueue token create NAME --scopes admin` and start the server "
            "again, or listen on 127.0.0.1.",
        )
        service = Service(writer, store.reader(), authority, settings, clock)
        stack.callback(service.close)
        tls = server_context(settings.tls_certificate, settings.tls_key)
        listener = stack.enter_context(contextlib.closing(bound(settings.host, settings.port)))
        served = serving(
            build_app(service), listener, name="jobqueue-http", most=settings.most_connections, stop_s=settings.stop_s,
            tls=tls,
        )  # fmt: skip
        async with served, _background_tasks(service):
            yield RunningServer(url_of(listener, tls), service)


@asynccontextmanager
async def _background_tasks(service: Service) -> AsyncIterator[None]:
    """Run the server's background tasks; leaving ends all waiting in line."""
    background = [
        _background(HealthChecks(service).run(), "jobqueue-health-checks"),
        _background(periodic_statistics(service), "jobqueue-statistics"),
        _background(signs_of_life(service), "jobqueue-signs-of-life"),
    ]
    try:
        yield
    finally:
        service.long_polls.close()
        await cancelled(*background)


def _background(running: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start a background task; if it ends by itself, the log says why."""
    task = asyncio.create_task(running, name=name)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s has ended", task.get_name(), exc_info=error)


def serve(
    settings: ServerSettings,
    announce: Callable[[RunningServer], None],
    imports: Imports | None = None,
    emit: Emit | None = None,
) -> None:
    """Serve the job queue until SIGTERM or SIGINT.

    Raises:
        HeadgateError: as `running_server`.
    """
    allow_many_connections()
    sys.setswitchinterval(_SWITCH_S)

    async def until_told() -> None:
        told = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, told.set)
        async with running_server(settings, imports, emit) as server:
            announce(server)
            await told.wait()
            _log.info("Stopping: requests in flight are answered first")

    event_loop.run(until_told())


_SIGN_S: Final = 0.5


def statistics_line(ledger: Ledger) -> str:
    """Return the line of statistics; runs on the writer."""
    jobs = ledger.totals()
    uses = [(spec.pool, one.is_free) for one in ledger.resources().values() for spec in one.specs]
    servers, busy = Counter(pool for pool, _ in uses), Counter(pool for pool, is_free in uses if not is_free)
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
    """Log a line of statistics at the interval of the settings, until cancelled."""
    every_s = service.settings.statistics_every_s
    while every_s:
        await asyncio.sleep(every_s)
        try:
            line = await service.writer.do(lambda ledger, _: statistics_line(ledger))
        except StoreFailedError as error:
            _log.warning("No statistics: %s", error.message)
        else:
            _log.info("%s", line)


async def signs_of_life(service: Service) -> None:
    """Tell the writer that this event loop is running, and so receives heartbeats, until cancelled."""
    while True:
        service.writer.hearing()
        await asyncio.sleep(_SIGN_S)
