"""What the ledger has to tell: commands, events, names of what changed, and when it wants to be woken."""

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


@dataclass(slots=True)
class Outbox:
    """Collects until somebody takes it. Owned by the ledger.

    Attributes:
        commands: what is to be done in the cluster.
        version: grows when something may fit that did not before.
        joined: request ids that have joined the line since its last pass.
        look_again_at: when the whole line is to be looked at again, though nothing changes.
        changes: what is to be journalled.
    """

    commands: list[Command] = field(default_factory=list)
    version: int = 0
    joined: list[str] = field(default_factory=list)
    look_again_at: float = inf
    changes: Changes = field(default_factory=Changes)
    _events: list[Event] = field(default_factory=list)
    _wakes: list[float] = field(default_factory=list)

    def changed(self) -> None:
        """Note that something may fit now that did not before."""
        self.version += 1

    def tell(self, event: Event) -> None:
        """Add an event."""
        self._events.append(event)

    def touch(self, request: Occupancy) -> None:
        """Note that a request is to be journalled."""
        self.changes.requests.add(request.request_id)

    def wake_at(self, at: float) -> None:
        """Ask for a decision at a time."""
        if at < inf:
            heapq.heappush(self._wakes, at)

    def look_at(self, at: float) -> None:
        """Ask for a look at the whole line at a time."""
        self.look_again_at = min(at, self.look_again_at)
        self.wake_at(at)

    def next_wake(self) -> float | None:
        """Return when the ledger must decide again even if nothing is reported; None where that is never."""
        return self._wakes[0] if self._wakes else None

    def take_commands(self, now: float) -> list[Command]:
        """Return the commands since the last call, and drop the times that are over."""
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
