"""A job queue at a glance: as tables, as a document, and as tables that are refreshed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli.output import console, drawn_table, print_json, print_table
from headgate.jobqueue.job import JobState
from headgate.jobqueue.wire import StatisticsOut
from headgate.jobqueue.worker import QueueUnreachableError, SyncJobQueueClient
from headgate.telemetry import safe_text

_EVERY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Rows:
    """A table before it is drawn; columns at the positions `right` are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]
    right: range


def show_status(statistics: StatisticsOut, *, as_json: bool) -> None:
    """Print a queue's figures."""
    if as_json:
        print_json(statistics.model_dump(mode="json"))
        return
    for table in _tables(statistics):
        print_table(table.title, table.columns, table.rows, right=table.right)


def watch_status(client: SyncJobQueueClient) -> None:
    """Show a queue's figures, refreshed until Ctrl-C."""
    with Live(console=console(), refresh_per_second=4) as live, contextlib.suppress(KeyboardInterrupt):
        while True:
            try:
                live.update(Group(*(_drawn(table) for table in _tables(client.statistics()))))
            except QueueUnreachableError as error:
                live.update(Text(safe_text(str(error)), overflow="fold"))
            time.sleep(_EVERY_S)


def _tables(statistics: StatisticsOut) -> list[_Rows]:
    states = tuple(state.value for state in JobState)
    counts = tuple(statistics.jobs.get(state, 0) for state in JobState)
    whole = _Rows(
        "jobs",
        (*states, "workers", "waiting claims"),
        [(*counts, statistics.workers, statistics.waiting_claims)],
        range(6),
    )
    lanes = _Rows(
        "jobs by team and task",
        ("team", "task", "pool", *states, "note"),
        [
            (
                lane.team,
                lane.task,
                lane.pool or None,
                lane.pending,
                lane.in_progress,
                lane.done,
                lane.dead,
                "" if lane.is_served or not lane.pending else "no open server serves it",
            )
            for lane in statistics.lanes
        ],
        range(3, 7),
    )
    pools = _Rows(
        "policy servers by pool",
        ("pool", "servers", "busy", "free", "draining", "down", "waiting jobs"),
        [(p.pool, p.servers, p.busy, p.free, p.draining, p.down, p.waiting) for p in statistics.pools],
        range(1, 7),
    )
    return [table for table in (whole, lanes, pools) if table.rows]


def _drawn(rows: _Rows) -> Table:
    return drawn_table(rows.title, rows.columns, rows.rows, right=rows.right)
