"""Nodes of the cluster, pools, and the placement groups that pools have on the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from headgate.placement.amounts import NOTHING, Amounts, total
from headgate.placement.request import Strategy


@dataclass(frozen=True, slots=True)
class NodeView:
    """One living node.

    Attributes:
        node_id: Ray's id, in hex.
        total: its total resources.
        foreign: what is taken by anything but the ledger's own groups.
        labels: Ray's node labels.
    """

    node_id: str
    total: Amounts
    foreign: Amounts = NOTHING
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def usable(self) -> Amounts:
        """What the ledger's groups may take in total."""
        return (self.total - self.foreign).clipped()

    def has(self, labels: Mapping[str, str]) -> bool:
        """Tell whether it carries all of `labels`."""
        return not labels or all(self.labels.get(key) == value for key, value in labels.items())


RESERVED_FROM_PRIORITY: Final = 8.0
"""Work of this priority and above may claim reserved groups, unless the pool says otherwise."""


@dataclass(frozen=True, slots=True)
class GroupShape:
    """The bundles of a group, and where they may be placed."""

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
        is_whole: whether its quota is all that the cluster has; `pool_or_whole` enlarges it when nodes were added.
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
    is_whole: bool = False


class GroupState(StrEnum):
    """State of a group. Only FREE groups are given to requests.

    CREATING -> FREE <-> HELD -> QUARANTINED -> FREE | REMOVING -> gone; BROKEN if one of its nodes has died.
    """

    CREATING = "creating"
    FREE = "free"
    HELD = "held"
    QUARANTINED = "quarantined"
    BROKEN = "broken"
    REMOVING = "removing"


@dataclass(slots=True)
class Group:
    """One placement group; owned and changed by the ledger alone.

    Attributes:
        group_id: name of the placement group in Ray.
        pool: the pool that it belongs to.
        shape: bundles, strategy, labels.
        reserved: index into the pool's reserved shapes, or None for a dynamic group.
        epoch: grows with every occupant and every creation; reports with another epoch are stale.
        state: see `GroupState`.
        nodes: node id of each bundle; known or planned.
        holder: id of the request that occupies it or is about to; None if free.
        heir: id of the request that gets it once its holder is gone; None if no request waits for it.
        uses: how many occupants it has had.
        since: monotonic seconds of its last change of state.
    """

    group_id: str
    pool: str
    shape: GroupShape
    reserved: int | None
    epoch: int
    state: GroupState
    nodes: tuple[str, ...]
    holder: str | None
    uses: int
    since: float
    heir: str | None = None

    @property
    def size(self) -> Amounts:
        """The resources that it takes from the cluster."""
        return self.shape.size
