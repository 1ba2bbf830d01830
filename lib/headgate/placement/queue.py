"""The queue: bands first, inside a band priority that ages with waiting; and the reservation of whoever is first.

Ageing is linear, so of two requests that both wait the order never changes: the queue is kept sorted by a key that does
not depend on the time, and a band is never left by ageing.

A shadow says where and when the first request that cannot be placed will fit, so that others go around it. The rule is
EASY backfill (Lifka 1995) on several resources: a later request may start now if it will have ended when the shadow
begins, or if it takes only what the shadow leaves over.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headgate.placement.amounts import NOTHING, Amounts
from headgate.placement.durations import Durations, level
from headgate.placement.holdings import Holdings, Room, fits, give, place, take
from headgate.placement.pool import GroupShape, Pool
from headgate.placement.request import Occupancy, PlacementRequest
from headgate.placement.rules import PreemptionRules
from headgate.placement.victims import promoted_band

Key = tuple[int, float, int]
Kind = tuple[object, ...]


def ranking_labels(wanted: PlacementRequest, rules: PreemptionRules) -> tuple[tuple[str, str | None], ...]:
    """Return those labels of a request that rules of preemption look at."""
    return tuple((key, wanted.labels.get(key)) for key in rules.order.below)


def kind_of(waiting: Occupancy, rules: PreemptionRules) -> Kind:
    """Return what two requests must share for the one to find no place where the other found none."""
    wanted = waiting.request
    return (
        wanted.pool,
        wanted.bundles,
        wanted.strategy,
        tuple(sorted(wanted.node_labels.items())),
        ranking_labels(wanted, rules),
        wanted.priority,
        wanted.preemptible,
        level(waiting.left_s),
    )


@dataclass(slots=True)
class Queue:
    """Waiting requests in the order in which they are looked at. Owned by the ledger.

    Each stands with the number of its kind, so that a pass over a long line compares numbers and not requests; a
    number is never given to another kind.
    """

    ageing_per_s: float
    _standing: list[tuple[Key, str, int]] = field(default_factory=list)
    _place_of: dict[str, tuple[Key, Kind]] = field(default_factory=dict)
    _numbers: dict[Kind, int] = field(default_factory=dict)
    _counts: dict[Kind, int] = field(default_factory=dict)
    _last_number: int = 0

    def key(self, waiting: Occupancy, rules: PreemptionRules) -> Key:
        """Return what orders a request: band, aged priority, order of arrival; smallest first."""
        since = waiting.submitted_at + rules.short_first * waiting.left_s
        aged = waiting.request.priority - self.ageing_per_s * since
        return (-promoted_band(waiting, rules), -aged, waiting.order)

    def add(self, waiting: Occupancy, rules: PreemptionRules) -> None:
        """Let a request stand in line."""
        key, kind = self.key(waiting, rules), kind_of(waiting, rules)
        if kind not in self._numbers:
            self._last_number += 1
            self._numbers[kind] = self._last_number
        self._counts[kind] = self._counts.get(kind, 0) + 1
        insort(self._standing, (key, waiting.request_id, self._numbers[kind]))
        self._place_of[waiting.request_id] = (key, kind)

    def discard(self, request_id: str) -> None:
        """Take a request out, if it stands there."""
        if request_id not in self._place_of:
            return
        key, kind = self._place_of.pop(request_id)
        del self._standing[bisect_left(self._standing, (key, request_id))]
        self._counts[kind] -= 1
        if not self._counts[kind]:
            del self._counts[kind], self._numbers[kind]

    def sort(self, waiting: Iterable[Occupancy], rules: PreemptionRules) -> None:
        """Have everybody who waits stand as other rules have it."""
        everybody = list(waiting)
        for each in everybody:
            self.discard(each.request_id)
        for each in everybody:
            self.add(each, rules)

    def ahead_of(self, request_id: str) -> int:
        """Return how many stand before a request that waits."""
        return bisect_left(self._standing, (self._place_of[request_id][0], request_id))

    def number_of(self, request_id: str) -> int:
        """Return the number of the kind of a request that waits."""
        return self._numbers[self._place_of[request_id][1]]

    def walk(self) -> Iterator[tuple[str, int]]:
        """Return each request with the number of its kind; the one that was returned last may be taken out."""
        at = 0
        while at < len(self._standing):
            standing = self._standing[at]
            yield standing[1], standing[2]
            if at < len(self._standing) and self._standing[at] is standing:
                at += 1

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._place_of

    def __len__(self) -> int:
        return len(self._standing)


@dataclass(slots=True)
class Shadow:
    """What is kept for one request of one pool.

    Attributes:
        request_id: whom it is cast by.
        pool: its pool.
        begins_at: monotonic seconds; infinite when nobody knows how long the others run.
        spare: node id -> what others may still take beyond `begins_at`, for the nodes of the shadow.
        quota_spare: the same for the quota of the pool.
        guesses: whether work that was told nothing counts as likely to run as long as work like it did.
    """

    request_id: str
    pool: str
    begins_at: float
    spare: Room
    quota_spare: dict[str, int]
    guesses: bool = False

    def outlasts(self, other: Occupancy, now: float) -> bool:
        """Tell whether `other` is likely to have ended when this begins, if it starts now."""
        duration = other.left_s if self.guesses else other.request.estimated_duration_s
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


def ends_at(running: Occupancy, now: float, durations: Durations | None) -> float:
    """Return when a request should end: now if it is overdue, infinity where nobody knows.

    With `durations` what was told nothing should end when work like it did.
    """
    if durations is not None:
        return now + durations.left_s(running, now)
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


def cast(
    holdings: Holdings, waiting: Occupancy, pool: Pool, shape: GroupShape, now: float, durations: Durations | None
) -> Shadow | None:
    """Return the shadow of a request that cannot be placed now; None if it would not fit even with all others gone.

    `durations` are given where work that was told nothing may go around it, too.
    """
    idle = [group for group in holdings.groups.values() if group.holder is None]  # can be removed at any time
    leaving = sorted((ends_at(each, now, durations), each.order, each) for each in holdings.placed_requests())
    moments = sorted({now, *(end for end, _, _ in leaving)})  # those that end together are all counted as gone

    def gone_by(at: float) -> tuple[tuple[str, ...] | None, Room, dict[str, int]]:
        """Return where the shape lies with all gone that ends until then, and the room and the quota that leaves."""
        room, quota = holdings.room_without(idle), dict(holdings.quota_left(pool).units)
        for end, _, each in leaving:
            if end > at:
                break
            group = holdings.groups[each.group_id]
            holdings.count_out(group, room)
            if each.request.pool == pool.name and each.request_id not in holdings.freed:
                give(quota, group.size)
        return place(shape, room, holdings.nodes) if fits(quota, shape.size) else None, room, quota

    begins_at = moments[bisect_left(moments, True, hi=len(moments) - 1, key=lambda at: gone_by(at)[0] is not None)]
    found, room, quota = gone_by(begins_at)
    if found is None:
        return None
    spare: Room = {}
    for node, amounts in amounts_by_node(shape, found).items():
        spare[node] = room[node]
        take(spare[node], amounts)
    take(quota, shape.size)
    return Shadow(waiting.request_id, pool.name, begins_at, spare, quota, durations is not None)
