"""What somebody wants placed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from headgate.placement.amounts import Amounts, total

Strategy = Literal["STRICT_PACK", "PACK", "STRICT_SPREAD", "SPREAD"]
"""How Ray places the bundles of a gang."""


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Work that wants a placement group of its own: one bundle, or a gang of several that start together or not at all.

    Checked by `checked_request`; the ledger trusts it.

    Attributes:
        request_id: unique; submitting an id again returns its request.
        pool: whose quota it counts against.
        bundles: what each member takes; several make a gang, which starts whole or not at all.
        priority: higher goes first; its whole part is its band.
        labels: for preemption rules, e.g. `role: train`.
        strategy: how Ray places the members of a gang.
        node_labels: labels that every node of it needs.
        preemptible: whether other work may preempt it.
        estimated_duration_s: expected run time; 0 if unknown.
        restart_s: what a preemption costs besides the work since the last checkpoint, in seconds of work.
        min_runtime_s: how long it runs before it may be preempted; None takes the rule's.
        own_process: whether it gets a process of its own instead of the group's warm host.
        checkpoints: whether a preemption loses only the work since its last checkpoint.
    """

    request_id: str
    pool: str
    bundles: tuple[Amounts, ...]
    priority: float = 5.0
    labels: Mapping[str, str] = field(default_factory=dict)
    strategy: Strategy = "PACK"
    node_labels: Mapping[str, str] = field(default_factory=dict)
    preemptible: bool = True
    estimated_duration_s: float = 0.0
    restart_s: float = 0.0
    min_runtime_s: float | None = None
    own_process: bool = False
    checkpoints: bool = True

    @property
    def size(self) -> Amounts:
        """The sum of its bundles."""
        return self.bundles[0] if len(self.bundles) == 1 else total(self.bundles)

    @property
    def is_gang(self) -> bool:
        """Whether several members start together."""
        return len(self.bundles) > 1
