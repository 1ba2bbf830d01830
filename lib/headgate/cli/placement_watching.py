"""`headgate placement status|why|events`: looking at what is placed."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
from cyclopts import Parameter

from headgate.cli.output import AsJson, print_json, print_table
from headgate.cli.placement_joining import Address, joined, say
from headgate.cli.placement_status import show_placement, watch_placement
from headgate.core.errors import InvalidInputError
from headgate.telemetry import json_safe

if TYPE_CHECKING:
    from headgate.placement.cluster.client import Placement
    from headgate.placement.usage import PoolUsage

_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


def status(
    *,
    watch: Annotated[bool, Parameter(negative="", help="Refresh every second until Ctrl-C.")] = False,
    every: Annotated[bool, Parameter(name="--all", negative="", help="Include requests that have ended.")] = False,
    address: Address = None,
    as_json: AsJson = False,
) -> int:
    """Show pools with the quota in use, placement groups by state, and the work that runs or waits."""
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
