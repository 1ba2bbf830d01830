"""Plain values that pass between the service and whoever asks it; all of them can be sent to other processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headgate.placement.occupancy import Occupancy, Stage
from headgate.placement.request import PlacementRequest
from headgate.placement.service.hands import WorkKind


@dataclass(frozen=True, slots=True)
class Submission:
    """What a driver hands in: the request, and what is to run (see `WorkOrder.payload`)."""

    request: PlacementRequest
    kind: WorkKind
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class WorkView:
    """Where one request stands.

    Attributes:
        request_id: of the request.
        pool: whose quota it counts against.
        holder: the driver whose life keeps it alive.
        stage: where it stands.
        epoch: number of its current or last start; 0 before the first.
        lease_id: of that start.
        group_id: the group that it has or is promised; empty when it waits.
        members: how many bundles it takes.
        priority: higher goes first.
        labels: of the request.
        preemptions: how often it was stopped for others.
        losses: how often its process or node died.
        stop_reason: why it is being stopped; empty otherwise.
        note: why it ended.
        submitted_at: monotonic seconds of the ledger.
        started_at: monotonic seconds of the ledger, None when it does not run.
    """

    request_id: str
    pool: str
    holder: str
    stage: Stage
    epoch: int
    lease_id: str
    group_id: str
    members: int
    priority: float
    labels: Mapping[str, str]
    preemptions: int
    losses: int
    stop_reason: str
    note: str
    submitted_at: float
    started_at: float | None


@dataclass(frozen=True, slots=True)
class GroupView:
    """One placement group as the ledger sees it."""

    group_id: str
    pool: str
    state: str
    reserved: bool
    size: str
    nodes: tuple[str, ...]
    holder: str | None
    uses: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How a request's work ended: a pickled result (of a gang a pickled tuple of them) or exception."""

    kind: Literal["returned", "raised"]
    payload: bytes
    why: str


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a driver's heartbeat: what has changed since the number that it knows.

    Attributes:
        generation: of the ledger; another one than before means that everything is told anew.
        number: to be given with the next heartbeat.
        views: requests of this driver, and those it watches, that have changed.
    """

    generation: int
    number: int
    views: tuple[WorkView, ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """What a driver reaches running work by: `handles` has one for each member; of a lease its group."""

    kind: WorkKind
    epoch: int
    handles: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """An event with its number and the wall time when it happened."""

    number: int
    wall: float
    event: str
    fields: Mapping[str, Any]


def view_of(occupancy: Occupancy) -> WorkView:
    """Return where a request stands."""
    request = occupancy.request
    return WorkView(
        request_id=request.request_id,
        pool=request.pool,
        holder=occupancy.holder,
        stage=occupancy.stage,
        epoch=occupancy.epoch,
        lease_id=occupancy.lease_id,
        group_id=occupancy.group_id,
        members=len(request.bundles),
        priority=request.priority,
        labels=request.labels,
        preemptions=occupancy.preemptions,
        losses=occupancy.losses,
        stop_reason=occupancy.stop_reason,
        note=occupancy.note,
        submitted_at=occupancy.submitted_at,
        started_at=occupancy.started_at,
    )
