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
        events: what happened.
        version: grows when something may fit that did not before.
        joined: request ids that have joined the line since its last pass.
        look_again_at: when the whole line is to be looked at again, though nothing changes.
        changed_pools: names of pools to be journalled.
        changed_groups: ids of groups to be journalled.
        changed_requests: ids of requests to be journalled.
    """

    events: list[Event] = field(default_factory=list)
    version: int = 0
    joined: list[str] = field(default_factory=list)
    look_again_at: float = inf
    changed_pools: set[str] = field(default_factory=set)
    changed_groups: set[str] = field(default_factory=set)
    changed_requests: set[str] = field(default_factory=set)
    _commands: list[Command] = field(default_factory=list)
    _wakes: list[float] = field(default_factory=list)

    def ask(self, command: Command) -> None:
        """Ask for something to be done in the cluster."""
        self._commands.append(command)

    def changed(self) -> None:
        """Note that something may fit now that did not before."""
        self.version += 1

    def tell(self, event: Event) -> None:
        """Add an event."""
        self.events.append(event)

    def touch(self, request: Occupancy) -> None:
        """Note that a request is to be journalled."""
        self.changed_requests.add(request.request_id)

    def wake_at(self, at: float) -> None:
        """Ask for a decision at a time."""
        if at < inf:
            heapq.heappush(self._wakes, at)

    def look_at(self, at: float) -> None:
        """Ask for a look at the whole line at a time."""
        self.look_again_at = min(at, self.look_again_at)
        self.wake_at(at)

    def slept_until(self, now: float) -> None:
        """Drop the times that are over."""
        while self._wakes and self._wakes[0] <= now:
            heapq.heappop(self._wakes)

    def next_wake(self) -> float | None:
        """Return the first time that was asked for."""
        return self._wakes[0] if self._wakes else None

    def take_commands(self) -> list[Command]:
        """Return the commands since the last call."""
        commands, self._commands = self._commands, []
        return commands

    def take_changes(self) -> Changes:
        """Return the names of what changed since the last call."""
        changes = Changes(
            frozenset(self.changed_pools), frozenset(self.changed_groups), frozenset(self.changed_requests)
        )
        self.changed_pools, self.changed_groups, self.changed_requests = set(), set(), set()
        return changes
