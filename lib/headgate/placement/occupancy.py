"""Requests on their way: waiting, promised a place, running, being stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from headgate.placement.request import PlacementRequest


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
        preemptions: how often it was stopped for others.
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
