"""What the ledger knows, and the sums that must always be right: room on nodes, and what pools hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headgate.placement.amounts import NOTHING, Amounts, total
from headgate.placement.fitting import Room, give, take
from headgate.placement.group import Group, GroupState
from headgate.placement.node import NodeView
from headgate.placement.occupancy import Occupancy, Stage
from headgate.placement.pool import Pool

_PLACED = frozenset({Stage.CLEARING, Stage.PLACING, Stage.RUNNING, Stage.STOPPING})


@dataclass(slots=True)
class Book:
    """Nodes, pools, groups and requests with their sums. Changed only through its methods; owned by the ledger.

    Attributes:
        nodes: node id -> what it has; living ones only.
        pools: name -> pool.
        groups: group id -> group that exists or is being made.
        requests: request id -> request, ended ones included until they are forgotten.
        room: node id -> units that are free, or will be once every group that is leaving has left.
        leaving: groups that are being removed, or will be as soon as their occupant is gone.
        held: pool -> what its placed requests hold, promises included.
        placed: pool -> request ids that hold a group or are promised one.
        freed: request ids that are being stopped for others: their pool is charged for them no more.
    """

    nodes: dict[str, NodeView] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    requests: dict[str, Occupancy] = field(default_factory=dict)
    room: Room = field(default_factory=dict)
    held: dict[str, Amounts] = field(default_factory=dict)
    placed: dict[str, set[str]] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    freed: set[str] = field(default_factory=set)
    cluster: Amounts = NOTHING

    def see(self, nodes: Iterable[NodeView]) -> None:
        """Take over the whole list of living nodes."""
        self.nodes = {node.node_id: node for node in nodes}
        self.cluster = total(node.total for node in self.nodes.values())
        self.room = {node_id: dict(node.usable.units) for node_id, node in self.nodes.items()}
        for group in self.groups.values():
            if group.group_id not in self.leaving:
                self._occupy(group)

    def add_group(self, group: Group) -> None:
        """Count a new group on its nodes."""
        self.groups[group.group_id] = group
        self._occupy(group)

    def move_group(self, group: Group, nodes: tuple[str, ...]) -> None:
        """Count a group on the nodes where it really lies."""
        leaving = group.group_id in self.leaving
        if not leaving:
            self._vacate(group)
        group.nodes = nodes
        if not leaving:
            self._occupy(group)

    def leave(self, group: Group) -> None:
        """Count the room of a group as free: it goes as soon as it can."""
        if group.group_id not in self.leaving:
            self.leaving.add(group.group_id)
            self._vacate(group)

    def in_the_way(self, nodes: Iterable[str]) -> set[str]:
        """Return the leaving groups that must be gone before what is promised on these nodes has room."""
        found: set[str] = set()
        for node in set(nodes):
            there = [group for group_id in self.leaving if node in (group := self.groups[group_id]).nodes]
            now = dict(self.room.get(node, {}))
            for group in there:
                for at, bundle in zip(group.nodes, group.shape.bundles, strict=False):
                    if at == node:
                        take(now, bundle)
            if any(units < 0 for units in now.values()):
                found.update(group.group_id for group in there)
        return found

    def drop_group(self, group: Group) -> None:
        """Forget a group that is gone."""
        del self.groups[group.group_id]
        if group.group_id in self.leaving:
            self.leaving.remove(group.group_id)
        else:
            self._vacate(group)

    def hold(self, request: Occupancy, group: Group) -> None:
        """Promise a group to a request and charge its pool with the whole group."""
        pool = request.request.pool
        request.group_id = group.group_id
        self.held[pool] = self.held.get(pool, NOTHING) + group.size
        self.placed.setdefault(pool, set()).add(request.request_id)

    def free_quota(self, request: Occupancy) -> None:
        """Charge a pool no more for work that is being stopped for others: they are charged in its place."""
        if request.request_id not in self.freed:
            self.freed.add(request.request_id)
            pool = request.request.pool
            self.held[pool] = self.held[pool] - self.groups[request.group_id].size

    def let_go(self, request: Occupancy) -> None:
        """Take the charge of a request's group back."""
        pool = request.request.pool
        self.free_quota(request)
        self.freed.discard(request.request_id)
        self.placed[pool].discard(request.request_id)
        request.group_id = ""

    def quota_left(self, pool: Pool) -> Amounts:
        """Return what the pool's work may still take; negative where victims have not gone yet."""
        return pool.quota - self.held.get(pool.name, NOTHING)

    def within_quota(self, pool: Pool, size: Amounts, freed: Amounts = NOTHING) -> bool:
        """Tell whether the pool may hold `size` more once `freed` is given back."""
        left = dict((self.quota_left(pool) + freed).units)
        return all(units <= left.get(name, 0) for name, units in size.units)

    def groups_of(self, pool: str) -> Iterator[Group]:
        """Return the groups of one pool."""
        return (group for group in self.groups.values() if group.pool == pool)

    def free_groups(self) -> list[Group]:
        """Return the groups that nobody holds or waits for."""
        return [group for group in self.groups.values() if group.state is GroupState.FREE]

    def dynamic_count(self, pool: str) -> int:
        """Return how many dynamic groups a pool has, those that are leaving left out."""
        return sum(group.reserved is None and group.group_id not in self.leaving for group in self.groups_of(pool))

    def placed_requests(self) -> Iterator[Occupancy]:
        """Return every request that holds a group or is promised one."""
        return (self.requests[request_id] for ids in self.placed.values() for request_id in ids)

    def validate(self) -> None:
        """Assert that the sums agree with what they are sums of."""
        room: Room = {node_id: dict(node.usable.units) for node_id, node in self.nodes.items()}
        assert self.leaving <= self.groups.keys(), "a group that is gone is leaving"
        for group in self.groups.values():
            for node, bundle in zip(group.nodes, group.shape.bundles, strict=False):
                if node in room and group.group_id not in self.leaving:
                    take(room[node], bundle)
        for node_id, units in room.items():
            have = self.room[node_id]
            assert all(have.get(name, 0) == units.get(name, 0) for name in {*have, *units}), f"room of {node_id}"
        for name in {*self.held, *self.placed}:
            holders = [self.requests[each] for each in self.placed.get(name, ())]
            sums = total(self.groups[each.group_id].size for each in holders if each.request_id not in self.freed)
            assert self.held.get(name, NOTHING) == sums, f"{name}: held {self.held.get(name)}, sum {sums}"
        for request in self.requests.values():
            placed = request.request_id in self.placed.get(request.request.pool, ())
            assert placed == (request.stage in _PLACED), f"{request.request_id}: {request.stage}, placed {placed}"

    def _occupy(self, group: Group) -> None:
        for node, bundle in zip(group.nodes, group.shape.bundles, strict=False):
            if node in self.room:
                take(self.room[node], bundle)

    def _vacate(self, group: Group) -> None:
        for node, bundle in zip(group.nodes, group.shape.bundles, strict=False):
            if node in self.room:
                give(self.room[node], bundle)
