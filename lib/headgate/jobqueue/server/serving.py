"""Serves one job queue over HTTP, from the opening of its database to the last answer."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import uvicorn

from headgate.core import SystemClock
from headgate.core.errors import HeadgateError
from headgate.jobqueue.authority import Authority
from headgate.jobqueue.desk import Desk
from headgate.jobqueue.server.app import build_app, new_service
from headgate.jobqueue.server.background import periodic_statistics
from headgate.jobqueue.server.binding import bound, check_binding, is_loopback, url_of
from headgate.jobqueue.server.health_checks import HealthChecks
from headgate.jobqueue.server.importing import Imports
from headgate.jobqueue.server.protocol import BoundedProtocol
from headgate.jobqueue.server.service import Service
from headgate.jobqueue.server.settings import ServerSettings
from headgate.jobqueue.stores import open_store
from headgate.jobqueue.token_rate import Rate
from headgate.jobqueue.token_stores import TokenStore, open_tokens

_log = logging.getLogger("headgate.jobqueue")

_KEEP_ALIVE_S: Final = 75
"""Longer than the time between two heartbeats: a worker keeps its connection."""

_SWITCH_S: Final = 0.0005
"""How long the desk's thread and the event loop leave each other waiting for the interpreter while both have work. With
Python's 5 ms each commit waits that long for the loop and each answer for the desk: a third of the jobs per second."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that listens.

    Attributes:
        url: without a slash at its end.
        service: what its routes work with.
    """

    url: str
    service: Service


@asynccontextmanager
async def running_server(settings: ServerSettings, imports: Imports | None = None) -> AsyncIterator[RunningServer]:
    """Serve the job queue in the running event loop for as long as the context is open.

    Leaving it lets nobody stand in line any more, answers what was begun, and closes the database.

    Args:
        settings: what the server goes by.
        imports: jobs and policy servers to take in before anybody can ask for them.

    Raises:
        JobConflictError: if a job to import is there with other contents.
        InvalidSettingError: if the address cannot be bound, or needs a token and there is none.
        StoreInUseError: if another process serves this database.
        StoreFailedError: if the database cannot be used.
    """
    clock = SystemClock()
    with contextlib.ExitStack() as stack:
        store = open_store(settings.database)
        desk = Desk(store, clock, _owner())
        desk.open()
        stack.callback(desk.close)
        if imports is not None:
            await desk.do(imports.into)
        tokens = open_tokens(settings.database)
        check_binding(settings.host, _usable(tokens))
        rate = Rate(settings.rate_per_s, settings.rate_burst)
        authority = Authority(tokens, needs_no_tokens=is_loopback(settings.host), rate=rate)
        stack.callback(authority.close)
        service = new_service(desk, store.reader, authority, settings, clock)
        stack.callback(service.listings.close)
        listener = stack.enter_context(contextlib.closing(bound(settings.host, settings.port)))
        async with _listening(service, listener):
            yield RunningServer(url_of(listener), service)


@asynccontextmanager
async def _listening(service: Service, listener: socket.socket) -> AsyncIterator[None]:
    settings = service.settings
    config = uvicorn.Config(
        build_app(service),
        http=BoundedProtocol,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(settings.stop_s)),
        backlog=4096,
        limit_concurrency=settings.most_connections,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="jobqueue-http")
    background = [
        _watched(HealthChecks(service).run(), "jobqueue-health-checks"),
        _watched(periodic_statistics(service), "jobqueue-statistics"),
    ]
    try:
        yield
    finally:
        for task in background:
            task.cancel()
        service.long_polls.close()
        server.should_exit = True
        await asyncio.gather(serving, *background, return_exceptions=True)


def _watched(running: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Start what runs beside the server; if it ends by itself, the log says why."""
    task = asyncio.create_task(running, name=name)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s has ended", task.get_name(), exc_info=error)


class _Server(uvicorn.Server):
    """A server that leaves signals to the process that runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(settings: ServerSettings, announce: Callable[[RunningServer], None], imports: Imports | None = None) -> None:
    """Serve the job queue until SIGTERM or SIGINT.

    Args:
        settings: what the server goes by.
        announce: called once it listens.
        imports: see `running_server`.

    Raises:
        HeadgateError: as `running_server`.
    """
    allow_many_connections()
    sys.setswitchinterval(_SWITCH_S)
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - not on Windows

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_until_told(settings, announce, imports))


async def _until_told(
    settings: ServerSettings, announce: Callable[[RunningServer], None], imports: Imports | None
) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    async with running_server(settings, imports) as server:
        announce(server)
        await told.wait()
        _log.info("Stopping: what is in flight is answered first")


def allow_many_connections() -> None:
    """Raise this process's limit on open files as far as it may: each long poll is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _usable(tokens: TokenStore) -> int:
    try:
        now = time.time()
        return sum(token.ended_by(now) is None for token in tokens.tokens())
    except HeadgateError:
        tokens.close()
        raise


def _owner() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown user"
    return f"{user}@{socket.gethostname()} process {os.getpid()}"
