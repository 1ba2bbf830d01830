"""Task admission policies: how much of a scheduler resource one group may hold while others want it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol

_ROUNDING: Final = 1e-9
"""Keeps floating-point division from rounding a whole-number share down by one unit."""


class DenyReason(StrEnum):
    """Why a task gets no lease, for reasons other than a shortage of resources."""

    GROUP_CAP = "group_cap"
    BORROW_DEBT = "borrow_debt"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class Refused:
    """The policy keeps the task from running: over which resource, and what its group holds, may hold and owes."""

    reason: DenyReason
    resource: str
    held: int
    may_hold: int
    debt: int


class TaskPolicy(Protocol):
    """A rule for shares. Immutable, and its methods are pure: the same arguments give the same result."""

    name: str
    """Its value in the settings."""
    reserve_for_s: float
    """Seconds for which the reserve is kept for further peers after one has arrived."""

    @property
    def has_shares(self) -> bool:
        """Whether any group's share can be smaller than the limit; if not, holdings are not counted."""
        return True

    def share(self, resource: str, limit: int, weight: float, total_weight: float, groups: int) -> float:
        """Return the units that a group may hold even while others wait; at least 1."""

    def ceiling(self, resource: str, limit: int, share: float) -> float:  # noqa: ARG002
        """Return the units that a group may hold while no peer waits; unbounded by default."""
        return math.inf

    def reserve(self, limit: int) -> int:  # noqa: ARG002
        """Return the units that are not lent while further peers are expected; 0 by default."""
        return 0


@dataclass(frozen=True, slots=True)
class StrictFair(TaskPolicy):
    """Fair queueing alone decides; an optional cap limits a group while a peer waits. Work-conserving.

    Attributes:
        group_caps: resource -> units of it that a group may hold while a peer waits for it.
    """

    group_caps: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    name: str = "strict_fair"
    reserve_for_s: float = 0.0

    def __post_init__(self) -> None:
        for resource, cap in self.group_caps.items():
            if cap < 1:
                raise ValueError(f"the group cap of {resource} must be >= 1 (got {cap})")

    @property
    def has_shares(self) -> bool:
        """Whether any cap is set."""
        return bool(self.group_caps)

    def share(self, resource: str, limit: int, weight: float, total_weight: float, groups: int) -> float:  # noqa: ARG002
        """Return the cap, infinity if there is none."""
        return self.group_caps.get(resource, math.inf)


@dataclass(frozen=True, slots=True)
class BoundedBorrow(TaskPolicy):
    """Shares by weight; a group borrows above its share while no eligible peer waits, and owes what it borrowed.

    A group's share is `(limit - reserve) · weight / total weight`, rounded down, at least 1, and at least the smaller
    of the reserve and `limit // groups`. What it holds above its share is its debt. While a peer within its share
    waits, a group with debt gets nothing: every unit that it releases repays debt. While none waits, it may borrow up
    to `borrow_ceiling` units, but not the reserve, which an arriving peer can take at once. The reserve is lent as
    well once no group has arrived for `reserve_for_s`: a group that stays alone may hold the whole limit.

    Attributes:
        borrow_ceiling: units that a group may hold above its share; 0 allows all that the reserve leaves.
        reserve_share: reserved share of the limit, in [0, 1); always less than the limit, and 0 for a limit of 1.
        reserve_for_s: seconds since the last arrival of a group for which the reserve is kept.
    """

    borrow_ceiling: int = 0
    reserve_share: float = 0.1
    reserve_for_s: float = 5.0
    name: str = "bounded_borrow"

    def __post_init__(self) -> None:
        if self.borrow_ceiling < 0:
            raise ValueError(f"borrow_ceiling must be >= 0 (got {self.borrow_ceiling})")
        if not 0 <= self.reserve_share < 1:
            raise ValueError(f"reserve_share must be in [0, 1) (got {self.reserve_share})")
        if not self.reserve_for_s >= 0:
            raise ValueError(f"reserve_for_s must be >= 0 (got {self.reserve_for_s})")

    def share(self, resource: str, limit: int, weight: float, total_weight: float, groups: int) -> float:  # noqa: ARG002
        """Return the group's share by weight."""
        reserve = self.reserve(limit)
        by_weight = int((limit - reserve) * weight / max(total_weight, weight) + _ROUNDING)
        return max(1, by_weight, min(reserve, limit // max(groups, 1)))

    def ceiling(self, resource: str, limit: int, share: float) -> float:  # noqa: ARG002
        """Return the share plus the borrow ceiling; infinity without one."""
        return share + self.borrow_ceiling if self.borrow_ceiling else math.inf

    def reserve(self, limit: int) -> int:
        """Return the reserved units: at least 1 where the limit is 2 or more, unless `reserve_share` is 0."""
        if limit < 2 or self.reserve_share == 0:
            return 0
        return min(limit - 1, max(1, int(limit * self.reserve_share + _ROUNDING)))
