"""The ledger's state: room on nodes, what pools hold, and on which nodes the bundles of a group fit.

Bundles are packed greedily, by all resources at once: largest first, each onto the node that it leaves the least room
on. For bundles of one size, as in most gangs, this finds a place whenever there is one, under every strategy; for mixed
sizes it may miss a packing that an exhaustive search would find.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from headgate.placement.amounts import NOTHING, Amounts, total
from headgate.placement.pool import Group, GroupShape, GroupState, NodeView, Pool
from headgate.placement.request import Occupancy, Stage

Room = dict[str, dict[str, int]]
"""Node id -> resource -> free units; negative where more is promised than the node has."""

_ONE_NODE: Final = frozenset({"STRICT_PACK", "PACK"})


def take(room: dict[str, int], amounts: Amounts) -> None:
    """Take amounts from the room of one node."""
    for name, units in amounts.units:
        room[name] = room.get(name, 0) - units


def give(room: dict[str, int], amounts: Amounts) -> None:
    """Give amounts back to the room of one node."""
    for name, units in amounts.units:
        room[name] = room.get(name, 0) + units


def occupy(room: Room, group: Group) -> None:
    """Take what a group holds from the room of its nodes, ignoring nodes that are gone."""
    for node, bundle in zip(group.nodes, group.shape.bundles, strict=False):
        if node in room:
            take(room[node], bundle)


def vacate(room: Room, group: Group) -> None:
    """Give what a group holds back to the room of its nodes, ignoring nodes that are gone."""
    for node, bundle in zip(group.nodes, group.shape.bundles, strict=False):
        if (free := room.get(node)) is not None:
            for name, units in bundle.units:  # inlined `give`: a shadow vacates all running work
                free[name] = free.get(name, 0) + units


def fits(room: Mapping[str, int], amounts: Amounts) -> bool:
    """Tell whether amounts can be taken from the room of one node."""
    for name, units in amounts.units:  # noqa: SIM110 - called hundreds of times per decision; `all()` doubles the time
        if units > room.get(name, 0):
            return False
    return True


def place(shape: GroupShape, room: Room, nodes: Mapping[str, NodeView]) -> tuple[str, ...] | None:
    """Return the node of each bundle, or None if the shape does not fit. Changes nothing."""
    allowed = _allowed(shape, room, nodes)
    if len(shape.bundles) == 1:
        best = _tightest(allowed, room, shape.bundles[0], nodes)
        return None if best is None else (best,)
    if shape.strategy in _ONE_NODE:
        one = _tightest(allowed, room, shape.size, nodes)
        if one is not None:
            return (one,) * len(shape.bundles)
        if shape.strategy == "STRICT_PACK":
            return None
    return _one_by_one(shape, allowed, room, nodes)


def could_place(shape: GroupShape, room: Room, nodes: Mapping[str, NodeView]) -> bool:
    """Tell whether `place` finds a place."""
    if len(shape.bundles) == 1 or shape.strategy in _ONE_NODE:
        size = shape.size
        if any(fits(room[node], size) for node in _allowed(shape, room, nodes)):
            return True
        if len(shape.bundles) == 1 or shape.strategy == "STRICT_PACK":
            return False
    return place(shape, room, nodes) is not None


def _allowed(shape: GroupShape, room: Room, nodes: Mapping[str, NodeView]) -> Collection[str]:
    if not shape.node_labels and room.keys() == nodes.keys():
        return room
    return [node for node in room if node in nodes and nodes[node].has(shape.node_labels)]


def _one_by_one(
    shape: GroupShape, allowed: Collection[str], room: Room, nodes: Mapping[str, NodeView]
) -> tuple[str, ...] | None:
    left = {node: dict(room[node]) for node in allowed}
    chosen: dict[int, str] = {}
    used: set[str] = set()
    order = sorted(range(len(shape.bundles)), key=lambda index: _weight(shape.bundles[index]), reverse=True)
    for index in order:
        bundle = shape.bundles[index]
        fresh = [node for node in allowed if node not in used]
        if shape.strategy == "PACK":
            node = _tightest((n for n in allowed if n in used), left, bundle, nodes)
            node = node or _tightest(fresh, left, bundle, nodes, roomiest=True)
        else:
            node = _tightest(fresh, left, bundle, nodes)
            if node is None and shape.strategy == "SPREAD":
                node = _tightest(used, left, bundle, nodes)
        if node is None:
            return None
        take(left[node], bundle)
        used.add(node)
        chosen[index] = node
    return tuple(chosen[index] for index in range(len(shape.bundles)))


def _weight(bundle: Amounts) -> tuple[int, ...]:
    return (bundle.get("GPU"), bundle.get("CPU"), bundle.get("memory"), sum(units for _, units in bundle.units))


def _slack(node: NodeView, room: Mapping[str, int], bundle: Amounts) -> float:
    """Return how much of a node stays free with the bundle on it, as the mean share of its resources."""
    total, wanted, slack = node.total.units, bundle.units, 0.0
    for name, units in total:
        free = room.get(name, 0)
        for other, less in wanted:
            if other == name:
                free -= less
        slack += free / units
    return slack / max(1, len(total))


def _tightest(
    among: Iterable[str], room: Room, bundle: Amounts, nodes: Mapping[str, NodeView], *, roomiest: bool = False
) -> str | None:
    """Return the node that a bundle leaves the least room on, or the most with `roomiest`; None if it fits on none."""
    sign, best = -1 if roomiest else 1, (inf, "")
    for node in among:
        free = room[node]
        for name, units in bundle.units:  # inlined `fits`: checked for every node, many times per decision
            if units > free.get(name, 0):
                break
        else:
            best = min(best, (sign * _slack(nodes[node], free, bundle), node))
    return best[1] or None


def covers(group: GroupShape, nodes: tuple[str, ...], wanted: GroupShape, views: Mapping[str, NodeView]) -> bool:
    """Tell whether a group on `nodes` can hold `wanted`, each bundle inside the group's bundle of the same rank."""
    if len(group.bundles) != len(wanted.bundles):
        return False
    if not all(small.fits(large) for small, large in zip(wanted.bundles, group.bundles, strict=True)):
        return False
    if len(wanted.bundles) > 1:
        if wanted.strategy == "STRICT_PACK" and len(set(nodes)) > 1:
            return False
        if wanted.strategy == "STRICT_SPREAD" and len(set(nodes)) < len(nodes):
            return False
    return all(node in views and views[node].has(wanted.node_labels) for node in set(nodes))


_PLACED = frozenset({Stage.CLEARING, Stage.PLACING, Stage.RUNNING, Stage.STOPPING})


@dataclass(slots=True)
class Holdings:
    """Nodes, pools, groups and requests with their sums. Changed only through its methods; owned by the ledger.

    Attributes:
        nodes: node id -> what it has; living nodes only.
        pools: name -> pool.
        groups: group id -> group that exists or is being created.
        requests: request id -> request, including ended ones until they are forgotten.
        room: node id -> units that are free, or will be once every leaving group is gone.
        leaving: groups that are being removed, or will be as soon as their occupant is gone.
        held: pool -> what its placed requests hold, including promised groups.
        placed: pool -> request ids that hold a group or are promised one.
        freed: request ids that are being stopped for others: their pool is no longer charged for them.
        possible: kinds of request that fit on these nodes when empty.
        cluster: total resources of all nodes.
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
    possible: set[tuple[object, ...]] = field(default_factory=set)
    cluster: Amounts = NOTHING

    def see(self, nodes: Iterable[NodeView]) -> None:
        """Replace the list of living nodes."""
        self.nodes = {node.node_id: node for node in nodes}
        self.cluster = total(node.total for node in self.nodes.values())
        self.possible.clear()
        self.room = {node_id: dict(node.usable.units) for node_id, node in self.nodes.items()}
        for group in self.groups.values():
            if group.group_id not in self.leaving:
                occupy(self.room, group)

    def add_group(self, group: Group) -> None:
        """Count a new group on its nodes."""
        self.groups[group.group_id] = group
        occupy(self.room, group)

    def move_group(self, group: Group, nodes: tuple[str, ...]) -> None:
        """Count a group on the nodes where Ray has actually placed it."""
        leaving = group.group_id in self.leaving
        if not leaving:
            vacate(self.room, group)
        group.nodes = nodes
        if not leaving:
            occupy(self.room, group)

    def leave(self, group: Group) -> None:
        """Count the room of a group as free: it will be removed as soon as possible."""
        if group.group_id not in self.leaving:
            self.leaving.add(group.group_id)
            vacate(self.room, group)

    def in_the_way(self, nodes: Iterable[str]) -> set[str]:
        """Return the leaving groups that must be gone before there is room for what is promised on these nodes."""
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
            vacate(self.room, group)

    def hold(self, request: Occupancy, group: Group) -> None:
        """Promise a group to a request and charge its pool for the whole group."""
        pool = request.request.pool
        request.group_id = group.group_id
        self.held[pool] = self.held.get(pool, NOTHING) + group.size
        self.placed.setdefault(pool, set()).add(request.request_id)

    def free_quota(self, request: Occupancy) -> None:
        """Stop charging a pool for work that is being stopped for others: they are charged in its place."""
        if request.request_id not in self.freed:
            self.freed.add(request.request_id)
            pool = request.request.pool
            self.held[pool] = self.held[pool] - self.groups[request.group_id].size

    def let_go(self, request: Occupancy) -> None:
        """Stop charging the pool for a request's group."""
        pool = request.request.pool
        self.free_quota(request)
        self.freed.discard(request.request_id)
        self.placed[pool].discard(request.request_id)
        request.group_id = ""

    def quota_left(self, pool: Pool) -> Amounts:
        """Return what the pool's work may still take; negative while victims are not gone yet."""
        return pool.quota - self.held.get(pool.name, NOTHING)

    def within_quota(self, pool: Pool, size: Amounts, freed: Amounts = NOTHING) -> bool:
        """Tell whether the pool may hold `size` more once `freed` is given back."""
        return size.fits(self.quota_left(pool) + freed)

    def groups_of(self, pool: str) -> Iterator[Group]:
        """Return the groups of one pool."""
        return (group for group in self.groups.values() if group.pool == pool)

    def free_groups(self) -> list[Group]:
        """Return the groups that no request holds or waits for."""
        return [group for group in self.groups.values() if group.state is GroupState.FREE]

    def idle_groups(self) -> list[Group]:
        """Return the free dynamic groups, which may be removed at any time; the longest idle first."""
        return sorted((each for each in self.free_groups() if each.reserved is None), key=lambda each: each.since)

    def may_go(self, group: Group) -> bool:
        """Tell whether a group may be removed for room once it is free: it is dynamic and not already leaving."""
        return group.reserved is None and group.group_id not in self.leaving

    def room_without(self, groups: Iterable[Group]) -> Room:
        """Return the room that there would be without these groups; groups that may not be removed stay."""
        room: Room = {node: dict(units) for node, units in self.room.items()}
        for group in groups:
            self.count_out(group, room)
        return room

    def count_out(self, group: Group, room: Room) -> None:
        """Give what a group holds back to `room`, if the group may be removed."""
        if group.reserved is None and group.group_id not in self.leaving:
            vacate(room, group)

    def dynamic_count(self, pool: str) -> int:
        """Return how many dynamic groups a pool has, not counting those that are leaving."""
        return sum(self.may_go(group) for group in self.groups_of(pool))

    def placed_requests(self) -> Iterator[Occupancy]:
        """Return every request that holds a group or is promised one."""
        return (self.requests[request_id] for ids in self.placed.values() for request_id in ids)

    def validate(self) -> None:
        """Assert that the sums agree with their parts."""
        room: Room = {node_id: dict(node.usable.units) for node_id, node in self.nodes.items()}
        assert self.leaving <= self.groups.keys(), "a group that is gone is leaving"
        for group in self.groups.values():
            if group.group_id not in self.leaving:
                occupy(room, group)
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
