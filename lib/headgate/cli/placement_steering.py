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

Scale = Annotated[bool, Parameter(negative="", help="Scale CPU and memory of pools down to what single nodes have.")]
Change = Annotated[bool, Parameter(negative="", help="Change pools that are open in another form.")]


def cancel(
    *requests: Annotated[str, Parameter(help="Ids of requests.")], address: Address = None, as_json: AsJson = False
) -> int:
    """Take requests out: one that waits at once, one that runs after it was stopped.

    An id that is not known is an error, and nothing is taken out.
    """
    if not requests:
        raise InvalidInputError("no request is named", next_step="`headgate placement status` lists them.")
    with joined(address) as placement:
        works = [placement.work(request) for request in requests]  # all are known before the first is taken out
        changed = {work.request_id: work.cancel("cancelled") for work in works}
    if as_json:
        print_json(changed)
    else:
        for request, was_there in changed.items():
            say(f"{request} is taken out" if was_there else f"{request} had ended already")
    return 0


def apply(
    file: Annotated[Path, Parameter(help="YAML or JSON file of pools, and rules of preemption.")],
    *,
    scale: Scale = False,
    change: Change = False,
    address: Address = None,
) -> int:
    """Open the pools of a file and put its rules in force."""
    written = read_placement_file(file)
    with joined(address) as placement:
        open_pools(placement, written, scale=scale, change=change)
    return 0


def close(pool: Annotated[str, Parameter(help="Name of the pool.")], *, address: Address = None) -> int:
    """Close a pool: its work is stopped and taken out, its placement groups go."""
    with joined(address) as placement:
        placement.close_pool(pool)
    say(f"pool {pool} closes")
    return 0


def audit(
    *,
    fix: Annotated[bool, Parameter(negative="", help="Remove what is in Ray and nobody knows.")] = False,
    address: Address = None,
    as_json: AsJson = False,
) -> int:
    """Compare the ledger, its journal and Ray: groups, actors, and the resources that they hold.

    Exit status 4 when something differs that was not mended.
    """
    with joined(address) as placement:
        differences = placement.audit(fix=fix)
    if as_json:
        print_json(json_safe(list(differences)))
    elif not differences:
        say("ledger and Ray agree")
    else:
        rows = [(one.kind, one.name, one.says, "mended" if one.mended else "") for one in differences]
        print_table(f"{len(differences)} differences", ("what", "name", "difference", ""), rows)
    return DIFFERENCES_STATUS if any(not one.mended for one in differences) else 0


def open_pools(placement: Placement, written: PlacementFile, *, scale: bool, change: bool) -> None:
    """Open the pools of a file, put its rules in force, and say what was done."""
    if written.rules is not None:
        placement.set_rules(written.rules)
        labels = ", ".join(sorted(written.rules.label_rules)) or "none"
        say(f"the rules of preemption are in force (label rules: {labels})")
    for spec in written.pools:
        more = {name: getattr(spec, name) for name in type(spec).model_fields if name not in _NAMED}
        shapes = [shape.as_shape() for shape in spec.reserved]
        opened = placement.pool(spec.name, quota=spec.quota, reserved=shapes, scale=scale, change=change, **more)
        scaled = f", scaled to {opened.factor:.0%} of what was written" if opened.factor < 1 else ""
        say(f"pool {spec.name} is open with {opened.pool.quota}{scaled}")
        for number in homeless(opened.pool, placement.nodes()):
            say(
                f"reserved group {number} of pool {spec.name} ({opened.pool.reserved[number].size}) fits on no node "
                "that is there: it is made when one comes that has as much; --scale makes it smaller"
            )
