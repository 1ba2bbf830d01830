"""What is asked of the process that stands in line for hosts, as it crosses to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class HostCluster:
    """The Ray cluster of a run's hosts.

    Attributes:
        address: `host:port` of its head; empty for RAY_ADDRESS, else one that runs here, else a local one.
        pool: whose quota the hosts count against.
        quota: of that pool where it is not open; empty for all that the cluster has.
        journal: file on the head node for a placement ledger that is not there yet; empty for the default one.
    """

    address: str = ""
    pool: str = "main"
    quota: Mapping[str, Any] = field(default_factory=dict)
    journal: str = ""


@dataclass(frozen=True, slots=True)
class HostOrder:
    """One line of JSON: where hosts are placed, and as what.

    Attributes:
        cluster: fields of `HostCluster`.
        driver: name under which the ledger knows the run.
        cpus: of each host.
        priority: of each place.
        role: label of each place.
        limits: fields of `ApartLimits`.
        owns_pool: whether this run has opened the pool before.
        owns_ledger: whether it has started the ledger before.
    """

    cluster: Mapping[str, Any]
    driver: str
    cpus: int
    priority: float
    role: str
    limits: Mapping[str, Any]
    owns_pool: bool = False
    owns_ledger: bool = False
