"""Task admission policies: how much of a scheduler resource one group may hold while others want it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol

_ROUNDING: Final = 1e-9
"""Keeps a share that is a whole number from being rounded down by the division that made it."""


class DenyReason(StrEnum):
    """Why a task gets no lease, where it is not that its resources are short."""

    GROUP_CAP = "group_cap"
    BORROW_DEBT = "borrow_debt"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class Refused:
    """The task may not run now, by policy: which resource, and what its group holds, may hold and owes."""

    reason: DenyReason
    resource: str
    held: int
    may_hold: int
    debt: int


class TaskPolicy(Protocol):
    """A rule for shares. Immutable; asked with values only, so that the same question has the same answer."""

    name: str
    """As the setting calls it."""
    reserve_for_s: float
    """Seconds for which more peers are expected after one has arrived."""

    @property
    def has_shares(self) -> bool:
        """Whether any group has a share that is smaller than the limit; without, nothing is counted."""
        return True

    def share(self, resource: str, limit: int, weight: float, total_weight: float, groups: int) -> float:
        """Return the units that a group may hold whoever waits: at least 1."""

    def ceiling(self, resource: str, limit: int, share: float) -> float:  # noqa: ARG002
        """Return the units that a group may hold while no peer waits; no bound unless a policy has one."""
        return math.inf

    def reserve(self, limit: int) -> int:  # noqa: ARG002
        """Return the units that are not lent while further peers are expected; none unless a policy keeps some."""
        return 0


@dataclass(frozen=True, slots=True)
class StrictFair(TaskPolicy):
    """Fair queueing decides alone; a group can have a cap, which counts while a peer waits. Work-conserving.

    Attributes:
        group_caps: resource -> units that a group may hold while a peer waits for it.
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
        """Whether a cap is set."""
        return bool(self.group_caps)

    def share(self, resource: str, limit: int, weight: float, total_weight: float, groups: int) -> float:  # noqa: ARG002
        """Return the cap, or no bound."""
        return self.group_caps.get(resource, math.inf)


@dataclass(frozen=True, slots=True)
class BoundedBorrow(TaskPolicy):
    """Shares by weight; a group borrows above its share while no eligible peer waits, and owes what it borrowed.

    A group's share is `(limit - reserve) · weight / total weight`, rounded down, at least 1, and at least the reserve
    as far as that can be given to every group. What it holds above is its debt. While a peer that is within its share
    waits, a group with debt gets nothing: every unit that it gives back repays. While none waits, it may borrow up to
    `borrow_ceiling` units, but not the reserve, which a peer that arrives takes at once. The reserve is lent, too,
    when no group has arrived for `reserve_for_s`: a group that stays alone has everything.

    Attributes:
        borrow_ceiling: units above its share that a group may hold; 0 for whatever the reserve leaves.
        reserve_share: of the limit, in [0, 1); less than the limit in any case, and nothing of a limit of 1.
        reserve_for_s: see above.
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
        """Return the group's units by weight."""
        reserve = self.reserve(limit)
        by_weight = int((limit - reserve) * weight / max(total_weight, weight) + _ROUNDING)
        return max(1, by_weight, min(reserve, limit // max(groups, 1)))

    def ceiling(self, resource: str, limit: int, share: float) -> float:  # noqa: ARG002
        """Return share and ceiling together."""
        return share + self.borrow_ceiling if self.borrow_ceiling else math.inf

    def reserve(self, limit: int) -> int:
        """Return the reserved share of the limit, at least 1 unit where there are two."""
        if limit < 2 or self.reserve_share == 0:
            return 0
        return min(limit - 1, max(1, int(limit * self.reserve_share + _ROUNDING)))
