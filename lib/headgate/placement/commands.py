"""What the ledger wants done in the cluster. Each is answered by a report with the same id and epoch."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.placement.pool import GroupShape


@dataclass(frozen=True, slots=True)
class CreateGroup:
    """Make a group, once the nodes have been seen free; answered by `group_created` or `group_failed`.

    `nodes` is where the ledger expects the bundles; Ray may choose others, and the answer says which.
    """

    group_id: str
    epoch: int
    shape: GroupShape
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    """Remove a group; answered by `group_gone` once Ray says so."""

    group_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class StartWork:
    """Start a request's work in its group; answered by `work_started` or `work_ended`."""

    request_id: str
    lease_id: str
    epoch: int
    group_id: str


@dataclass(frozen=True, slots=True)
class StopWork:
    """Ask work to save its state and stop, kill it after `timeout_s`; answered by `work_stopped` when seen dead."""

    request_id: str
    lease_id: str
    epoch: int
    group_id: str
    timeout_s: float
    reason: str


Command = CreateGroup | RemoveGroup | StartWork | StopWork
