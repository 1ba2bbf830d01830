"""A pool of this process, shown as it changes: a table on a terminal, with log lines above it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from rich.live import Live

from headgate.cli.elastic.status_table import status_view
from headgate.cli.output import console
from headgate.core import SystemClock
from headgate.core.events import Emit
from headgate.elastic.gateway import GatewayStatus
from headgate.telemetry import EventStream, LogSink, safe_text, setup_logging

_EVERY_S: Final = 0.5


def logged() -> Emit:
    """Return what writes events to the log."""
    return EventStream(SystemClock(), [LogSink()]).emit


@asynccontextmanager
async def followed(status: Callable[[], GatewayStatus], *, as_json: bool = False) -> AsyncIterator[None]:
    """Show a pool while the context lasts: log lines, and where stderr is a terminal a table below them.

    Args:
        status: tells how it stands.
        as_json: log lines are JSON, and there is no table.
    """
    setup_logging(json=as_json)
    if as_json or not sys.stderr.isatty():
        yield
        return
    live = Live(
        status_view(status()),
        console=console(stderr=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    )
    with live:
        setup_logging()  # to what stderr is now: lines come above the table
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(_show(live, status))
            try:
                yield
            finally:
                showing.cancel()
    setup_logging()


def announce(line: str) -> None:
    """Write a line to standard output at once; beside a table that is followed, it comes above it."""
    # Not by a console of its own, which would write where the table is drawn.
    sys.stdout.write(f"{safe_text(line)}\n")
    sys.stdout.flush()


async def _show(live: Live, status: Callable[[], GatewayStatus]) -> None:
    """Draw it anew again and again: times go on where nothing else changes."""
    while True:
        live.update(status_view(status()), refresh=True)
        await asyncio.sleep(_EVERY_S)
