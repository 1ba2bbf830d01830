"""Connecting to a cluster: the one that is named, else one that runs on this machine, else a new local one."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

import ray
from ray._private import ray_constants, services
from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
from ray._private.services import find_bootstrap_address, find_node_ids
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.core.generated.gcs_pb2 import GcsNodeInfo  # type: ignore[attr-defined]
from ray.exceptions import RayError

from headgate.placement.cluster.tuning import LocalCluster
from headgate.placement.errors import ClusterMismatchError, ClusterUnreachableError

NAMESPACE: Final = "headgate"
"""Namespace of all named actors of placement."""

LEDGER_NAME: Final = "headgate-placement"

_PROBE_S: Final = 3.0
_NODE_S: Final = 10.0
"""How long a node of the cluster may take to come up on this machine."""

_LOOK_S: Final = 0.5
_ALIVE: Final = GcsNodeInfo.GcsNodeState.ALIVE

# At every start it logs that token authentication is enabled, which is normal; that it is off is still logged.
logging.getLogger("ray._private.authentication.authentication_token_setup").addFilter(
    lambda record: "is enabled for this Ray cluster" not in record.getMessage()
)


class Found(StrEnum):
    """Where a cluster came from."""

    ATTACHED = "attached"  # this process was connected already
    NAMED = "named"  # by the caller or RAY_ADDRESS
    RUNNING = "running"  # on this machine
    STARTED = "started"  # here and now; it ends with this process


@dataclass(frozen=True, slots=True)
class Connection:
    """A cluster that this process is connected to.

    Attributes:
        address: host and port of its head.
        found: how it was found.
    """

    address: str
    found: Found

    @property
    def says(self) -> str:
        """A sentence that says which cluster is used."""
        how = {
            Found.ATTACHED: "the Ray cluster that this process was connected to already",
            Found.NAMED: "the Ray cluster that was named",
            Found.RUNNING: "the Ray cluster that runs on this machine",
            Found.STARTED: "a local Ray cluster, started for this process",
        }[self.found]
        return f"Using {how} ({self.address})"


def connect_ray(
    address: str | None = None, *, local: LocalCluster | None = None, log_to_driver: bool = True
) -> Connection:
    """Connect this process to a Ray cluster: `address`, RAY_ADDRESS, one that runs here, or a new local one.

    `address` is `host:port`, "auto" for a running cluster only, "local" for a new one, or None for the first found.

    Raises:
        ClusterUnreachableError: nothing answers there, within seconds.
        ClusterMismatchError: it runs another version of Ray or Python.
    """
    if ray.is_initialized():
        return Connection(ray.get_runtime_context().gcs_address, Found.ATTACHED)
    named = address or os.environ.get("RAY_ADDRESS", "")
    if named == "local":
        return _started(local or LocalCluster(), log_to_driver=log_to_driver)
    if named and named != "auto":
        # Refused here, as Ray would try for a minute. So is Ray's client protocol: it cannot see the nodes' free room.
        if "://" in named:
            raise ClusterUnreachableError(
                f"A cluster is named by host:port (got {named})",
                next_step="Give the head's address, e.g. 10.0.0.5:6379, on a machine that is part of its network.",
            )
        if not _answers(named):
            raise ClusterUnreachableError(f"Nothing answers at {named} within {_PROBE_S:g} s")
        return _joined(named, Found.NAMED, log_to_driver=log_to_driver)
    running = find_bootstrap_address(None)
    if running and _answers(running):
        return _joined(running, Found.RUNNING, log_to_driver=log_to_driver)
    if named == "auto":
        raise ClusterUnreachableError(
            "No Ray cluster is found on this machine",
            next_step="Start one with `headgate placement up`, or name the address that the process that started the "
            "cluster shows, with --address or RAY_ADDRESS.",
        )
    return _started(local or LocalCluster(), log_to_driver=log_to_driver)


def node_address() -> str:
    """Return this machine's address in the cluster that this process is connected to or works for."""
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def cluster_id(address: str) -> str:
    """Return the id of the cluster whose head answers at `host:port`; empty where none does.

    A restarted head has another id, unless it recovers from an external store.
    """
    try:
        return str(GcsClient(address=address).cluster_id.hex()) if _answers(address) else ""
    except (RayError, RuntimeError):  # the head is just starting or ending
        return ""


def _answers(address: str) -> bool:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise ClusterUnreachableError(f"A cluster is named by host:port (got {address})")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_S):
            return True
    except (OSError, OverflowError):
        return False


def _joined(address: str, found: Found, *, log_to_driver: bool) -> Connection:
    # A cluster started by a process requires the token that Ray keeps for this user, and refuses connections without
    # it after 20 s; Ray itself sends the token to clusters that it found, but not to those that were named.
    maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    host, _, port = address.rpartition(":")
    # A cluster that listens on all interfaces may be named by loopback, but knows this machine by another address.
    _heed("")
    if not _answers(f"{node_address()}:{port}"):
        _heed(host)
    _await_node(address)
    _init({"address": address}, log_to_driver=log_to_driver)
    return Connection(address, found)


def _await_node(address: str) -> None:
    """Return once a node of the cluster runs on this machine. Ray would wait for a minute without saying for what."""
    until = time.monotonic() + _NODE_S
    while not _has_node_here(address):
        if time.monotonic() >= until:
            raise ClusterUnreachableError(
                f"The head at {address} answers, and none of its nodes runs on this machine",
                next_step=f"Start one here with `ray start --address={address}`, or run this on one of its nodes.",
            )
        time.sleep(_LOOK_S)


def _has_node_here(address: str) -> bool:
    try:
        alive = GcsClient(address=address).get_all_node_info(timeout=_PROBE_S, state_filter=_ALIVE)
    except (RayError, RuntimeError):
        return True  # another version, or no token: Ray reports it on joining
    return not {node.hex() for node in alive}.isdisjoint(find_node_ids())  # type: ignore[no-untyped-call]


def _started(local: LocalCluster, *, log_to_driver: bool) -> Connection:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _heed(local.host)
    if sys.platform == "linux":  # elsewhere Ray ends these processes by their group
        # A signal to the group of this process, such as a Prefect worker sends, must leave the cluster for the drain.
        services.ConsolePopen = partial(services.ConsolePopen, process_group=0)  # type: ignore[assignment, misc]
    _init(local.as_init(), log_to_driver=log_to_driver)
    return Connection(ray.get_runtime_context().gcs_address, Found.STARTED)


def _heed(host: str) -> None:
    """Let Ray and its child processes use loopback as this machine's address if, and only if, `host` is loopback.

    On Linux Ray replaces loopback by another address, and then listens on all interfaces. Ray's switch for that is an
    environment variable, which Ray has already read in this process; so its copy is set, too.
    """
    is_cluster = host.strip("[]") not in {"127.0.0.1", "localhost", "::1"}
    os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = str(int(is_cluster))
    ray_constants.ENABLE_RAY_CLUSTER = is_cluster


def take_signals_back() -> None:
    """Route SIGTERM straight to Python's handler again, bypassing the handler that Ray's core installs before it.

    Ray's handler writes a stack trace inside the signal, in any thread, and may crash there: then nothing drains. Call
    it where Ray was joined in another thread; only the main thread may set handlers, and in others this does nothing.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def _init(options: dict[str, Any], *, log_to_driver: bool) -> None:
    try:
        ray.init(**options, namespace=NAMESPACE, log_to_driver=log_to_driver, logging_level=logging.WARNING)
        take_signals_back()
    except Exception as error:  # Ray also raises bare exceptions, e.g. when a node is not up in time
        if isinstance(error, RuntimeError) and "ersion mismatch" in str(error):
            raise ClusterMismatchError(_first_lines(error)) from error
        raise ClusterUnreachableError(f"Ray does not start or connect: {_first_lines(error)}") from error


def _first_lines(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]
