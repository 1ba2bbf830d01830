"""An elastic pool at a glance: its workers, its load, and what it has served, as a live table."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli.output import console, counted, drawn_table
from headgate.core import SystemClock
from headgate.core.errors import HeadgateError
from headgate.core.events import Emit
from headgate.elastic import GatewayUnreachableError, WorkerState
from headgate.elastic.gateway import GatewayClient, GatewayStatus
from headgate.elastic.service import PoolStatus, Spread, WorkerView
from headgate.telemetry import EventStream, LogSink, safe_text, setup_logging

_EVERY_S: Final = 1.0
_PAUSE_S: Final = 0.2
"""Seconds between two redraws of a pool that changes all the time."""

_FRESH_S: Final = 0.5
"""A reading older than this, in seconds, may differ from the pool's count now."""

_COLOURS: Final = {
    WorkerState.ACTIVE: "green",
    WorkerState.STARTING: "cyan",
    WorkerState.DRAINING: "yellow",
    WorkerState.INACTIVE: "dim",
    WorkerState.FAILED: "bold red",
}
_AWAKE: Final = (WorkerState.ACTIVE, WorkerState.STARTING)


def status_document(status: GatewayStatus) -> Any:
    """Return a status as `--json` prints it."""
    return orjson.loads(status.as_json())


def status_view(status: GatewayStatus) -> Group:
    """Return a status as tables for people."""
    pool = status.pool
    return Group(_workers(pool, _title(status)), _facts(status))


def watch_pool(client: GatewayClient) -> None:
    """Redraw a pool whenever it changes, until Ctrl-C; an outage is shown until it is over.

    Raises:
        GatewayUnreachableError: no gateway answers the first time.
    """
    first = client.status()
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(status_view(first), console=console(), auto_refresh=False) as live,
    ):
        for told in _looks(client):
            live.update(_outage(told) if isinstance(told, HeadgateError) else status_view(told), refresh=True)


def _looks(client: GatewayClient) -> Iterator[GatewayStatus | GatewayUnreachableError]:
    """Yield each status of the pool, and the outages in between."""
    while True:
        try:
            for status in client.watch(_EVERY_S):
                yield status
                time.sleep(_PAUSE_S)
        except GatewayUnreachableError as error:
            yield error
            time.sleep(_EVERY_S)


def _outage(error: HeadgateError) -> Text:
    return Text(safe_text(f"{error.message}. It is asked again until it answers."), overflow="fold")


def _title(status: GatewayStatus) -> str:
    pool = status.pool
    awake = sum(worker.state in _AWAKE and worker.is_leased for worker in pool.workers)
    of_models = f" of {', '.join(pool.models)}" if pool.models else ""
    stopping = " (is being stopped)" if status.is_draining or not pool.is_open else ""
    policy = pool.policy if pool.is_elastic else "not elastic: workers stay as they are"
    return f"{pool.name}{of_models}, {policy}: {awake} of {len(pool.workers)} workers awake{stopping}"


def _workers(pool: PoolStatus, title: str) -> Table:
    """Return the table of workers; columns that are empty for all of them are left out."""
    told = {
        "worker": [_short(worker) for worker in pool.workers],
        "engine": [worker.kind for worker in pool.workers],
        "state": [_state(worker) for worker in pool.workers],
        "for": [span(worker.since_s) for worker in pool.workers],
        "requests": [f"{worker.requests} of {worker.slots}" for worker in pool.workers],
        "in use": [f"{worker.share:.0%}" for worker in pool.workers],
        "it counts": [_by_engine(worker) for worker in pool.workers],
        "kept": [worker.pin or "" for worker in pool.workers],
        "failures": [str(worker.failures or "") for worker in pool.workers],
    }
    told = {name: cells for name, cells in told.items() if any(cells)}
    right = [number for number, name in enumerate(told) if name in {"for", "requests", "in use", "failures"}]
    table = drawn_table(title, tuple(told), zip(*told.values(), strict=True), right=right)
    for row, worker in zip(table.rows, pool.workers, strict=True):
        row.style = _COLOURS[worker.state]
    return table


def _state(worker: WorkerView) -> str:
    waits = worker.state is WorkerState.STARTING and not worker.is_leased
    stage = "waits for its place" if waits else worker.stage
    return str(worker.state) if stage is None else f"{worker.state} ({stage})"


def _by_engine(worker: WorkerView) -> str:
    """Return how many requests the engine itself counts, where it is awake and has been asked.

    A count that differs from the pool's may only be out of date, so its age is shown.
    """
    load = worker.load
    if load is None or load.is_asleep:
        return ""
    counted = f"{load.running}+{load.waiting}" if load.waiting else str(load.running)
    if worker.read_s is None or worker.read_s < _FRESH_S or load.running + load.waiting == worker.requests:
        return counted
    return f"{counted}, {span(worker.read_s)} ago"


def _short(worker: WorkerView) -> str:
    """Return a worker's name without `http://`; commands accept a part of the name."""
    return worker.worker_id.removeprefix("http://")


def _trouble(worker: WorkerView) -> str:
    lost = "it has to leave its place" if worker.is_lease_lost else ""
    again = f"tried again in {span(worker.retry_s)}" if worker.retry_s is not None else ""
    over = "it has recovered" if worker.last_error and not worker.failures else ""
    said = "; ".join(part for part in (worker.last_error, over, lost, again) if part)
    return f"{_short(worker)}: {said}" if said else ""


def _facts(status: GatewayStatus) -> Table:
    pool, admission = status.pool, status.admission
    demand, counts, times = pool.demand, pool.counts, pool.times
    oldest = f", the first for {span(demand.oldest_wait_s)}" if demand.waiting else ""
    facts = {
        "wanted": f"{counted(pool.desired.workers, 'worker')}: {pool.desired.because}",
        "load": f"{demand.worth:.2f} workers' worth: {demand.running} run, {demand.waiting} wait{oldest}",
        "gateway": f"{admission.in_flight} of {admission.limit} requests in flight, {admission.waiting} wait outside",
        "so far": f"{counted(counts.arrived, 'request')}: {counts.served:,} served, {counts.lost:,} lost, "
        f"{counts.handed_over:,} handed over, {counts.refused:,} refused, {counts.withdrawn:,} withdrawn",
        "on average": f"waiting {_mean(times.wait)}, first byte {_mean(times.first_byte)}, answer "
        f"{_mean(times.answer)}, start of a worker {_mean(times.start)}, drain {_mean(times.drain)}",
        "cost": f"{counts.awake_s:,.0f} worker-seconds awake; {counted(times.start.count, 'start')}, "
        f"{counted(times.drain.count, 'drain')}, {counted(sum(counts.failures.values()), 'failure')}",
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    troubles = [trouble for worker in pool.workers if (trouble := _trouble(worker))]
    rows = [*facts.items(), *zip(["last error", *[""] * len(troubles)], troubles, strict=False)]
    for name, fact in rows:
        table.add_row(name, Text(safe_text(fact)))
    return table


def span(seconds: float) -> str:
    """Return a length of time in one unit: `0.25 s`, `12 s`, `4 min`, `3 h`."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _mean(spread: Spread) -> str:
    return span(spread.total_s / spread.count) if spread.count else "–"


_REDRAWN_S: Final = 0.5


def logged() -> Emit:
    """Return a function that writes events to the log."""
    return EventStream(SystemClock(), [LogSink()]).emit


@asynccontextmanager
async def followed(status: Callable[[], GatewayStatus], *, as_json: bool = False) -> AsyncIterator[None]:
    """Show a pool while the context lasts: log lines, and where stderr is a terminal a table below them.

    With `as_json`, log lines are JSON, and there is no table.
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
        setup_logging()  # stderr has been replaced: log lines appear above the table
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(_show(live, status))
            try:
                yield
            finally:
                showing.cancel()
    setup_logging()


def announce(line: str) -> None:
    """Write a line to standard output at once; it appears above a live table."""
    # Not with another console, which would write over the table.
    sys.stdout.write(f"{safe_text(line)}\n")
    sys.stdout.flush()


async def _show(live: Live, status: Callable[[], GatewayStatus]) -> None:
    """Redraw the table periodically: durations grow even if nothing else changes."""
    while True:
        live.update(status_view(status()), refresh=True)
        await asyncio.sleep(_REDRAWN_S)
