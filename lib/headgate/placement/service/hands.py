"""What acts in the cluster for the ledger: the protocol, and the plain values that pass through it."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from headgate.core.errors import HeadgateError
from headgate.placement.amounts import Amounts
from headgate.placement.commands import CreateGroup
from headgate.placement.node import NodeView

WorkKind = Literal["hosted", "own_process", "lease"]
"""How work runs: in the group's warm host, as a process of its own, or as the holder of the lease likes."""


class GroupFailedError(HeadgateError):
    """A group could not be created, or has vanished."""

    code = "group_failed"
    http_status = 503
    next_step = "It is retried automatically; `headgate placement audit` compares the ledger with Ray."


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """Work to be started in a group.

    Attributes:
        request_id: whose work.
        lease_id: of this start.
        epoch: of this start.
        kind: how it runs.
        payload: cloudpickled (class, args, kwargs, method, ray options); empty for a lease.
        state: what an earlier start has saved; None for a fresh start.
        bundles: what each member has.
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
    """How work ended by itself. `payload` is the pickled result or exception; of a gang, a pickled tuple of them."""

    kind: Literal["returned", "raised", "died"]
    payload: bytes = b""
    why: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """Work that was started. `outcome` never comes when the work is stopped from outside."""

    request_id: str
    epoch: int
    group_id: str
    outcome: Awaitable[Outcome]


@dataclass(frozen=True, slots=True)
class Stopped:
    """How a stop ended.

    Attributes:
        state: what was saved; None for nothing new.
        dead: whether it is seen gone; False where nobody knows whether it still runs.
        answered: whether it stopped by itself in time, without an error.
    """

    state: bytes | None
    dead: bool
    answered: bool = False


class Hands(Protocol):
    """Acts in the cluster. No method blocks the event loop."""

    async def nodes(self, ours: Mapping[str, Amounts]) -> list[NodeView]:
        """Return the living nodes."""

    async def create_group(self, command: CreateGroup) -> tuple[str, ...]:
        """Make a group and return its nodes; raises GroupFailedError."""

    async def remove_group(self, group_id: str) -> None:
        """Remove a group and return when it is gone."""

    async def start(self, group_id: str, nodes: Sequence[str], work: WorkOrder) -> Running:
        """Start work in a group; raises GroupFailedError."""

    async def stop(self, running: Running, timeout_s: float) -> Stopped:
        """Ask work to stop, kill it after the time, and return when it is dead."""

    def reach(self, running: Running) -> tuple[Any, ...]:
        """Return what a driver reaches work by, one per member: hosts, actors of its own; of a lease its group."""

    async def existing_groups(self) -> Mapping[str, tuple[str, ...]]:
        """Return groups of ours in the cluster, with their nodes."""

    async def adopt(self, group_id: str, work: WorkOrder) -> Running | None:
        """Take up work again that runs since before a restart; None when it does not."""
