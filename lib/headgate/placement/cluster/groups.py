"""Placement groups in Ray, created only where room has been seen free, and the nodes with their free room."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray import PlacementGroupID
from ray._private import state
from ray.util import placement_group_table
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from headgate.placement.amounts import NOTHING, Amounts, of_ray, of_units
from headgate.placement.pool import GroupShape, NodeView
from headgate.placement.service.protocol import GroupFailedError


class Inventory:
    """Reads the nodes from Ray. Owned by the executor, one per process; remembers the previous reading."""

    def __init__(self) -> None:
        self._last: dict[str, Amounts] = {}

    def nodes(self, ours: Mapping[str, Amounts]) -> list[NodeView]:
        """Return the living nodes; `ours` is what the ledger's groups take on each.

        Foreign use counts only once two readings in a row show it: room that we have just given up still looks taken
        for up to Ray's report period (10 ms tuned, 100 ms by default), and would otherwise block the ledger. Room that
        was taken a moment ago is missed once; `Groups.create` checks again.
        """
        free = free_per_node()
        seen: dict[str, Amounts] = {}
        views: list[NodeView] = []
        for node in ray.nodes():  # type: ignore[no-untyped-call]
            if not node["Alive"]:
                continue
            node_id = str(node["NodeID"])
            total = of_ray(node["Resources"])
            taken = (total - free.get(node_id, NOTHING) - ours.get(node_id, NOTHING)).clipped()
            seen[node_id] = taken
            before = self._last.get(node_id, NOTHING)
            foreign = of_units({name: min(units, before.get(name)) for name, units in taken.units})
            views.append(NodeView(node_id, total, foreign, dict(node["Labels"])))
        self._last = seen
        return views


def free_per_node() -> dict[str, Amounts]:
    """Return what each living node has free, as known to the cluster's head; takes 0.4 ms for a few nodes."""
    free = state.available_resources_per_node()  # type: ignore[no-untyped-call]
    return {node_id: of_ray(resources) for node_id, resources in free.items()}


def missing(wanted: Mapping[str, Amounts], free: Mapping[str, Amounts]) -> str:
    """Return which node lacks what; empty if everything is free."""
    for node, amounts in wanted.items():
        if not amounts.fits(free.get(node, NOTHING)):
            return f"node {node[:12]} has {free.get(node, NOTHING)} free of {amounts}"
    return ""


PREFIX: Final = "headgate-"
"""Prefix of the names of placement's groups and actors."""

FREE_S: Final = 2.0
"""How long room promised by the ledger may take to show as free: twenty report periods of an untuned cluster."""

READY_S: Final = 5.0
REMOVED_S: Final = 10.0
_LOOK_S: Final = 0.002


@dataclass(frozen=True, slots=True)
class RayGroup:
    """A placement group as Ray knows it.

    `nodes` has the node of each bundle; `shape` is None for a group that was found, not created here.
    """

    group_id: str
    handle: PlacementGroup
    bundles: tuple[Amounts, ...]
    nodes: tuple[str, ...]
    shape: GroupShape | None = None


class Groups:
    """Creates and removes groups. Owned by the executor, one per process."""

    def __init__(self) -> None:
        self._known: dict[str, RayGroup] = {}
        # Serializes creation and removal: Ray can leak bundles if a group is removed while another is being prepared.
        self._turn = asyncio.Lock()

    def get(self, group_id: str) -> RayGroup | None:
        """Return a group that was created or found by this instance."""
        return self._known.get(group_id)

    def taken(self) -> dict[str, Amounts]:
        """Return what the groups of this process take on each node."""
        held: dict[str, Amounts] = {}
        for group in self._known.values():
            for node, bundle in zip(group.nodes, group.bundles, strict=True):
                held[node] = held.get(node, NOTHING) + bundle
        return held

    async def create(self, group_id: str, shape: GroupShape, nodes: Sequence[str]) -> RayGroup:
        """Create a group on these nodes once they have been seen free, and return it when it is ready.

        Ray gives freed room to pending groups only after up to a second, and newest first, so none is left pending.
        From the removal of a group until one of another shape was ready took 11 ms on a tuned cluster, else 101 ms.

        Raises:
            GroupFailedError: the room is not free, or Ray does not create it; nothing of it is left.
        """
        wanted: dict[str, Amounts] = {}
        for bundle, node in zip(shape.bundles, nodes, strict=True):
            wanted[node] = wanted.get(node, NOTHING) + bundle
        until = time.monotonic() + FREE_S
        while True:
            lack = missing(wanted, free_per_node())
            if not lack:
                async with self._turn:
                    # Another group may have taken the room while this one waited for the lock.
                    lack = missing(wanted, free_per_node())
                    if not lack:
                        group = await self._made(group_id, shape, nodes)
                        self._known[group_id] = group
                        return group
            if time.monotonic() >= until:
                raise GroupFailedError(f"Group {group_id} was not created: {lack}")
            await asyncio.sleep(_LOOK_S)

    async def _made(self, group_id: str, shape: GroupShape, nodes: Sequence[str]) -> RayGroup:
        try:
            handle = placement_group(
                [bundle.as_ray() for bundle in shape.bundles],
                strategy=shape.strategy,
                name=group_id,
                lifetime="detached",  # otherwise it would end with this process, and running work with it
                bundle_label_selector=[{"ray.io/node-id": node, **shape.node_labels} for node in nodes],
            )
        except ValueError as error:
            raise GroupFailedError(f"Group {group_id} was not created: {error}") from error
        # `wait` asks the head; `ready()` would run a task in the group: 2 ms against 260 ms when no worker is idle.
        if await asyncio.to_thread(handle.wait, READY_S):
            placed = self._row_of(handle)
            if placed["state"] == "CREATED":
                return RayGroup(group_id, handle, shape.bundles, _nodes(placed), shape)
        row = self._row_of(handle)
        await _removed(handle)
        why = (row.get("stats") or {}).get("scheduling_state", "without giving a reason")
        says = f"Ray says {row.get('state', 'nothing')}, {why}"
        raise GroupFailedError(f"Group {group_id} was not created in {READY_S:g} s: {says}")

    async def remove(self, group_id: str) -> None:
        """Remove a group and return once Ray reports it gone; does nothing if there is none.

        Raises:
            GroupFailedError: it still exists after ten seconds.
        """
        group = self._known.get(group_id) or self.found().get(group_id)
        if group is None:
            return
        async with self._turn:
            await _removed(group.handle)
        self._known.pop(group_id, None)

    async def renewed(self, group_id: str) -> bool:
        """Remove a group with whatever still runs in it and recreate it on the same nodes; False if that fails."""
        group = self._known.get(group_id)
        if group is None:
            return False
        await self.remove(group_id)
        shape = group.shape or GroupShape(group.bundles, "PACK")
        try:
            await self.create(group_id, shape, group.nodes)
        except GroupFailedError:
            return False
        return True

    def stands(self, group_id: str) -> bool:
        """Tell whether Ray still has a group whole, on all its nodes."""
        group = self._known.get(group_id)
        return group is not None and self._row_of(group.handle).get("state") == "CREATED"

    def forget(self, group_id: str) -> None:
        """Forget a group that was removed elsewhere."""
        self._known.pop(group_id, None)

    def found(self) -> Mapping[str, RayGroup]:
        """Return every group in Ray with our prefix, including those of an earlier ledger, and remember them."""
        rows = (row for row in placement_group_table().values() if row["state"] != "REMOVED")
        found = {row["name"]: self._read(row) for row in rows if row["name"].startswith(PREFIX)}
        self._known = {name: group for name, group in self._known.items() if name in found}
        for name, group in found.items():
            self._known.setdefault(name, group)
        return found

    @staticmethod
    def _read(row: Mapping[str, Any]) -> RayGroup:
        bundles = [row["bundles"][index] for index in sorted(row["bundles"])]
        handle = PlacementGroup(PlacementGroupID(bytes.fromhex(row["placement_group_id"])), bundles)
        return RayGroup(row["name"], handle, tuple(of_ray(bundle) for bundle in bundles), _nodes(row))

    @staticmethod
    def _row_of(handle: PlacementGroup) -> Mapping[str, Any]:
        row: Mapping[str, Any] = placement_group_table(handle)
        return row


def _nodes(row: Mapping[str, Any]) -> tuple[str, ...]:
    placed: Mapping[int, str] = row["bundles_to_node_id"]
    return tuple(placed.get(index, "") for index in sorted(row["bundles"]))


async def _removed(handle: PlacementGroup) -> None:
    remove_placement_group(handle)
    until = time.monotonic() + REMOVED_S
    while placement_group_table(handle).get("state", "REMOVED") != "REMOVED":
        if time.monotonic() >= until:
            raise GroupFailedError(f"Ray has not removed the placement group {handle.id.hex()} in {REMOVED_S:g} s")
        await asyncio.sleep(_LOOK_S)
