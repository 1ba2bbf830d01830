"""How commands connect to the placement ledger of a cluster."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from headgate.core.errors import InvalidInputError, MissingExtraError
from headgate.placement import ClusterUnreachableError, LedgerUnreachableError

if TYPE_CHECKING:
    from headgate.placement import Placement


Address = Annotated[
    str | None,
    Parameter(help="Head of the Ray cluster, host:port; by default RAY_ADDRESS, then a cluster on this machine."),
]


@contextmanager
def joined(address: str | None) -> Iterator[Placement]:
    """Yield the placement of a running cluster.

    Raises:
        MissingExtraError: Ray is not installed.
        ClusterUnreachableError: there is no cluster.
        LedgerUnreachableError: no ledger runs there.
    """
    require_ray()
    import ray  # noqa: PLC0415 - it takes half a second, and may not be installed

    from headgate.placement import connect, has_ledger  # noqa: PLC0415 - as above

    connection = there_already(address)
    try:
        if not has_ledger():
            raise LedgerUnreachableError(f"No placement ledger runs on the cluster {connection.address}")
        with suppress(ValueError):  # outside the main thread; Ray's handler would exit with the bare signal number
            signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        with connect(log_to_driver=False) as placement:
            yield placement
    finally:
        ray.shutdown()


def there_already(address: str | None) -> Any:
    """Connect to a running cluster; raises ClusterUnreachableError instead of starting one."""
    from headgate.placement import connect_ray  # noqa: PLC0415 - as above

    named = address or os.environ.get("RAY_ADDRESS") or "auto"
    if named == "local":
        raise ClusterUnreachableError(
            "'local' would start a new cluster, and this command needs a running one",
            next_step="Unset RAY_ADDRESS to use the one of this machine, or name its head as host:port.",
        )
    return connect_ray(named, log_to_driver=False)


def find_actor(name: str) -> Any:
    """Return the handle of a named actor of the running cluster; `namespace/name` if several have the name.

    Raises:
        MissingExtraError: Ray is not installed.
        ClusterUnreachableError: there is no cluster.
        InvalidInputError: no actor has the name, or several have.
    """
    require_ray()
    import ray  # noqa: PLC0415 - it takes half a second, and may not be installed
    from ray.util import list_named_actors  # noqa: PLC0415 - as above

    connection = there_already(None)
    namespace, slash, own_name = name.rpartition("/")
    found = sorted(
        (str(each["namespace"]), str(each["name"]))
        for each in list_named_actors(all_namespaces=True)
        if each["name"] == own_name and (not slash or each["namespace"] == namespace)
    )
    if len(found) != 1:
        where = "; ".join("/".join(each) for each in found) or "no actor of that name"
        raise InvalidInputError(
            f"{name!r} must be the name of one actor of the cluster {connection.address} (got {where})",
            next_step="Start the actor first, or name it as namespace/name.",
        )
    ((namespace, own_name),) = found
    return ray.get_actor(own_name, namespace=namespace)


def require_ray() -> None:
    """Raise MissingExtraError, which says what to install, where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("Placement on a cluster", "ray")
