"""What the ledger knows of a machine of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.placement.amounts import NOTHING, Amounts


@dataclass(frozen=True, slots=True)
class NodeView:
    """One living node.

    Attributes:
        node_id: Ray's id, in hex.
        total: what it has.
        foreign: what is taken by others than the ledger's own groups.
        labels: Ray's node labels.
    """

    node_id: str
    total: Amounts
    foreign: Amounts = NOTHING
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def usable(self) -> Amounts:
        """What groups of the ledger may take together."""
        return (self.total - self.foreign).clipped()

    def has(self, labels: Mapping[str, str]) -> bool:
        """Tell whether it carries all of `labels`."""
        return all(self.labels.get(key) == value for key, value in labels.items())
