"""Values exchanged between drivers, the service and the cluster, and the protocol of the executor."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from headgate.core.errors import HeadgateError
from headgate.placement.amounts import Amounts
from headgate.placement.outbox import CreateGroup
from headgate.placement.pool import NodeView
from headgate.placement.request import Occupancy, PlacementRequest, Stage

WorkKind = Literal["hosted", "own_process", "lease"]
"""How work runs: in the group's warm host, in its own process, or as the holder of the lease likes."""


class GroupFailedError(HeadgateError):
    """A group could not be created, or has vanished."""

    code = "group_failed"
    http_status = 503
    next_step = "It is retried automatically; `headgate placement audit` compares the ledger with Ray."


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """Work to start in a group.

    Attributes:
        request_id: the request.
        lease_id: lease id of this start.
        epoch: epoch of this start.
        kind: how it runs.
        payload: cloudpickled (class, args, kwargs, method, ray options); empty for a lease.
        state: the state that an earlier start has saved; None for a fresh start.
        bundles: the resources of each member.
    """

    request_id: str
    lease_id: str
    epoch: int
    kind: WorkKind
    payload: bytes
    state: bytes | None
    bundles: tuple[Amounts, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How work ended by itself. `payload` is the pickled result or exception; for a gang, a pickled tuple of them."""

    kind: Literal["returned", "raised", "died"]
    payload: bytes = b""
    why: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """Work that was started. `outcome` never resolves if the work is stopped from outside."""

    request_id: str
    epoch: int
    group_id: str
    outcome: Awaitable[Outcome]


@dataclass(frozen=True, slots=True)
class Stopped:
    """How a stop ended.

    Attributes:
        state: the saved state; None if nothing new was saved.
        dead: whether it is seen gone; False if it may still run.
        answered: whether it stopped by itself in time, without an error.
    """

    state: bytes | None
    dead: bool
    answered: bool = False


class Executor(Protocol):
    """Acts in the cluster. No method blocks the event loop."""

    async def nodes(self, ours: Mapping[str, Amounts]) -> list[NodeView]:
        """Return the living nodes."""

    async def create_group(self, command: CreateGroup) -> tuple[str, ...]:
        """Create a group and return its nodes; raises GroupFailedError."""

    async def remove_group(self, group_id: str) -> None:
        """Remove a group and return once it is gone."""

    async def start(self, group_id: str, nodes: Sequence[str], work: WorkOrder) -> Running:
        """Start work in a group; raises GroupFailedError."""

    async def stop(self, running: Running, timeout_s: float) -> Stopped:
        """Ask work to stop, kill it after `timeout_s`, and return once it is dead."""

    def reach(self, running: Running) -> tuple[Any, ...]:
        """Return the handles through which a driver reaches work, one per member: hosts or actors; a lease's group."""

    async def existing_groups(self) -> Mapping[str, tuple[str, ...]]:
        """Return groups of ours in the cluster, with their nodes."""

    async def adopt(self, group_id: str, work: WorkOrder) -> Running | None:
        """Adopt work that was started before a restart; None if it no longer runs."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A driver's submission: the request, and the work to run (see `WorkOrder.payload`)."""

    request: PlacementRequest
    kind: WorkKind
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class WorkView:
    """The state of one request.

    Attributes:
        request_id: id of the request.
        pool: the pool whose quota it counts against.
        holder: the driver whose heartbeats keep it alive.
        stage: its stage.
        epoch: number of its current or last start; 0 before the first.
        lease_id: lease id of that start.
        group_id: the group that it has or is promised; empty if it waits.
        members: how many bundles it takes.
        priority: higher goes first.
        labels: labels of the request.
        preemptions: how often it was stopped for others.
        losses: how often its process or node died.
        stop_reason: why it is being stopped; empty otherwise.
        note: why it ended.
        submitted_at: monotonic seconds of the ledger.
        started_at: monotonic seconds of the ledger; None if it does not run.
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
class Beat:
    """The answer to a driver's heartbeat: what has changed since the number that it knows.

    Attributes:
        generation: the ledger's generation; if it has changed, everything is reported again.
        number: the number to send with the next heartbeat.
        views: changed requests among those of this driver and those it watches.
    """

    generation: int
    number: int
    views: tuple[WorkView, ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """How a driver reaches running work: `handles` has one per member, or the group of a lease."""

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
    """Return the state of a request as drivers see it."""
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
