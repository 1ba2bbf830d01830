"""Placement at a glance: pools, groups, and work, as tables and as tables that follow it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli.output import console, counted, drawn_table, print_json
from headgate.core.errors import HeadgateError
from headgate.telemetry import safe_text

Document = Mapping[str, Any]
"""What `headgate placement status --json` prints."""

SHOWN_REQUESTS: Final = 50
"""In a table; `--json` has all."""

_EVERY_S: Final = 1.0
_ENDED: Final = frozenset({"done", "failed", "withdrawn"})
_ORDER: Final = ("running", "stopping", "placing", "clearing", "waiting", "failed", "withdrawn", "done")


@dataclass(frozen=True, slots=True)
class _Rows:
    """A table before it is drawn; columns at the positions `right` are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]
    right: tuple[int, ...] = ()


def show_placement(document: Document, *, as_json: bool, every: bool) -> None:
    """Print what there is."""
    if as_json:
        print_json(document)
        return
    for table in _tables(document, every=every):
        console().print(_drawn(table))


def watch_placement(look: Callable[[], Document], *, every: bool) -> None:
    """Show it anew, again and again, until Ctrl-C; an outage is shown and waited for."""
    with Live(console=console(), refresh_per_second=4) as live, contextlib.suppress(KeyboardInterrupt):
        while True:
            try:
                live.update(Group(*(_drawn(table) for table in _tables(look(), every=every))))
            except HeadgateError as error:
                live.update(Text(safe_text(error.message), overflow="fold"))
            time.sleep(_EVERY_S)


def _tables(document: Document, *, every: bool) -> list[_Rows]:
    pools, groups, requests = document["pools"], document["groups"], document["requests"]
    shown = [one for one in requests if every or one["stage"] not in _ENDED]
    shown.sort(key=lambda one: (_ORDER.index(one["stage"]), -one["priority"], one["submitted_at"]))
    left_out = f", the first {SHOWN_REQUESTS}" if len(shown) > SHOWN_REQUESTS else ""
    return [
        _Rows(
            f"{counted(len(pools), 'pool')} on {document['cluster']}",
            ("pool", "quota", "in use", "by", "groups", "free", "held", "reserved", "waiting", "running"),
            [_pool_row(pool, groups, requests) for pool in pools],
            (4, 5, 6, 8, 9),
        ),
        *([_not_given_rows(pools)] if any(pool["not_given"] for pool in pools) else []),
        _Rows(
            counted(len(document["nodes"]), "node"),
            ("node", "has", "used by others"),
            [(one["node_id"][:12], one["has"], one["taken_by_others"]) for one in document["nodes"]],
        ),
        _Rows(
            counted(len(groups), "placement group"),
            ("group", "kind", "state", "size", "nodes", "holder", "uses"),
            [_group_row(one) for one in groups],
            (4, 6),
        ),
        _Rows(
            counted(len(shown), "request") + left_out,
            ("request", "pool", "priority", "stage", "group", "starts", "stopped", "labels", "note"),
            [_request_row(one) for one in shown[:SHOWN_REQUESTS]],
            (2, 5, 6),
        ),
    ]


def _pool_row(pool: Document, groups: Sequence[Document], requests: Sequence[Document]) -> tuple[object, ...]:
    theirs = [group for group in groups if group["pool"] == pool["name"]]
    states = [group["state"] for group in theirs]
    stages = [one["stage"] for one in requests if one["pool"] == pool["name"]]
    there = sum(group["reserved"] for group in theirs)
    by = [f"{kind} {held}" for kind, held in pool["in_use_by"].items() if held != "nothing"]
    return (
        pool["name"],
        pool["quota"],
        pool["in_use"],
        "; ".join(by),
        len(theirs),
        states.count("free"),
        states.count("held"),
        f"{there} of {len(pool['reserved'])}",
        stages.count("waiting"),
        stages.count("running"),
    )


def _not_given_rows(pools: Sequence[Document]) -> _Rows:
    told = [(pool["name"], each) for pool in pools for each in pool["not_given"]]
    rows = [(each["request"], pool, ", ".join(each["free_groups"]), each["because"]) for pool, each in told]
    return _Rows("waiting beside free groups", ("request", "pool", "free", "not given because"), rows)


def _group_row(one: Document) -> tuple[object, ...]:
    kind = "reserved" if one["reserved"] else "dynamic"
    return one["group_id"], kind, one["state"], one["size"], len(set(one["nodes"])), one["holder"], one["uses"]


def _request_row(one: Document) -> tuple[object, ...]:
    labels = ", ".join(f"{key}={value}" for key, value in one["labels"].items())
    return (
        one["request_id"],
        one["pool"],
        f"{one['priority']:g}",
        one["stage"],
        one["group_id"] or None,
        one["epoch"],
        one["preemptions"],
        labels,
        one["stop_reason"] or one["note"],
    )


def _drawn(rows: _Rows) -> Table:
    return drawn_table(rows.title, rows.columns, rows.rows, right=rows.right)
