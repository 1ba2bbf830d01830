"""`headgate placement up|down`: the ledger of placements on a cluster."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from headgate.cli.output import say
from headgate.cli.placement.admin import Change, PlacementFile, Scale, open_pools, read_placement_file
from headgate.cli.placement.ledger import Address, joined, require_ray, there_already
from headgate.placement import LedgerSettings

_LOOK_S: Final = 2.0


def up(
    *,
    pools: Annotated[Path | None, Parameter(help="YAML or JSON file of pools and preemption rules.")] = None,
    scale: Scale = False,
    change: Change = False,
    detach: Annotated[bool, Parameter(negative="", help="Return once the pools are open.")] = False,
    journal: Annotated[Path | None, Parameter(help="Journal file of a new ledger, on the head node.")] = None,
    keep_work: Annotated[bool, Parameter(help="New ledger: keep the work of drivers that have died.")] = True,
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
    """Wait for a signal to stop; False as soon as there is no ledger any more, which nobody is woken by."""
    from ray.exceptions import RayError  # noqa: PLC0415 - it may not be installed

    from headgate.placement import has_ledger  # noqa: PLC0415

    while not stopped.wait(_LOOK_S):
        with contextlib.suppress(RayError):  # a head that restarts does not answer for a while
            if not has_ledger():
                return False
    return True


@contextlib.contextmanager
def _signals(stopped: threading.Event) -> Iterator[None]:
    """Let signals to stop set an event, and put their handlers back."""
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _found_by_others(connection: Any) -> Iterator[None]:
    """Let processes of this machine find a cluster that was started here, as they find one of `ray start`."""
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
