"""How commands come to the ledger of a cluster."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headgate.cli.output import console
from headgate.core.errors import MissingExtraError
from headgate.placement.errors import LedgerUnreachableError
from headgate.telemetry import safe_text

if TYPE_CHECKING:
    from headgate.placement.cluster.client import Placement


Address = Annotated[
    str | None,
    Parameter(help="The Ray cluster's head, host:port; by default RAY_ADDRESS, else the cluster that runs here."),
]


@contextmanager
def joined(address: str | None) -> Iterator[Placement]:
    """Give the placement of a cluster that is there already.

    Raises:
        MissingExtraError: Ray is not installed.
        ClusterUnreachableError: there is no cluster.
        LedgerUnreachableError: nobody has started a ledger there.
    """
    require_ray()
    import ray  # noqa: PLC0415 - it takes half a second, and may not be installed

    from headgate.placement.cluster.client import connect  # noqa: PLC0415

    connection = there_already(address)
    try:
        if not has_ledger():
            raise LedgerUnreachableError(f"No placement ledger runs on the cluster {connection.address}")
        with connect(log_to_driver=False) as placement:
            yield placement
    finally:
        ray.shutdown()


def there_already(address: str | None) -> Any:
    """Connect to a cluster that runs; raises ClusterUnreachableError instead of starting one."""
    from headgate.placement.cluster.connecting import connect_ray  # noqa: PLC0415 - as above
    from headgate.placement.errors import ClusterUnreachableError  # noqa: PLC0415 - as above

    named = address or os.environ.get("RAY_ADDRESS") or "auto"
    if named == "local":
        raise ClusterUnreachableError(
            "'local' is a cluster that is started anew, and this command needs one that runs",
            next_step="Unset RAY_ADDRESS to use the one of this machine, or name its head as host:port.",
        )
    return connect_ray(named, log_to_driver=False)


def has_ledger() -> bool:
    """Tell whether the cluster that this process is connected to has a ledger."""
    import ray  # noqa: PLC0415 - as above

    from headgate.placement.cluster.actor import LEDGER_NAME  # noqa: PLC0415
    from headgate.placement.cluster.connecting import NAMESPACE  # noqa: PLC0415

    try:
        ray.get_actor(LEDGER_NAME, namespace=NAMESPACE)
    except ValueError:
        return False
    return True


def require_ray() -> None:
    """Say what to install where Ray is not.

    Raises:
        MissingExtraError: it is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("Placement on a cluster", "ray")


def say(line: str) -> None:
    """Print a line for people."""
    console().print(safe_text(line), highlight=False, markup=False)
