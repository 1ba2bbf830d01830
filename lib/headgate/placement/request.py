"""A request for placement, and its stage: waiting, promised a place, running, being stopped, ended."""

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
        min_runtime_s: how long it runs before it may be preempted; None for the value of the rules.
        own_process: whether it gets a process of its own instead of the group's warm host.
        checkpoints: whether a preemption loses only the work since its last checkpoint.
        is_lease: whether it is a group for its driver's own tasks, which ends with the driver.
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
    is_lease: bool = False

    @property
    def size(self) -> Amounts:
        """The sum of its bundles."""
        return self.bundles[0] if len(self.bundles) == 1 else total(self.bundles)


class Stage(StrEnum):
    """Stage of a request."""

    WAITING = "waiting"
    CLEARING = "clearing"  # its victims are being stopped, or groups in its way removed
    PLACING = "placing"  # its group is being created, or its work started
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
    """The state of one request over its life; owned and changed by the ledger alone.

    Attributes:
        request: the request as submitted.
        holder: the driver that submitted it; its lease keeps the work alive.
        submitted_at: monotonic seconds; determines its position in the queue, kept when it is preempted.
        order: breaks ties of `submitted_at`.
        stage: see `Stage`.
        epoch: grows with every start.
        lease_id: of the current or last start; empty before the first.
        group_id: where it runs or will run; empty when it waits.
        started_at: monotonic seconds of the current start; None if it does not run.
        saved_at: monotonic seconds of the last checkpoint of this start (or its start).
        served_s: seconds that it ran in total before this start; 0 if it makes no checkpoints, as stops undo its work.
        left_s: how much longer it was likely to run when it began to wait; see `Durations`.
        outran: how many doublings of its estimate it has run; see `Durations`.
        preemptions: how often it was stopped for requests that outrank it.
        losses: how often its node or process was lost.
        stop_reason: why it is being stopped.
        victims: ids of requests that must be gone before it is placed.
        evicting: ids of groups that must be gone before its group is created.
        waiting_since: monotonic seconds since when it has been waiting this time.
        not_before: monotonic seconds before which it is not placed again.
        on_loan: whether it runs in a reserved group to which it is not entitled.
        stopped_for: request id of the preemptor for which it is stopped; empty otherwise.
        stop_at: monotonic seconds when the stop was commanded.
        begun: whether its work was commanded to start in its current group.
        note: why it ended, as text.
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
