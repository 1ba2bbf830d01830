"""What happens to groups by themselves, step by step: made, broken, whole again, removed."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.core import events
from headgate.placement.holdings import Holdings
from headgate.placement.outbox import CreateGroup, Outbox, RemoveGroup
from headgate.placement.outcomes import LedgerSettings
from headgate.placement.pool import Group, GroupShape, GroupState


@dataclass(slots=True)
class GroupLifecycle:
    """States of groups with the commands and events they give. Owned by `Lifecycle`, which knows who is in them.

    Attributes:
        holdings: groups and requests, with what they take.
        settings: of the ledger.
        generation: which life of the ledger it is; part of the names that it gives.
        outbox: commands, events and changes that nobody has taken yet.
        broken: group id -> when it is given up if its nodes are not back.
    """

    holdings: Holdings
    settings: LedgerSettings
    generation: int
    outbox: Outbox
    broken: dict[str, float] = field(default_factory=dict)
    _number: int = 0
    _rebuild_at: dict[tuple[str, int], float] = field(default_factory=dict)
    _made_at: dict[str, float] = field(default_factory=dict)

    def next_number(self) -> int:
        """Return a number that nothing else of this generation has."""
        self._number += 1
        return self._number

    def add(
        self, pool: str, shape: GroupShape, index: int | None, nodes: tuple[str, ...], now: float, holder: str | None
    ) -> Group:
        """Return a new group, of which nothing is in the cluster yet; its room is taken."""
        kind = "d" if index is None else f"r{index}"
        name = f"headgate-{pool}-{kind}-{self.generation}.{self.next_number()}"
        self.outbox.changed_groups.add(name)
        group = Group(name, pool, shape, index, 1, GroupState.CREATING, nodes, holder, 0, now)
        self.holdings.add_group(group)
        return group

    def create(self, group: Group, now: float) -> None:
        """Ask for a group to be made."""
        self._made_at[group.group_id] = now
        self.outbox.ask(CreateGroup(group.group_id, group.epoch, group.shape, group.nodes))

    def created(self, group: Group, nodes: tuple[str, ...], now: float) -> None:
        """A group is ready: its holder's, or free."""
        self.holdings.move_group(group, nodes)
        took_s = max(0.0, now - self._made_at.pop(group.group_id, now))
        self.outbox.tell(events.GroupCreated(group.group_id, group.pool, group.reserved is not None, nodes, took_s))
        group.state = GroupState.FREE if group.holder is None else GroupState.HELD
        self.touch(group, now)
        if group.state is GroupState.FREE:
            self.outbox.changed()

    def failed(self, group: Group, why: str, now: float) -> float:
        """A group could not be made; return when it may be tried again."""
        self.outbox.tell(events.GroupCreationFailed(group.group_id, group.pool, why))
        retry_at = now + self.settings.create_retry_s
        self.outbox.look_at(retry_at)
        if group.reserved is not None:
            self._rebuild_at[group.pool, group.reserved] = retry_at
        return retry_at

    def rebuild_not_before(self, pool: str, index: int) -> float:
        """Return when a reserved group may be tried again."""
        return self._rebuild_at.get((pool, index), 0.0)

    def node_missing(self, group: Group, missing: tuple[str, ...], now: float) -> None:
        """A node of a group is not there: wait a little whether it comes back."""
        if group.group_id in self.broken or group.state is GroupState.REMOVING:
            return
        self.broken[group.group_id] = now + self.settings.heal_grace_s
        self.outbox.wake_at(self.broken[group.group_id])
        if group.state is GroupState.FREE:
            group.state = GroupState.BROKEN
            self.touch(group, now)
        self.outbox.tell(events.GroupBroken(group.group_id, group.pool, missing))

    def healed(self, group: Group) -> None:
        """The nodes of a group are all back."""
        del self.broken[group.group_id]
        if group.state is GroupState.BROKEN and group.holder is None:
            group.state = GroupState.FREE
            self.outbox.changed_groups.add(group.group_id)
            self.outbox.changed()

    def remove(self, group: Group, now: float) -> None:
        """Ask for a group to be removed."""
        self.holdings.leave(group)
        group.state = GroupState.REMOVING
        group.holder = group.heir = None
        group.epoch += 1
        self.touch(group, now)
        self.outbox.ask(RemoveGroup(group.group_id, group.epoch))

    def forget(self, group: Group) -> None:
        """Drop a group of which nothing is in the cluster."""
        self.holdings.drop_group(group)
        self.broken.pop(group.group_id, None)
        self._made_at.pop(group.group_id, None)
        self.outbox.changed_groups.add(group.group_id)
        self.outbox.changed()

    def touch(self, group: Group, now: float) -> None:
        """Note that the state of a group has changed now."""
        group.since = now
        self.outbox.changed_groups.add(group.group_id)
        if group.state is GroupState.FREE and group.reserved is None:
            self.outbox.wake_at(now + self.settings.idle_group_s)
