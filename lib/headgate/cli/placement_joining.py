"""How commands come to the ledger of a cluster."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from headgate.cli.output import console
from headgate.core.errors import MissingExtraError
from headgate.placement.errors import LedgerUnreachableError
from headgate.telemetry import safe_text

if TYPE_CHECKING:
    from headgate.placement.cluster.client import Placement

_TOKEN_FILE: Final = Path("~/.ray/auth_token")

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

    return connect_ray(address or os.environ.get("RAY_ADDRESS") or "auto", log_to_driver=False)


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
    """Say what to install where Ray is not, and let it use the token that a cluster of this machine has written.

    Ray protects a cluster that a process starts for itself by a token in the user's folder, and a process that joins it
    does not look there by itself.

    Raises:
        MissingExtraError: it is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("Placement on a cluster", "ray")
    if _TOKEN_FILE.expanduser().is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def say(line: str) -> None:
    """Print a line for people."""
    console().print(safe_text(line), highlight=False, markup=False)
