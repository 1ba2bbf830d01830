"""The queue: by band, and within a band by a priority that grows with waiting; and the first request's reservation.

Ageing is linear, so the order of two waiting requests never changes: the queue is sorted by a key that does not depend
on the time, and ageing never moves a request into another band.

A shadow says where and when the first request that cannot be placed will fit, so that others leave it room. The rule is
EASY backfill (Lifka 1995) over several resources: a later request may start now if it will have ended when the shadow
begins, or if it takes only what the shadow leaves over.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from headgate.placement.amounts import NOTHING, Amounts
from headgate.placement.durations import Durations, level
from headgate.placement.holdings import Holdings, Room, fits, give, place, take
from headgate.placement.pool import GroupShape, Pool
from headgate.placement.request import Occupancy, PlacementRequest
from headgate.placement.rules import PreemptionRules
from headgate.placement.victims import promoted_band, turn_at

Key = tuple[int, float, int]
Standing = tuple[Key, str]
Kind = tuple[
    str,
    tuple[Amounts, ...],
    str,
    tuple[tuple[str, str], ...],
    tuple[bool, bool],
    tuple[tuple[str, str | None], ...],
    float,
    int,
]
"""Pool, bundles, strategy, node labels, whether preemptible and whether checkpointing, labels that rules depend on,
priority, bin of the expected duration."""


def ranking_labels(wanted: PlacementRequest, rules: PreemptionRules) -> tuple[tuple[str, str | None], ...]:
    """Return the labels of a request that preemption rules depend on."""
    return tuple((key, wanted.labels.get(key)) for key in rules.order.below)


def kind_of(waiting: Occupancy, rules: PreemptionRules) -> Kind:
    """Return a key: a request finds no place where another one with the same key found none."""
    wanted = waiting.request
    return (
        wanted.pool,
        wanted.bundles,
        wanted.strategy,
        tuple(sorted(wanted.node_labels.items())),
        (wanted.preemptible, wanted.checkpoints),
        ranking_labels(wanted, rules),
        wanted.priority,
        level(waiting.left_s),
    )


@dataclass(slots=True)
class _Line:
    """Waiting requests of one kind, in order, with bounds of their likely and of their estimated durations.

    A missing estimate counts as infinite. The bounds cover every request added since the line was last empty.
    """

    number: int
    example: PlacementRequest
    standing: list[Standing] = field(default_factory=list)
    shortest_s: tuple[float, float] = (math.inf, math.inf)
    longest_s: tuple[float, float] = (0.0, 0.0)


@dataclass(slots=True)
class Queue:
    """Waiting requests in the order in which they are tried. Owned by the ledger.

    They are grouped by kind, so that a pass over a long queue tries only the first of each kind; numbers of kinds are
    never reused.
    """

    ageing_per_s: float
    _lines: dict[Kind, _Line] = field(default_factory=dict)
    _place_of: dict[str, tuple[Standing, _Line, Kind]] = field(default_factory=dict)
    _last_number: int = 0

    def key(self, waiting: Occupancy, rules: PreemptionRules) -> Key:
        """Return the sort key of a request: band, aged priority, order of arrival; smallest first."""
        aged = waiting.request.priority - self.ageing_per_s * turn_at(waiting, rules)
        return (-promoted_band(waiting, rules), -aged, waiting.order)

    def add(self, waiting: Occupancy, rules: PreemptionRules) -> None:
        """Add a request."""
        standing, kind = (self.key(waiting, rules), waiting.request_id), kind_of(waiting, rules)
        if kind not in self._lines:
            self._last_number += 1
            self._lines[kind] = _Line(self._last_number, waiting.request)
        line = self._lines[kind]
        insort(line.standing, standing)
        lengths = waiting.left_s, waiting.left_s if waiting.request.estimated_duration_s else math.inf
        line.shortest_s = min(lengths[0], line.shortest_s[0]), min(lengths[1], line.shortest_s[1])
        line.longest_s = max(lengths[0], line.longest_s[0]), max(lengths[1], line.longest_s[1])
        self._place_of[waiting.request_id] = (standing, line, kind)

    def discard(self, request_id: str) -> None:
        """Remove a request, if it is in the queue."""
        if request_id not in self._place_of:
            return
        standing, line, kind = self._place_of.pop(request_id)
        del line.standing[bisect_left(line.standing, standing)]
        if not line.standing:
            del self._lines[kind]

    def sort(self, waiting: Iterable[Occupancy], rules: PreemptionRules) -> None:
        """Reorder all waiting requests by other rules."""
        everybody = list(waiting)
        for each in everybody:
            self.discard(each.request_id)
        for each in everybody:
            self.add(each, rules)

    def place_of(self, request_id: str) -> Standing:
        """Return a waiting request's position as a comparable value: smaller means earlier."""
        return self._place_of[request_id][0]

    def ahead_of(self, request_id: str) -> int:
        """Return how many requests are ahead of a waiting request."""
        place = self.place_of(request_id)
        return sum(bisect_left(line.standing, place) for line in self._lines.values())

    def number_of(self, request_id: str) -> int:
        """Return the number of a waiting request's kind."""
        return self._place_of[request_id][1].number

    def kind_of(self, request_id: str) -> Kind:
        """Return the kind of a waiting request."""
        return self._place_of[request_id][2]

    def walk(self, passed: Container[int] = ()) -> Iterator[tuple[str, int]]:
        """Yield each request in order with the number of its kind; the last one yielded may be removed meanwhile.

        Once a number is in `passed`, no further request of that kind is yielded.
        """
        heads = [(line.standing[0], line.number, line.standing) for line in self._lines.values()]
        heapify(heads)
        while heads:
            last, number, standing = heads[0]
            if number not in passed:
                yield last[1], number
            after = len(standing) if number in passed else bisect_right(standing, last)
            if after < len(standing):
                heapreplace(heads, (standing[after], number, standing))
            else:
                heappop(heads)

    def are_alike(self, request_id: str, shadow: Shadow, now: float) -> bool:
        """Tell whether either all or none of a waiting request's kind will have ended when a shadow begins."""
        line = self._place_of[request_id][1]
        which = 0 if shadow.goes_by_guesses(line.example) else 1
        ends_first, ends_last = now + line.shortest_s[which], now + line.longest_s[which]
        return ends_last <= shadow.begins_at or shadow.begins_at < ends_first or ends_first == math.inf

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._place_of

    def __len__(self) -> int:
        return len(self._place_of)


@dataclass(slots=True)
class Shadow:
    """The reservation for one request of one pool.

    Attributes:
        request_id: the request that casts it.
        pool: the request's pool.
        begins_at: monotonic seconds; infinite if it is not known how long other work runs.
        spare: node id -> what others may still take beyond `begins_at`, for the nodes of the shadow.
        quota_spare: the same for the quota of the pool.
        guesses: whether work without an estimate is expected to run as long as similar work did.
        due: the request once its turn has come: then guesses count only for work that would stop for it (`giving_way`).
    """

    request_id: str
    pool: str
    begins_at: float
    spare: Room
    quota_spare: dict[str, int]
    guesses: bool = False
    due: PlacementRequest | None = None

    def goes_by_guesses(self, other: PlacementRequest) -> bool:
        """Tell whether `other`, if it has no estimate, is expected to run as long as similar work did."""
        if not self.guesses or (due := self.due) is None:
            return self.guesses
        is_behind = other.pool == due.pool and other.priority <= due.priority and other.size.fits(due.size)
        return is_behind and other.preemptible and other.checkpoints

    def outlasts(self, other: Occupancy, now: float) -> bool:
        """Tell whether `other` is likely to have ended when this begins, if it starts now."""
        is_known = other.request.estimated_duration_s > 0 or self.goes_by_guesses(other.request)
        return is_known and now + other.left_s <= self.begins_at

    def allows(self, other: Occupancy, nodes: Mapping[str, Amounts], size: Amounts, now: float) -> bool:
        """Tell whether `other` may take `nodes` (node id -> amounts) now without delaying this."""
        if self.outlasts(other, now):
            return True
        if other.request.pool == self.pool and not fits(self.quota_spare, size):
            return False
        return all(fits(self.spare[node], amounts) for node, amounts in nodes.items() if node in self.spare)

    def took(self, other: Occupancy, nodes: Mapping[str, Amounts], size: Amounts, now: float) -> None:
        """Subtract what `other` takes, unless it will have ended by then."""
        if self.outlasts(other, now):
            return
        if other.request.pool == self.pool:
            take(self.quota_spare, size)
        for node, amounts in nodes.items():
            if node in self.spare:
                take(self.spare[node], amounts)


def ends_at(running: Occupancy, now: float, durations: Durations | None) -> float:
    """Return when running work should end, in monotonic seconds: now if it is overdue, infinity if unknown.

    With `durations` it is expected to run as long as they say; see `Durations.left_s`.
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
    holdings: Holdings,
    waiting: Occupancy,
    pool: Pool,
    shape: GroupShape,
    now: float,
    durations: Durations | None,
    *,
    is_due: bool = False,
) -> Shadow | None:
    """Return the shadow of a request that cannot be placed now; None if it would not fit even with all others gone.

    `durations` are given if work without an estimate may start before it, too.
    """
    idle = [group for group in holdings.groups.values() if group.holder is None]  # can be removed at any time
    leaving = sorted((ends_at(each, now, durations), each.order, each) for each in holdings.placed_requests())
    moments = sorted({now, *(end for end, _, _ in leaving)})  # work that ends at the same moment is gone together

    def gone_by(at: float) -> tuple[tuple[str, ...] | None, Room, dict[str, int]]:
        """Return where the shape fits once all work that ends by then is gone, and the room and quota at that time."""
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
    return Shadow(
        waiting.request_id,
        pool.name,
        begins_at,
        spare,
        quota,
        durations is not None,
        waiting.request if is_due else None,
    )
