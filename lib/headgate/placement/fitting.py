"""Where the bundles of a group can lie: greedy packing on nodes, whole vectors at once.

Bundles go largest first, each to the node that it leaves the least room on. For bundles of one size, which gangs have,
this finds a place whenever there is one under STRICT_PACK, STRICT_SPREAD and SPREAD, and under PACK as well; for mixed
sizes it may miss a packing that an exhaustive search finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from headgate.placement.amounts import Amounts
from headgate.placement.node import NodeView
from headgate.placement.pool import GroupShape

Room = dict[str, dict[str, int]]
"""Node id -> resource -> units that are free; may be negative where more is promised than there is."""

_ONE_NODE: Final = frozenset({"STRICT_PACK", "PACK"})


def take(room: dict[str, int], amounts: Amounts) -> None:
    """Take amounts from the room of one node."""
    for name, units in amounts.units:
        room[name] = room.get(name, 0) - units


def give(room: dict[str, int], amounts: Amounts) -> None:
    """Give amounts back to the room of one node."""
    for name, units in amounts.units:
        room[name] = room.get(name, 0) + units


def fits(room: Mapping[str, int], amounts: Amounts) -> bool:
    """Tell whether amounts can be taken from the room of one node."""
    return all(units <= room.get(name, 0) for name, units in amounts.units)


def place(shape: GroupShape, room: Room, nodes: Mapping[str, NodeView]) -> tuple[str, ...] | None:
    """Return the node of each bundle, or None where the shape does not fit. Changes nothing."""
    if shape.node_labels:
        allowed = [node for node in room if node in nodes and nodes[node].has(shape.node_labels)]
    else:
        allowed = [node for node in room if node in nodes]
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


def _one_by_one(
    shape: GroupShape, allowed: list[str], room: Room, nodes: Mapping[str, NodeView]
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
            node = node or _roomiest(fresh, left, bundle, nodes)
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
    """Return how much of the node stays free after the bundle, as the mean share of its resources."""
    total = node.total.units
    wanted = dict(bundle.units)
    return sum((room.get(name, 0) - wanted.get(name, 0)) / units for name, units in total) / max(1, len(total))


def _tightest(among: Iterable[str], room: Room, bundle: Amounts, nodes: Mapping[str, NodeView]) -> str | None:
    fitting = [(_slack(nodes[node], room[node], bundle), node) for node in among if fits(room[node], bundle)]
    return min(fitting)[1] if fitting else None


def _roomiest(among: Iterable[str], room: Room, bundle: Amounts, nodes: Mapping[str, NodeView]) -> str | None:
    fitting = [(-_slack(nodes[node], room[node], bundle), node) for node in among if fits(room[node], bundle)]
    return min(fitting)[1] if fitting else None


def covers(group: GroupShape, nodes: tuple[str, ...], wanted: GroupShape, views: Mapping[str, NodeView]) -> bool:
    """Tell whether a group that lies on `nodes` can carry `wanted`, each bundle in the bundle of its rank."""
    if len(group.bundles) != len(wanted.bundles):
        return False
    if len(wanted.bundles) == 1:
        if not wanted.bundles[0].fits(group.bundles[0]):
            return False
    else:
        pairs = zip(wanted.bundles, group.bundles, strict=True)
        if not all(small.fits(large) for small, large in pairs):
            return False
        if wanted.strategy == "STRICT_PACK" and len(set(nodes)) > 1:
            return False
        if wanted.strategy == "STRICT_SPREAD" and len(set(nodes)) < len(nodes):
            return False
    return all(node in views and views[node].has(wanted.node_labels) for node in set(nodes))
