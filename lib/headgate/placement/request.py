"""What somebody wants placed, and where it stands: waiting, promised a place, running, being stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
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


class Stage(StrEnum):
    """Where a request stands."""

    WAITING = "waiting"
    CLEARING = "clearing"  # victims of it are being stopped, or groups removed
    PLACING = "placing"  # its group is being made, or its work started
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"

    @property
    def has_ended(self) -> bool:
        """Whether it will not run again."""
        return self in {Stage.DONE, Stage.FAILED, Stage.WITHDRAWN}


@dataclass(slots=True)
class Occupancy:
    """One request through its life; owned and changed by the ledger alone.

    Attributes:
        request: what is wanted.
        holder: the driver that submitted it; its lease keeps the work alive.
        submitted_at: monotonic seconds; its place in line, kept when it is preempted.
        order: breaks ties of `submitted_at`.
        stage: see `Stage`.
        epoch: grows with every start.
        lease_id: of the current or last start; empty before the first.
        group_id: where it runs or will run; empty when it waits.
        started_at: monotonic seconds of the current start, None when it does not run.
        saved_at: monotonic seconds of the last checkpoint of this start (or its start).
        served_s: seconds that it ran in all before this start; 0 where a stop left nothing of them.
        left_s: how much longer it was likely to run when it began to wait; see `Durations`.
        outran: how many times twice as long as it stated it has run; see `Durations`.
        preemptions: how often it was stopped for others that outrank it.
        losses: how often its node or process was lost.
        stop_reason: why it is being stopped.
        victims: request ids that must be gone before it is placed.
        evicting: group ids that must be gone before its group is made.
        waiting_since: monotonic seconds since it waits this time.
        not_before: monotonic seconds before which no place is looked for again.
        on_loan: whether it runs in a reserved group that is not its by right.
        stopped_for: request id of the preemptor that stops it; empty otherwise.
        stop_at: monotonic seconds when its stop was asked for.
        begun: whether its work was asked to start in the group that it has now.
        note: why it ended, for people.
    """

    request: PlacementRequest
    holder: str
    submitted_at: float
    order: int
    stage: Stage = Stage.WAITING
    epoch: int = 0
    lease_id: str = ""
    group_id: str = ""
    started_at: float | None = None
    saved_at: float = 0.0
    served_s: float = 0.0
    left_s: float = 0.0
    outran: int = 0
    preemptions: int = 0
    losses: int = 0
    stop_reason: str = ""
    victims: set[str] = field(default_factory=set)
    evicting: set[str] = field(default_factory=set)
    waiting_since: float = 0.0
    not_before: float = 0.0
    on_loan: bool = False
    stopped_for: str = ""
    stop_at: float = 0.0
    begun: bool = False
    note: str = ""

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.request_id
