"""Pools: whose work may take how much, and which groups wait ready for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.placement.amounts import Amounts, total
from headgate.placement.request import Strategy

RESERVED_FROM_PRIORITY: Final = 8.0
"""Work of this priority and above may claim reserved groups, unless the pool says otherwise."""


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
        quota: total that the pool's running work may hold, counted in whole groups.
        reserved: groups kept ready for work of `reserved_from_priority` and above; recreated when lost.
        reserved_from_priority: lowest priority that may claim reserved groups.
        lend_reserved: whether lower-priority preemptible work may borrow an idle reserved group; it is preempted as
            soon as entitled work needs the group.
        max_dynamic: most groups besides the reserved ones; None for no limit.
        reuse: whether an idle dynamic group is kept for the next work that fits.
        protected: whether work of other pools never preempts work of this one.
        min_available: label value (`role=rollout`) -> running requests with it that preemption must leave.
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
