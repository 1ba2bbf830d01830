"""`headgate placement status|why|events`: show what is placed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
from cyclopts import Parameter
from rich.console import Group
from rich.table import Table

from headgate.cli.live import watched
from headgate.cli.output import AsJson, console, counted, drawn_table, print_json, print_table, say
from headgate.cli.placement.ledger import Address, joined
from headgate.core.errors import InvalidInputError
from headgate.telemetry import event_name, json_safe

if TYPE_CHECKING:
    from headgate.placement import Placement

Document = Mapping[str, Any]
"""What `headgate placement status --json` prints."""

_SHOWN_REQUESTS: Final = 50
"""Rows of a table; `--json` has all."""

_EVERY_S: Final = 1.0
_ENDED: Final = frozenset({"done", "failed", "withdrawn"})
_ORDER: Final = ("running", "stopping", "placing", "clearing", "waiting", "failed", "withdrawn", "done")


def _tables(document: Document, *, every: bool) -> list[Table]:
    pools, groups, requests = document["pools"], document["groups"], document["requests"]
    shown = [one for one in requests if every or one["stage"] not in _ENDED]
    shown.sort(key=lambda one: (_ORDER.index(one["stage"]), -one["priority"], one["submitted_at"]))
    left_out = f", the first {_SHOWN_REQUESTS}" if len(shown) > _SHOWN_REQUESTS else ""
    not_given = [
        (each["request"], pool["name"], ", ".join(each["free_groups"]), each["because"])
        for pool in pools
        for each in pool["not_given"]
    ]
    tables = [
        drawn_table(
            f"{counted(len(pools), 'pool')} on {document['cluster']}",
            ("pool", "quota", "in use", "by", "groups", "free", "held", "reserved", "waiting", "running"),
            [_pool_row(pool, groups, requests) for pool in pools],
            right=(4, 5, 6, 8, 9),
        ),
        drawn_table("waiting beside free groups", ("request", "pool", "free", "not given because"), not_given),
        drawn_table(
            counted(len(document["nodes"]), "node"),
            ("node", "has", "used by others"),
            [(one["node_id"][:12], one["has"], one["taken_by_others"]) for one in document["nodes"]],
        ),
        drawn_table(
            counted(len(groups), "placement group"),
            ("group", "kind", "state", "size", "nodes", "holder", "uses"),
            [
                (
                    one["group_id"],
                    "reserved" if one["reserved"] else "dynamic",
                    one["state"],
                    one["size"],
                    len(set(one["nodes"])),
                    one["holder"],
                    one["uses"],
                )
                for one in groups
            ],
            right=(4, 6),
        ),
        drawn_table(
            counted(len(shown), "request") + left_out,
            ("request", "pool", "priority", "stage", "group", "starts", "stopped", "labels", "note"),
            [
                (
                    one["request_id"],
                    one["pool"],
                    f"{one['priority']:g}",
                    one["stage"],
                    one["group_id"] or None,
                    one["epoch"],
                    one["preemptions"],
                    ", ".join(f"{key}={value}" for key, value in one["labels"].items()),
                    one["stop_reason"] or one["note"],
                )
                for one in shown[:_SHOWN_REQUESTS]
            ],
            right=(2, 5, 6),
        ),
    ]
    return [table for table in tables if not_given or table is not tables[1]]


def _pool_row(pool: Document, groups: Sequence[Document], requests: Sequence[Document]) -> tuple[object, ...]:
    theirs = [group for group in groups if group["pool"] == pool["name"]]
    states = [group["state"] for group in theirs]
    stages = [one["stage"] for one in requests if one["pool"] == pool["name"]]
    by = [f"{kind} {held}" for kind, held in pool["in_use_by"].items() if held != "nothing"]
    return (
        pool["name"],
        pool["quota"],
        pool["in_use"],
        "; ".join(by),
        len(theirs),
        states.count("free"),
        states.count("held"),
        f"{sum(group['reserved'] for group in theirs)} of {len(pool['reserved'])}",
        stages.count("waiting"),
        stages.count("running"),
    )


def status(
    *,
    watch: Annotated[bool, Parameter(help="Refresh every second until Ctrl-C.")] = False,
    every: Annotated[bool, Parameter(name="--all", help="Include requests that have ended.")] = False,
    address: Address = None,
    as_json: AsJson = False,
) -> int:
    """Show pools with the quota in use, placement groups by state, and running and waiting work."""
    if watch and as_json:
        raise InvalidInputError("--watch shows tables; it cannot be combined with --json")
    with joined(address) as placement:
        if watch:
            return watched(lambda: Group(*_tables(_document(placement), every=every)), _EVERY_S)
        document = _document(placement)
    if as_json:
        print_json(document)
        return 0
    for table in _tables(document, every=every):
        console().print(table)
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
            "event": event_name(one.event),
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
    pools = []
    for pool in placement.pools():
        if (used := usage.get(pool.name)) is None:
            continue
        quota = {
            "quota": str(used.quota),
            "in_use": str(used.in_use),
            "in_use_by": {kind: str(getattr(used, kind)) for kind in ("reserved", "dynamic", "lent")},
            "not_given": [
                {"request": each.request_id, "free_groups": list(each.group_ids), "because": each.says}
                for each in used.not_given
            ],
        }
        pools.append(_plain(pool) | quota)
    return {
        "cluster": placement.connection.address,
        "pools": pools,
        "nodes": [
            {"node_id": node.node_id, "has": str(node.total), "taken_by_others": str(node.foreign)}
            for node in placement.nodes()
        ],
        "groups": [_plain(group) for group in placement.groups()],
        "requests": [_plain(request) for request in placement.requests()],
        "preemptions": placement.stats()["total_preemptions"],
    }


def _plain(view: Any) -> dict[str, Any]:
    return {field.name: json_safe(getattr(view, field.name)) for field in dataclasses.fields(view)}
