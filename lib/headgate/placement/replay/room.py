"""What is free on each node, as plain lists of integers: rivals and checks ask it many thousand times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate.placement.amounts import Amounts
from headgate.placement.node import NodeView
from headgate.placement.replay.errors import OvercommittedError
from headgate.placement.request import Strategy

Units = tuple[int, ...]
Free = list[list[int]]


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Bundles as integers, one per resource of the cluster. Equal ones of one `Room` are one object.

    Attributes:
        bundles: units of each bundle.
        whole: their sum.
        strategy: where they may lie.
        is_possible: False when a bundle asks for a resource that no node has.
    """

    bundles: tuple[Units, ...]
    whole: Units
    strategy: Strategy
    is_possible: bool = True


class Room:
    """Free units of every node. Owned by one replay, lives as long as it."""

    def __init__(self, nodes: Sequence[NodeView]) -> None:
        self.names = tuple(sorted({name for node in nodes for name in node.total.names()}))
        self.capacity = [self.units_of(node.total) for node in nodes]
        self.free: Free = [list(units) for units in self.capacity]
        self.node_ids = tuple(node.node_id for node in nodes)
        self._places = {node_id: place for place, node_id in enumerate(self.node_ids)}
        self._shapes: dict[tuple[tuple[Amounts, ...], Strategy], Shape] = {}

    def units_of(self, amounts: Amounts) -> Units:
        """Return units in the order of the cluster's resources."""
        have = dict(amounts.units)
        return tuple(have.get(name, 0) for name in self.names)

    def shape_of(self, bundles: tuple[Amounts, ...], strategy: Strategy) -> Shape:
        """Return the shape of bundles, compiled once."""
        key = (bundles, strategy)
        shape = self._shapes.get(key)
        if shape is None:
            units = [self.units_of(bundle) for bundle in bundles]
            possible = all(set(bundle.names()) <= set(self.names) for bundle in bundles)
            whole = tuple(sum(each) for each in zip(*units, strict=True))
            shape = self._shapes[key] = Shape(tuple(units), whole, strategy, possible)
        return shape

    def places(self, node_ids: Iterable[str]) -> tuple[int, ...]:
        """Return the positions of nodes by their ids."""
        return tuple(self._places[node_id] for node_id in node_ids)

    def place(self, shape: Shape) -> tuple[int, ...] | None:
        """Return a node for each bundle by best fit, or None when there is no room."""
        return place_in(self.free, shape)

    def take(self, shape: Shape, nodes: Sequence[int]) -> None:
        """Take the room of a shape.

        Raises:
            OvercommittedError: a node has less.
        """
        for node, bundle in zip(nodes, shape.bundles, strict=True):
            free = self.free[node]
            for position, units in enumerate(bundle):
                free[position] -= units
                if free[position] < 0:
                    raise OvercommittedError(
                        f"node {node} was given out beyond its {self.names[position]}: {free[position]} units are left"
                    )

    def give(self, shape: Shape, nodes: Sequence[int]) -> None:
        """Give the room of a shape back."""
        for node, bundle in zip(nodes, shape.bundles, strict=True):
            free = self.free[node]
            for position, units in enumerate(bundle):
                free[position] += units


def place_in(free: Free, shape: Shape) -> tuple[int, ...] | None:
    """Return a node for each bundle, or None.

    One bundle, or one node for all: the node that is left with the least. Several: the largest first, each on the
    best node left to it; with SPREAD on one that has none of it yet, where there is one.
    """
    if not shape.is_possible:
        return None
    if len(shape.bundles) == 1:
        node = _best(free, shape.bundles[0], ())
        return None if node is None else (node,)
    if shape.strategy == "STRICT_PACK":
        node = _best(free, shape.whole, ())
        return None if node is None else (node,) * len(shape.bundles)
    return _gang(free, shape)


def _gang(free: Free, shape: Shape) -> tuple[int, ...] | None:
    left = [list(units) for units in free]
    found: dict[int, int] = {}
    for place in sorted(range(len(shape.bundles)), key=lambda place: shape.bundles[place], reverse=True):
        bundle = shape.bundles[place]
        taken = tuple(found.values()) if "SPREAD" in shape.strategy else ()
        node = _best(left, bundle, taken)
        if node is None and shape.strategy == "SPREAD":
            node = _best(left, bundle, ())
        if node is None:
            return None
        found[place] = node
        left[node] = [have - units for have, units in zip(left[node], bundle, strict=True)]
    return tuple(found[place] for place in range(len(shape.bundles)))


def _best(free: Free, bundle: Units, without: tuple[int, ...]) -> int | None:
    best, least = None, None
    for node, have in enumerate(free):
        if node in without:
            continue
        for units, room in zip(bundle, have, strict=True):
            if units > room:
                break
        else:
            if least is None or have < least:
                best, least = node, have
    return best
