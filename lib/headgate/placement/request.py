"""What somebody wants placed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from headgate.placement.amounts import Amounts, total

Strategy = Literal["STRICT_PACK", "PACK", "STRICT_SPREAD", "SPREAD"]
"""Where the bundles of a gang may lie, in Ray's words."""


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Work that wants a placement group of its own: one bundle, or a gang of several that start together or not at all.

    Checked by `checked_request`; the ledger trusts it.

    Attributes:
        request_id: unique; the same id again is the same request.
        pool: whose quota it counts against.
        bundles: what each member takes; more than one is a gang.
        priority: higher goes first; its whole part is its band.
        labels: what preemption rules look at, e.g. `role: train`.
        strategy: where the members of a gang may lie.
        node_labels: labels that a node must have; every bundle the same.
        preemptible: whether it may be stopped for others.
        estimated_duration_s: how long it will run; 0 where nobody knows.
        restart_s: seconds of work that a stop and a new start cost besides what was done since the last checkpoint.
        min_runtime_s: it is not stopped before it ran so long; None takes the rule's.
        own_process: start it in a process of its own and not in the group's warm host.
        checkpoints: whether stopping it loses only what was done since its last checkpoint.
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
