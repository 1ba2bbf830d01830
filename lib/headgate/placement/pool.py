"""Pools: whose work may take how much, and which groups wait ready for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.placement.amounts import Amounts, total
from headgate.placement.request import Strategy

RESERVED_FROM_PRIORITY: Final = 8.0
"""Work of this priority and above may use reserved groups by right; the seed's threshold."""


@dataclass(frozen=True, slots=True)
class GroupShape:
    """The bundles of a group, and where they may lie."""

    bundles: tuple[Amounts, ...]
    strategy: Strategy = "STRICT_PACK"
    node_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> Amounts:
        """The sum of its bundles."""
        return self.bundles[0] if len(self.bundles) == 1 else total(self.bundles)


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool. Checked by `checked_pool`; the ledger trusts it.

    Attributes:
        name: unique.
        quota: what the pool's running work may hold together, counted in whole groups.
        reserved: groups that are kept ready for work from `reserved_from_priority`; rebuilt when they are lost.
        reserved_from_priority: what may use reserved groups by right.
        lend_reserved: whether lower preemptible work may use an idle reserved group until somebody entitled comes;
            it is then stopped whatever its priority and run time.
        max_dynamic: groups that may be made beside the reserved ones; None for no bound.
        reuse: whether an idle dynamic group is kept for the next work that it fits.
        protected: whether work of other pools may never preempt work of this one.
        min_available: label value (`role=rollout`) -> how many running requests preemption must leave.
    """

    name: str
    quota: Amounts
    reserved: tuple[GroupShape, ...] = ()
    reserved_from_priority: float = RESERVED_FROM_PRIORITY
    lend_reserved: bool = True
    max_dynamic: int | None = 20
    reuse: bool = True
    protected: bool = False
    min_available: Mapping[str, int] = field(default_factory=dict)
