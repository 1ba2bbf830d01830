"""Leases: the only way to hold capacity."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from headgate.core.ids import HolderId, LeaseId
from headgate.core.record import record

_REMEMBERED_RELEASES: Final = 8_192
"""Released leases are remembered, to tell a duplicate release from an unknown one; DataDesigner keeps as many."""


class ReleaseOutcome(StrEnum):
    """What a release did. Only RELEASED changes any counter."""

    RELEASED = "released"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"
    STALE = "stale"
    WRONG_GENERATION = "wrong_generation"


@record
class Lease:
    """The right to use `units` of named capacities.

    Attributes:
        lease_id: unique within its book.
        epoch: fencing token; grows with every lease of its book, so a later lease of the same subject has a later one.
        generation: generation of the book that granted it; a restarted book refuses leases of an earlier generation.
        subject: what it was taken for, e.g. a task id; may be empty.
        units: capacity name -> units.
        acquired_at: monotonic seconds.
    """

    lease_id: LeaseId
    epoch: int
    generation: int
    holder: HolderId
    subject: str
    units: Mapping[str, int]
    acquired_at: float


@dataclass(frozen=True, slots=True)
class Denied:
    """No lease was granted: which capacity was short; asking again is useless before something is released."""

    reason: str
    capacity: str
    wanted: int
    available: int


@dataclass(slots=True)
class LeaseBook:
    """Counts units of named capacities as they are leased and released, exactly once each. Pure: `now` is passed in.

    Owned by one decision maker. Invariants (`validate`): for every capacity 0 <= in use, and in use equals the sum
    over live leases that are not parked; in use exceeds the limit only after the limit was lowered while leases were
    held, or parked leases came back.
    """

    limits: dict[str, int]
    generation: int = 1
    in_use: dict[str, int] = field(default_factory=dict)
    live: dict[LeaseId, Lease] = field(default_factory=dict)
    parked: set[LeaseId] = field(default_factory=set)
    _released: OrderedDict[LeaseId, None] = field(default_factory=OrderedDict)
    _next: int = 1

    def available(self, capacity: str) -> int:
        """Return the units of `capacity` that can be granted now; a capacity without a limit has none."""
        return max(0, self.limits.get(capacity, 0) - self.in_use.get(capacity, 0))

    def shortage(self, units: Mapping[str, int]) -> Denied | None:
        """Return why `units` cannot be granted now, or None if they can. Changes nothing."""
        limits, in_use = self.limits, self.in_use
        for capacity, wanted in units.items():
            if wanted <= limits.get(capacity, 0) - in_use.get(capacity, 0):
                continue
            free = self.available(capacity)
            if wanted > free:
                reason = "no_capacity" if capacity in self.limits else "unknown_capacity"
                return Denied(reason, capacity, wanted, free)
        return None

    def acquire(self, holder: HolderId, units: Mapping[str, int], now: float, *, subject: str = "") -> Lease | Denied:
        """Grant all of `units`, or nothing."""
        denied = self.shortage(units)
        if denied is not None:
            return denied
        lease = Lease(
            lease_id=LeaseId(f"l-{self.generation}-{self._next}"),
            epoch=self._next,
            generation=self.generation,
            holder=holder,
            subject=subject,
            units=units if isinstance(units, MappingProxyType) else MappingProxyType(dict(units)),
            acquired_at=now,
        )
        self._next += 1
        self.live[lease.lease_id] = lease
        for capacity, wanted in units.items():
            self.in_use[capacity] = self.in_use.get(capacity, 0) + wanted
        return lease

    def release(self, lease: Lease) -> ReleaseOutcome:
        """Release `lease`. Never raises; anything but the first release of a live lease changes nothing."""
        if lease.generation != self.generation:
            return ReleaseOutcome.WRONG_GENERATION
        held = self.live.get(lease.lease_id)
        if held is None:
            return ReleaseOutcome.DUPLICATE if lease.lease_id in self._released else ReleaseOutcome.UNKNOWN
        if held.epoch != lease.epoch:
            return ReleaseOutcome.STALE
        del self.live[lease.lease_id]
        self._released[lease.lease_id] = None
        if len(self._released) > _REMEMBERED_RELEASES:
            self._released.popitem(last=False)
        if held.lease_id in self.parked:
            self.parked.remove(held.lease_id)
            return ReleaseOutcome.RELEASED
        for capacity, units in held.units.items():
            self.in_use[capacity] -= units
        return ReleaseOutcome.RELEASED

    def park(self, lease: Lease) -> bool:
        """Free the units of a lease while its holder waits for something else; return whether that changed anything."""
        if self.live.get(lease.lease_id) is not lease or lease.lease_id in self.parked:
            return False
        self.parked.add(lease.lease_id)
        for capacity, units in lease.units.items():
            self.in_use[capacity] -= units
        return True

    def unpark(self, lease: Lease) -> bool:
        """Give a parked lease its units back, even above the limit; return whether that changed anything."""
        if lease.lease_id not in self.parked:
            return False
        self.parked.remove(lease.lease_id)
        for capacity, units in lease.units.items():
            self.in_use[capacity] += units
        return True

    def set_limit(self, capacity: str, limit: int) -> None:
        """Change a limit. If it is lowered below what is in use, leases are denied until enough units are released."""
        if limit < 0:
            raise ValueError(f"limit of {capacity} must be >= 0 (got {limit})")
        self.limits[capacity] = limit

    def validate(self) -> None:
        """Assert the invariants of the class."""
        sums: dict[str, int] = {}
        assert self.parked <= self.live.keys(), "a lease that is not live is parked"
        for lease in self.live.values():
            for capacity, units in lease.units.items() if lease.lease_id not in self.parked else ():
                sums[capacity] = sums.get(capacity, 0) + units
        for capacity, used in self.in_use.items():
            assert used == sums.get(capacity, 0), f"{capacity}: in use {used}, leased {sums.get(capacity, 0)}"
            assert used >= 0, f"{capacity}: in use {used}"
