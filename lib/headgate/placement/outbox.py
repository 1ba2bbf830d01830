"""The ledger's output: commands, events, names of what changed, and when it must be woken."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from math import inf

from headgate.core.events import Event
from headgate.placement.outcomes import Changes
from headgate.placement.pool import GroupShape
from headgate.placement.request import Occupancy


@dataclass(frozen=True, slots=True)
class CreateGroup:
    """Create a group once the nodes have been seen free; answered by `group_created` or `group_failed`.

    `nodes` is where the ledger expects the bundles; Ray may choose others, and the answer says which.
    """

    group_id: str
    epoch: int
    shape: GroupShape
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    """Remove a group; answered by `group_gone` once Ray reports it gone."""

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


@dataclass(slots=True)
class Outbox:
    """Collects the ledger's output until it is taken. Owned by the ledger.

    Attributes:
        commands: commands for the cluster.
        version: grows whenever something may fit that did not fit before.
        joined: ids of requests that have joined the queue since the last pass over it.
        look_again_at: when a full pass over the queue is due even if nothing changes.
        changes: what has to be journalled.
    """

    commands: list[Command] = field(default_factory=list)
    version: int = 0
    joined: list[str] = field(default_factory=list)
    look_again_at: float = inf
    changes: Changes = field(default_factory=Changes)
    _events: list[Event] = field(default_factory=list)
    _wakes: list[float] = field(default_factory=list)

    def changed(self) -> None:
        """Record that something may fit now that did not before."""
        self.version += 1

    def tell(self, event: Event) -> None:
        """Add an event."""
        self._events.append(event)

    def touch(self, request: Occupancy) -> None:
        """Mark a request to be journalled."""
        self.changes.requests.add(request.request_id)

    def wake_at(self, at: float) -> None:
        """Request a call of `decide` at this time."""
        if at < inf:
            heapq.heappush(self._wakes, at)

    def look_at(self, at: float) -> None:
        """Request a full pass over the queue at this time."""
        self.look_again_at = min(at, self.look_again_at)
        self.wake_at(at)

    def next_wake(self) -> float | None:
        """Return when the ledger must decide again even if nothing is reported; None for never."""
        return self._wakes[0] if self._wakes else None

    def take_commands(self, now: float) -> list[Command]:
        """Return the commands since the last call, and drop wake times that have passed."""
        while self._wakes and self._wakes[0] <= now:
            heapq.heappop(self._wakes)
        commands, self.commands = self.commands, []
        return commands

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        told, self._events = self._events, []
        return told

    def take_changes(self) -> Changes:
        """Return the names of what changed since the last call."""
        changes, self.changes = self.changes, Changes()
        return changes
