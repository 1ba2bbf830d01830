"""`headgate placement cancel|apply|close|audit`: steering what is placed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from headgate.cli.output import AsJson, print_json, print_table
from headgate.cli.placement_joining import Address, joined, say
from headgate.cli.placement_pools import PlacementFile, read_placement_file
from headgate.core.errors import InvalidInputError
from headgate.placement.scaling import homeless
from headgate.telemetry import json_safe

if TYPE_CHECKING:
    from headgate.placement.cluster.client import Placement

DIFFERENCES_STATUS: Final = 4
"""Exit status of an audit that leaves differences: a check did not hold."""

_NAMED: Final = frozenset({"name", "quota", "reserved"})

Scale = Annotated[bool, Parameter(negative="", help="Scale pools' CPU and memory down to what single nodes have.")]
Change = Annotated[bool, Parameter(negative="", help="Change pools that are open with other settings.")]


def cancel(
    *requests: Annotated[str, Parameter(help="Ids of requests.")], address: Address = None, as_json: AsJson = False
) -> int:
    """Cancel requests: waiting ones at once, running ones once they have stopped.

    If an id is unknown, nothing is cancelled.
    """
    if not requests:
        raise InvalidInputError("no request is given", next_step="`headgate placement status` lists them.")
    with joined(address) as placement:
        works = [placement.work(request) for request in requests]  # all are known before the first is taken out
        changed = {work.request_id: work.cancel("cancelled") for work in works}
    if as_json:
        print_json(changed)
    else:
        for request, was_there in changed.items():
            say(f"{request} is cancelled" if was_there else f"{request} had already ended")
    return 0


def apply(
    file: Annotated[Path, Parameter(help="YAML or JSON file of pools and preemption rules.")],
    *,
    scale: Scale = False,
    change: Change = False,
    address: Address = None,
) -> int:
    """Open or change the pools of a file, and apply its preemption rules."""
    written = read_placement_file(file)
    with joined(address) as placement:
        open_pools(placement, written, scale=scale, change=change)
    return 0


def close(pool: Annotated[str, Parameter(help="Name of the pool.")], *, address: Address = None) -> int:
    """Close a pool: stop its work, cancel its requests, and remove its placement groups."""
    with joined(address) as placement:
        placement.close_pool(pool)
    say(f"closing pool {pool}")
    return 0


def audit(
    *,
    fix: Annotated[bool, Parameter(negative="", help="Remove what the ledger does not know.")] = False,
    address: Address = None,
    as_json: AsJson = False,
) -> int:
    """Compare the ledger, its journal and Ray: groups, actors, and the resources that they hold.

    Exit status 4 if differences remain.
    """
    with joined(address) as placement:
        differences = placement.audit(fix=fix)
    if as_json:
        print_json(json_safe(list(differences)))
    elif not differences:
        say("ledger and Ray agree")
    else:
        rows = [(one.kind, one.name, one.says, "fixed" if one.fixed else "") for one in differences]
        print_table(f"{len(differences)} differences", ("what", "name", "difference", ""), rows)
    return DIFFERENCES_STATUS if any(not one.fixed for one in differences) else 0


def open_pools(placement: Placement, written: PlacementFile, *, scale: bool, change: bool) -> None:
    """Open the pools of a file, put its rules in force, and say what was done."""
    if written.rules is not None:
        placement.set_rules(written.rules)
        labels = ", ".join(sorted(written.rules.label_rules)) or "none"
        say(f"the preemption rules are applied (label rules: {labels})")
    for spec in written.pools:
        more = {name: getattr(spec, name) for name in type(spec).model_fields if name not in _NAMED}
        shapes = [shape.as_shape() for shape in spec.reserved]
        opened = placement.pool(spec.name, quota=spec.quota, reserved=shapes, scale=scale, change=change, **more)
        scaled = f", scaled to {opened.factor:.0%} of its size" if opened.factor < 1 else ""
        say(f"pool {spec.name} is open with quota {opened.pool.quota}{scaled}")
        for number in homeless(opened.pool, placement.nodes()):
            say(
                f"reserved group {number} of pool {spec.name} ({opened.pool.reserved[number].size}) fits on no node "
                "now; it is created once a large enough node joins, or made smaller by --scale"
            )
