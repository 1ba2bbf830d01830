"""The register of holders: one Prefect variable per process that says what it holds and wants, for peers and people.

Prefect keeps leases to itself: its API neither lists them nor says who was denied. Each process therefore tells it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from headgate.admission.bank import Peer

REGISTER_PREFIX: Final = "headgate_slots_"
"""Variables of the register begin with it."""

BEATS_PER_LEASE: Final = 2
"""Entries are written anew at least this often in the length of a lease."""

_STALE: Final = 1.25
"""An entry older than this many lease lengths is of a process whose leases have ended, too."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What a process has to do with one limit: slots under leases, those it wants, and the number of its leases."""

    held: int
    wanted: int
    leases: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A process of the register.

    Attributes:
        name: unique, the end of its variable's name.
        process: where it runs, for people.
        lease_s: length of its leases.
        age_s: since it wrote last, by the server's clock.
        holdings: by limit.
    """

    name: str
    process: str
    lease_s: float
    age_s: float
    holdings: Mapping[str, Holding]

    @property
    def is_stale(self) -> bool:
        """Whether it has not written for so long that its leases have ended, too."""
        return self.age_s > _STALE * self.lease_s


def entry(process: str, lease_s: float, holdings: Mapping[str, Holding]) -> dict[str, Any]:
    """Return the value of a process's variable."""
    return {
        "process": process,
        "lease_s": lease_s,
        "limits": {name: [h.held, h.wanted, h.leases] for name, h in sorted(holdings.items()) if h.held or h.wanted},
    }


def holder_of(variable: Mapping[str, Any], now: datetime) -> Holder | None:
    """Return the holder that a variable speaks of; None when somebody else wrote it."""
    try:
        value = variable["value"]
        updated = datetime.fromisoformat(str(variable["updated"]))
        return Holder(
            name=str(variable["name"]).removeprefix(REGISTER_PREFIX),
            process=str(value["process"]),
            lease_s=float(value["lease_s"]),
            age_s=(now - updated).total_seconds(),
            holdings={str(name): Holding(*map(int, numbers)) for name, numbers in value["limits"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        # A variable of the register's prefix that this version cannot read: no reason to stop admitting.
        return None


def peers_at(limit: str, holders: Iterable[Holder]) -> list[Peer]:
    """Return the living processes at a limit, as the bank takes them."""
    return [
        Peer(holder.name, holder.holdings[limit].held, holder.holdings[limit].wanted)
        for holder in holders
        if limit in holder.holdings and not holder.is_stale
    ]


def known_slots(limit: str, holders: Iterable[Holder]) -> int:
    """Return the slots under leases of living processes at a limit."""
    return sum(peer.held for peer in peers_at(limit, holders))
