"""`headgate placement status|why|events`: looking at what is placed."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
from cyclopts import Parameter
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli.output import AsJson, console, counted, drawn_table, print_json, print_table
from headgate.cli.placement.ledger import Address, joined, say
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.telemetry import json_safe, safe_text

if TYPE_CHECKING:
    from headgate.placement import Placement, PoolUsage

Document = Mapping[str, Any]
"""What `headgate placement status --json` prints."""

SHOWN_REQUESTS: Final = 50
"""In a table; `--json` has all."""

_EVERY_S: Final = 1.0
_ENDED: Final = frozenset({"done", "failed", "withdrawn"})
_ORDER: Final = ("running", "stopping", "placing", "clearing", "waiting", "failed", "withdrawn", "done")

_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


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


def status(
    *,
    watch: Annotated[bool, Parameter(negative="", help="Refresh every second until Ctrl-C.")] = False,
    every: Annotated[bool, Parameter(name="--all", negative="", help="Include requests that have ended.")] = False,
    address: Address = None,
    as_json: AsJson = False,
) -> int:
    """Show pools with the quota in use, placement groups by state, and running and waiting work."""
    if watch and as_json:
        raise InvalidInputError("--watch shows tables; it cannot be combined with --json")
    with joined(address) as placement:
        if watch:
            watch_placement(lambda: _document(placement), every=every)
        else:
            show_placement(_document(placement), as_json=as_json, every=every)
    return 0


def why(
    request: Annotated[str, Parameter(help="Id of the request, as `headgate placement status` shows it.")],
    *,
    address: Address = None,
    as_json: AsJson = False,
) -> int:
    """Say what a request waits for: its place in the queue, and why each way to place it failed."""
    with joined(address) as placement:
        found = placement.why(request)
    if as_json:
        print_json({"request": request, **json_safe(found)})
        return 0
    say(f"{request} is {found.stage}: {found.says}")
    if found.ahead:
        say(f"{found.ahead} ahead of it in the queue")
    if found.rejected:
        print_table("why it is not placed", ("step", "because"), [(one.step, one.says) for one in found.rejected])
    return 0


def events(
    output: Annotated[Path, Parameter(help="File for the events, one JSON object a line.")],
    *,
    address: Address = None,
) -> int:
    """Write the last 10 000 events to a file, which `headgate trace` draws."""
    with joined(address) as placement:
        told = placement.events()
    lines = (
        {
            "sequence": one.number,
            "wall": one.wall,
            "monotonic": one.wall,
            "run": "placement",
            "event": _WORD_START.sub("_", one.event).lower(),
            "fields": json_safe(one.fields),
        }
        for one in told
    )
    try:
        output.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    except OSError as error:
        raise InvalidInputError(f"{output} cannot be written: {error}") from error
    say(f"{len(told)} events in {output}")
    return 0


def _document(placement: Placement) -> dict[str, Any]:
    usage = {used.pool: used for used in placement.usage()}
    return {
        "cluster": placement.connection.address,
        "pools": [_plain(pool) | _quota(usage[pool.name]) for pool in placement.pools() if pool.name in usage],
        "nodes": [
            {"node_id": node.node_id, "has": str(node.total), "taken_by_others": str(node.foreign)}
            for node in placement.nodes()
        ],
        "groups": [_plain(group) for group in placement.groups()],
        "requests": [_plain(request) for request in placement.requests()],
        "preemptions": placement.stats()["total_preemptions"],
    }


def _quota(used: PoolUsage) -> dict[str, Any]:
    """Return a pool's quota, what is in use of it by which kind of group, and who waits beside free groups."""
    return {
        "quota": str(used.quota),
        "in_use": str(used.in_use),
        "in_use_by": {kind: str(getattr(used, kind)) for kind in ("reserved", "dynamic", "lent")},
        "not_given": [
            {"request": each.request_id, "free_groups": list(each.group_ids), "because": each.says}
            for each in used.not_given
        ],
    }


def _plain(view: Any) -> dict[str, Any]:
    return {field.name: json_safe(getattr(view, field.name)) for field in dataclasses.fields(view)}
