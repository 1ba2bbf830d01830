"""Placement groups as the ledger sees them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headgate.placement.amounts import Amounts
from headgate.placement.pool import GroupShape


class GroupState(StrEnum):
    """Where a group stands. Only FREE ones are handed out.

    CREATING -> FREE <-> HELD -> QUARANTINED -> FREE | REMOVING -> gone; BROKEN when a node of it died.
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
        pool: whose reserved group it is, or who made it.
        shape: bundles, strategy, labels.
        reserved: index into the pool's reserved shapes, or None for a dynamic group.
        epoch: grows with every occupant and every creation; reports with another are stale.
        state: see `GroupState`.
        nodes: node id of each bundle; known or planned.
        holder: request id of its occupant, or of what is going to start in it; None when free.
        heir: request id that gets it when its holder is gone; None where nobody waits for it.
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
        """What it takes from the cluster."""
        return self.shape.size
