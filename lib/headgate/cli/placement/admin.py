"""`headgate placement up|down|cancel|apply|close|audit`: the ledger of placements on a cluster, and its pools."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from headgate.cli.output import CHECK_FAILED, AsJson, counted, print_json, print_table, say, tell
from headgate.cli.placement.ledger import Address, joined, require_ray, there_already
from headgate.core.audit import record_change
from headgate.core.documents import read_document
from headgate.core.errors import InvalidInputError
from headgate.placement import (
    InvalidPlacementError,
    LedgerSettings,
    PoolSpec,
    PreemptionRules,
    homeless,
    pool_spec,
    rules_from,
)
from headgate.telemetry import json_safe

if TYPE_CHECKING:
    from headgate.placement import Placement


Scale = Annotated[bool, Parameter(help="Reduce the pools' CPU and memory to what a single node has.")]
Change = Annotated[bool, Parameter(help="Change pools that are open with other settings.")]


@dataclass(frozen=True, slots=True)
class PlacementFile:
    """Content of a file of pools; `rules` is None if the file has none."""

    pools: tuple[PoolSpec, ...]
    rules: PreemptionRules | None = None


def read_placement_file(path: Path) -> PlacementFile:
    """Read a YAML or JSON file of `pools` and, where they are to be changed, `rules`.

    Raises:
        InvalidPlacementError: it cannot be read, or its content cannot be used.
    """
    written = read_document(path, InvalidPlacementError)
    if not isinstance(written, Mapping) or not written.keys() <= {"pools", "rules"} or "pools" not in written:
        keys = ", ".join(map(str, written)) if isinstance(written, Mapping) else type(written).__name__
        raise InvalidPlacementError(f"{path} must have `pools` and may have `rules` (got {keys})")
    pools, rules = written["pools"], written.get("rules")
    if not isinstance(pools, list) or not all(isinstance(pool, Mapping) for pool in pools):
        raise InvalidPlacementError(f"`pools` of {path} must be a list of pools (got {pools!r})")
    if rules is not None and not isinstance(rules, Mapping):
        raise InvalidPlacementError(f"`rules` of {path} must be a mapping of settings (got {rules!r})")
    specs = tuple(pool_spec(pool) for pool in pools)
    names = [spec.name for spec in specs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidPlacementError(f"{path} has the pool {twice[0]} twice")
    return PlacementFile(specs, None if rules is None else rules_from(rules))


def cancel(
    *requests: Annotated[str, Parameter(help="Ids of requests.")], address: Address = None, as_json: AsJson = False
) -> int:
    """Cancel requests: waiting ones at once, running ones once they have stopped.

    If an id is unknown, nothing is cancelled.
    """
    if not requests:
        raise InvalidInputError("no request is given", next_step="`headgate placement status` lists them.")
    with joined(address) as placement:
        works = [placement.work(request) for request in requests]  # an unknown id fails before anything is cancelled
        changed = {work.request_id: work.cancel("cancelled") for work in works}
        if cancelled := [request for request, was_there in changed.items() if was_there]:
            record_change("placement cancel", ", ".join(cancelled), after="cancelled")
    ends = {True: "is cancelled", False: "had already ended"}
    return tell(changed, *(f"{request} {ends[was_there]}" for request, was_there in changed.items()), as_json=as_json)


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
    fix: Annotated[bool, Parameter(help="Remove what the ledger does not know.")] = False,
    address: Address = None,
    as_json: AsJson = False,
) -> int:
    """Compare the ledger, its journal and Ray: groups, actors, and the resources that they hold.

    Exit status 4 if differences remain.
    """
    with joined(address) as placement:
        differences = placement.audit(fix=fix)
        if fixed := [one.name for one in differences if one.fixed]:
            record_change("placement fix", ", ".join(fixed), after="removed")
    if as_json:
        print_json(json_safe(list(differences)))
    elif not differences:
        say("ledger and Ray agree")
    else:
        rows = [(one.kind, one.name, one.says, "fixed" if one.fixed else "") for one in differences]
        print_table(counted(len(differences), "difference"), ("what", "name", "difference", ""), rows)
    return CHECK_FAILED if any(not one.fixed for one in differences) else 0


def open_pools(placement: Placement, written: PlacementFile, *, scale: bool, change: bool) -> None:
    """Open the pools of a file, apply its rules, and print what was done."""
    if written.rules is not None:
        placement.set_rules(written.rules)
        labels = ", ".join(sorted(written.rules.label_rules)) or "none"
        say(f"the preemption rules are applied (label rules: {labels})")
    for spec in written.pools:
        opened = placement.pool(**spec.model_dump(), scale=scale, change=change)
        scaled = f", scaled to {opened.factor:.0%} of its size" if opened.factor < 1 else ""
        say(f"pool {spec.name} is open with quota {opened.pool.quota}{scaled}")
        for number in homeless(opened.pool, placement.nodes()):
            say(
                f"reserved group {number} of pool {spec.name} ({opened.pool.reserved[number].size}) fits on no node "
                "now; it is created once a large enough node joins, or made smaller by --scale"
            )


_LOOK_S: Final = 2.0


def up(
    *,
    pools: Annotated[Path | None, Parameter(help="YAML or JSON file of pools and preemption rules.")] = None,
    scale: Scale = False,
    change: Change = False,
    detach: Annotated[bool, Parameter(help="Return once the pools are open.")] = False,
    journal: Annotated[Path | None, Parameter(help="Journal file of a new ledger, on the head node.")] = None,
    keep_work: Annotated[
        bool, Parameter(negative="--no-keep-work", help="New ledger: keep the work of drivers that have died.")
    ] = True,
    cpus: Annotated[float, Parameter(help="CPUs of a local cluster, if this command starts one.")] = 8,
    gpus: Annotated[float | None, Parameter(help="GPUs of that local cluster; by default the machine's.")] = None,
    host: Annotated[
        str, Parameter(help="Address of that local cluster; with any but loopback Ray listens on all interfaces.")
    ] = "127.0.0.1",
    address: Address = None,
) -> int:
    """Start the placement ledger on a Ray cluster, or join the one that runs there, and open pools.

    Without --detach it runs until Ctrl-C or SIGTERM, then stops what it started: its own local cluster, or the ledger
    and all placed work on another cluster. A ledger that was running before keeps running.
    """
    require_ray()
    import ray  # noqa: PLC0415 - it takes half a second, and may not be installed

    from headgate.placement import LocalCluster, connect, connect_ray, has_ledger  # noqa: PLC0415

    written = PlacementFile(()) if pools is None else read_placement_file(pools)
    stopped = threading.Event()
    # A cluster that is started here ends with this process: there is nothing to detach from.
    local = LocalCluster(cpus=cpus, gpus=gpus, host=host)
    connection = there_already(address) if detach else connect_ray(address, local=local, log_to_driver=False)
    was_there = has_ledger()
    settings = LedgerSettings(keep_work_of_lost_drivers=keep_work)
    file = None if journal is None else str(journal.absolute())
    try:
        with (
            connect(journal=file, settings=settings, keep_work=True) as placement,
            _signals(stopped),  # after Ray has set its own
            _found_by_others(connection) if address != "local" else contextlib.nullcontext(),
        ):
            say(connection.says)
            if was_there:
                say("A ledger is already running there; its journal and settings stay as they are")
            open_pools(placement, written, scale=scale, change=change)
            if not detach:
                say("The ledger is running; Ctrl-C ends " + ("this command but not the ledger" if was_there else "it"))
                if not _lives_until(stopped):
                    say("The ledger was stopped by someone else")
                elif not was_there:
                    placement.shutdown()
    finally:
        ray.shutdown()
    return 0


def _lives_until(stopped: threading.Event) -> bool:
    """Return True at a signal to stop, False once the ledger is gone, which is polled, as nothing announces it."""
    from ray.exceptions import RayError  # noqa: PLC0415 - it may not be installed

    from headgate.placement import has_ledger  # noqa: PLC0415

    while not stopped.wait(_LOOK_S):
        with contextlib.suppress(RayError):  # a head that restarts does not answer for a while
            if not has_ledger():
                return False
    return True


@contextlib.contextmanager
def _signals(stopped: threading.Event) -> Iterator[None]:
    """Make signals to stop set an event; restore their handlers afterwards."""
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _found_by_others(connection: Any) -> Iterator[None]:
    """Let other processes on this machine find a cluster started here, as if by `ray start`."""
    from ray._common.utils import reset_ray_address  # noqa: PLC0415 - see above
    from ray._private.utils import write_ray_address  # noqa: PLC0415

    from headgate.placement import Found  # noqa: PLC0415

    if connection.found is not Found.STARTED:
        yield
        return
    write_ray_address(connection.address)
    try:
        yield
    finally:
        reset_ray_address()


def down(*, address: Address = None) -> int:
    """Stop all placed work on a cluster, remove its placement groups, and stop the ledger."""
    with joined(address) as placement:
        placement.shutdown()
    say("all work is stopped, all groups are removed, and the ledger has ended")
    return 0
