"""A shadow reservation: where and when the first request that cannot be placed will fit, so that others go around it.

The rule is EASY backfill (Lifka 1995) on several resources: a later request may start now if it will have ended when
the shadow begins, or if it takes only what the shadow leaves over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from headgate.placement.amounts import NOTHING, Amounts
from headgate.placement.book import Book
from headgate.placement.fitting import Room, fits, give, place, take
from headgate.placement.group import Group
from headgate.placement.occupancy import Occupancy
from headgate.placement.pool import GroupShape, Pool


@dataclass(slots=True)
class Shadow:
    """What is kept for one request of one pool.

    Attributes:
        request_id: whom it is cast by.
        pool: its pool.
        begins_at: monotonic seconds; infinite when nobody knows how long the others run.
        spare: node id -> what others may still take beyond `begins_at`, for the nodes of the shadow.
        quota_spare: the same for the quota of the pool.
    """

    request_id: str
    pool: str
    begins_at: float
    spare: Room
    quota_spare: dict[str, int]

    def outlasts(self, other: Occupancy, now: float) -> bool:
        """Tell whether `other` will have ended when this begins, if it starts now."""
        duration = other.request.estimated_duration_s
        return duration > 0 and now + duration <= self.begins_at

    def allows(self, other: Occupancy, nodes: Mapping[str, Amounts], size: Amounts, now: float) -> bool:
        """Tell whether `other` may take `nodes` (node id -> amounts) now without delaying this."""
        if self.outlasts(other, now):
            return True
        if other.request.pool == self.pool and not fits(self.quota_spare, size):
            return False
        return all(fits(self.spare[node], amounts) for node, amounts in nodes.items() if node in self.spare)

    def took(self, other: Occupancy, nodes: Mapping[str, Amounts], size: Amounts, now: float) -> None:
        """Count what `other` takes, unless it will have ended by then."""
        if self.outlasts(other, now):
            return
        if other.request.pool == self.pool:
            take(self.quota_spare, size)
        for node, amounts in nodes.items():
            if node in self.spare:
                take(self.spare[node], amounts)


def ends_at(running: Occupancy, now: float) -> float:
    """Return when a request should end: now if it is overdue, infinity where nobody knows."""
    if running.request.estimated_duration_s <= 0:
        return math.inf
    began = now if running.started_at is None else running.started_at
    return max(now, began + running.request.estimated_duration_s)


def amounts_by_node(shape: GroupShape, nodes: tuple[str, ...]) -> dict[str, Amounts]:
    """Return what a group takes from each of its nodes."""
    taken: dict[str, Amounts] = {}
    for node, bundle in zip(nodes, shape.bundles, strict=True):
        taken[node] = taken.get(node, NOTHING) + bundle
    return taken


def cast(book: Book, waiting: Occupancy, pool: Pool, shape: GroupShape, now: float) -> Shadow | None:
    """Return the shadow of a request that cannot be placed now; None if it would not fit even with all others gone."""
    room: Room = {node: dict(units) for node, units in book.room.items()}
    for group in book.groups.values():
        if group.reserved is None and group.holder is None and group.group_id not in book.leaving:
            _give_back(room, group)  # idle dynamic groups can be removed at any time
    quota = dict(book.quota_left(pool).units)
    begins_at = now
    found = place(shape, room, book.nodes) if fits(quota, shape.size) else None
    for running in sorted(book.placed_requests(), key=lambda each: (ends_at(each, now), each.order)):
        end = ends_at(running, now)
        if found is not None and end > begins_at:
            break  # those that end together are all counted as gone
        begins_at = end
        group = book.groups[running.group_id]
        if group.reserved is None and group.group_id not in book.leaving:
            _give_back(room, group)
        if running.request.pool == pool.name and running.request_id not in book.freed:
            give(quota, group.size)
        if found is None and fits(quota, shape.size):
            found = place(shape, room, book.nodes)
    if found is None:
        return None
    spare: Room = {}
    for node, amounts in amounts_by_node(shape, found).items():
        spare[node] = room[node]
        take(spare[node], amounts)
    take(quota, shape.size)
    return Shadow(waiting.request_id, pool.name, begins_at, spare, quota)


def _give_back(room: Room, group: Group) -> None:
    for node, bundle in zip(group.nodes, group.shape.bundles, strict=False):
        if node in room:
            give(room[node], bundle)
