"""The steps, in order, that place a request without preemption; a step that fails says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.placement.amounts import Amounts
from headgate.placement.errors import CannotFitError
from headgate.placement.holdings import Holdings, Room, could_place, covers, occupy, place, vacate
from headgate.placement.outcomes import Offer, Rejected
from headgate.placement.pool import Group, GroupShape, Pool
from headgate.placement.queue import Shadow, amounts_by_node
from headgate.placement.request import Occupancy, PlacementRequest

RESERVED = "reserved_group"
REUSE = "idle_group"
WIDE = "larger_idle_group"
MAKE = "new_group"
EVICT = "new_group_in_place_of_idle"
LOAN = "reserved_group_on_loan"

_SNUG = 1.5
"""An idle group up to this many times as large is taken before a new one is created: a warm start is worth the waste.

While other requests wait, which could use the waste, only an idle group of the same size is taken."""


def shape_of(occupancy: Occupancy) -> GroupShape:
    """Return the shape of the group that would be created for a request."""
    request = occupancy.request
    return GroupShape(request.bundles, request.strategy, request.node_labels)


def by_right(occupancy: Occupancy, pool: Pool) -> bool:
    """Tell whether a request's priority entitles it to the reserved groups of its pool."""
    return occupancy.request.priority >= pool.reserved_from_priority


def footprint(holdings: Holdings, waiting: Occupancy, offer: Offer) -> tuple[Amounts, dict[str, Amounts]]:
    """Return the size of an offer's group, and what it takes from each node (nothing for a reserved group)."""
    if not offer.group_id:
        shape = shape_of(waiting)
        return shape.size, amounts_by_node(shape, offer.nodes)
    group = holdings.groups[offer.group_id]
    return group.size, amounts_by_node(group.shape, group.nodes) if group.reserved is None else {}


@dataclass(slots=True)
class Search:
    """One search for a place, given the holdings, the request, and the shadows it must respect. Changes nothing."""

    holdings: Holdings
    waiting: Occupancy
    pool: Pool
    shadows: Sequence[Shadow]
    now: float
    others_wait: bool = False
    _nodes: tuple[str, ...] | None = None

    def climb(self) -> Offer | list[Rejected]:
        """Return the first place that a step finds, or why each step failed."""
        rejected: list[Rejected] = []
        idle = self._idle()
        for step in (self._reserved, self._snug, self._make, self._evict, self._wide, self._loan):
            outcome = step(idle)
            if isinstance(outcome, Offer):
                return outcome
            rejected.append(outcome)
        return rejected

    def at_once(self) -> Offer | None:
        """Return a place that is available now: a free group, or room for a new one."""
        idle = self._idle()
        # While a group is leaving, `room` already counts what it will free, so a new group might have to wait for it.
        steps = (self._reserved, self._snug) if self.holdings.leaving else (self._reserved, self._snug, self._make)
        return next((found for step in steps if isinstance(found := step(idle), Offer)), None)

    def _idle(self) -> list[Group]:
        wanted, nodes = shape_of(self.waiting), self.holdings.nodes
        free = self.holdings.free_groups()
        return [each for each in free if each.pool == self.pool.name and covers(each.shape, each.nodes, wanted, nodes)]

    def _reserved(self, idle: list[Group]) -> Offer | Rejected:
        if not by_right(self.waiting, self.pool):
            least = self.pool.reserved_from_priority
            priority = self.waiting.request.priority
            return Rejected(RESERVED, f"priority {priority:g} is below reserved_from_priority {least:g}")
        return self._take(RESERVED, [group for group in idle if group.reserved is not None])

    def _snug(self, idle: list[Group]) -> Offer | Rejected:
        size = self.waiting.request.size
        groups = [group for group in idle if group.reserved is None and self._waste(group) <= _SNUG]
        return self._take(REUSE, [group for group in groups if not self.others_wait or group.size == size])

    def _wide(self, idle: list[Group]) -> Offer | Rejected:
        return self._take(WIDE, [group for group in idle if group.reserved is None])

    def _loan(self, idle: list[Group]) -> Offer | Rejected:
        if not self.pool.lend_reserved:
            return Rejected(LOAN, f"pool {self.pool.name} does not lend its reserved groups")
        if not self.waiting.request.preemptible:
            return Rejected(LOAN, "only preemptible work may borrow a reserved group")
        return self._take(LOAN, [group for group in idle if group.reserved is not None], on_loan=True)

    def _take(self, step: str, groups: list[Group], *, on_loan: bool = False) -> Offer | Rejected:
        """Return the tightest of these groups that quota and shadows allow."""
        outcome: Offer | Rejected = Rejected(step, "no idle group is large enough")
        for group in sorted(groups, key=lambda each: (self._waste(each), each.group_id)):
            outcome = self._allowed(Offer(step, group_id=group.group_id, on_loan=on_loan))
            if isinstance(outcome, Offer):
                break
        return outcome

    def _make(self, _: list[Group]) -> Offer | Rejected:
        most = self.pool.max_dynamic
        if most is not None and self.holdings.dynamic_count(self.pool.name) >= most:
            return Rejected(MAKE, f"pool {self.pool.name} has max_dynamic {most} groups already")
        self._nodes = place(shape_of(self.waiting), self.holdings.room, self.holdings.nodes)
        if self._nodes is None:
            return Rejected(MAKE, "the nodes do not have that much free")
        return self._allowed(Offer(MAKE, nodes=self._nodes))

    def _evict(self, _: list[Group]) -> Offer | Rejected:
        idle = self.holdings.idle_groups()
        found: tuple[tuple[str, ...], tuple[str, ...]] | None = None
        if self._nodes is not None:
            found = self._nodes, ()
        elif idle:
            found = make_room(self.holdings, self.pool, shape_of(self.waiting), idle)
        if found is None:
            return Rejected(EVICT, "removing idle groups would not free enough")
        return self._allowed(Offer(EVICT, nodes=found[0], evict=found[1]))

    def _allowed(self, offer: Offer) -> Offer | Rejected:
        """Return the offer, or why it exceeds the quota or would delay a request with a shadow."""
        size, taken = footprint(self.holdings, self.waiting, offer)
        if not self.holdings.within_quota(self.pool, size):
            left = self.holdings.quota_left(self.pool).clipped()
            return Rejected(offer.step, f"pool {self.pool.name} has {left} of its quota left; this needs {size}")
        for shadow in self.shadows:
            if not shadow.allows(self.waiting, taken, size, self.now):
                return Rejected(offer.step, f"it would delay {shadow.request_id}, which is first in the queue")
        return offer

    def _waste(self, group: Group) -> float:
        """Return how many times larger than needed a group is, by its dominant resource."""
        share = self.waiting.request.size.share_of(group.size)
        return 1 / share if share else float("inf")


def make_room(
    holdings: Holdings, pool: Pool, shape: GroupShape, removable: Sequence[Group]
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return nodes for a new group, and the groups of `removable` to remove for it, in order and none superfluous."""
    room: Room = holdings.room
    count = 0 if pool.max_dynamic is None else holdings.dynamic_count(pool.name)

    def found() -> tuple[str, ...] | None:
        return place(shape, room, holdings.nodes) if pool.max_dynamic is None or count < pool.max_dynamic else None

    removed: list[Group] = []
    nodes = found()
    if nodes is None and not _could_do(holdings, pool, shape, removable, count):
        return None
    room = holdings.room_without(())
    for group in removable:
        if nodes is not None:
            break
        vacate(room, group)
        count -= group.pool == pool.name
        removed.append(group)
        nodes = found()
    if nodes is None:
        return None
    for group in list(removed[:-1]):  # keep each group whose removal turns out not to be needed
        occupy(room, group)
        count += group.pool == pool.name
        again = found()
        if again is None:
            vacate(room, group)
            count -= group.pool == pool.name
        else:
            nodes = again
            removed.remove(group)
    return nodes, tuple(group.group_id for group in removed)


def _could_do(holdings: Holdings, pool: Pool, shape: GroupShape, removable: Sequence[Group], count: int) -> bool:
    """Tell whether a shape fits at all once everything removable is gone."""
    if not removable:
        return False
    left = count - sum(group.pool == pool.name for group in removable)
    if pool.max_dynamic is not None and left >= pool.max_dynamic:
        return False
    return could_place(shape, holdings.room_without(removable), holdings.nodes)


def must_fit(holdings: Holdings, pool: Pool, request: PlacementRequest) -> None:
    """Refuse a request that would wait for ever. A cluster without nodes counts as not seen yet.

    Raises:
        CannotFitError: it is larger than the pool's quota, or than the nodes could ever hold.
    """
    if not request.size.fits(pool.quota):
        raise CannotFitError(
            f"{request.request_id} takes {request.size}, more than the quota of pool {pool.name}: {pool.quota}"
        )
    if not holdings.nodes:
        return
    waiting = Occupancy(request, "", 0.0, 0)
    shape = shape_of(waiting)
    kind = (request.bundles, request.strategy, tuple(sorted(request.node_labels.items())))
    if kind not in holdings.possible and place(shape, _empty(holdings), holdings.nodes) is None:
        raise CannotFitError(_too_large(request, shape, holdings))
    holdings.possible.add(kind)
    reserved = [
        group
        for group in holdings.groups.values()
        if group.reserved is not None and group.group_id not in holdings.leaving
    ]
    if any(_may_use(waiting, pool, group, holdings) for group in reserved):
        return
    if pool.max_dynamic == 0:
        raise CannotFitError(
            f"{request.request_id} fits no reserved group that it may use, and pool {pool.name} makes no others "
            f"(max_dynamic 0)"
        )
    beside = _empty(holdings) if reserved else {}
    for group in reserved:
        occupy(beside, group)
    if reserved and place(shape, beside, holdings.nodes) is None:
        raise CannotFitError(
            f"{request.request_id} takes {request.size}, which does not fit under {request.strategy} beside the "
            f"reserved groups ({'; '.join(str(group.size) for group in reserved)}), and none of them is for it"
        )


def _empty(holdings: Holdings) -> Room:
    return {node_id: dict(node.total.units) for node_id, node in holdings.nodes.items()}


def _may_use(waiting: Occupancy, pool: Pool, group: Group, holdings: Holdings) -> bool:
    """Tell whether a reserved group could hold a request, by right or on loan."""
    if group.pool != pool.name or not covers(group.shape, group.nodes, shape_of(waiting), holdings.nodes):
        return False
    on_loan = pool.lend_reserved and waiting.request.preemptible
    return (by_right(waiting, pool) or on_loan) and group.size.fits(pool.quota)


def _too_large(request: PlacementRequest, shape: GroupShape, holdings: Holdings) -> str:
    if not any(node.has(shape.node_labels) for node in holdings.nodes.values()):
        return f"{request.request_id} wants a node with labels {dict(shape.node_labels)}, and none has them"
    labels = f" with labels {dict(shape.node_labels)}" if shape.node_labels else ""
    largest = max(holdings.nodes.values(), key=lambda node: tuple(units for _, units in node.total.units))
    if len(request.bundles) > 1:
        return (
            f"{request.request_id} takes {len(request.bundles)} bundles of up to {request.bundles[0]} under "
            f"{request.strategy}{labels}; {len(holdings.nodes)} nodes could not carry them even when empty"
        )
    return f"{request.request_id} takes {request.size}{labels}; the largest node has {largest.total}"
