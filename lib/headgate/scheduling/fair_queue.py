"""A queue that is weighted fair between groups, FIFO within a group, and skips groups that cannot be served.

Start-time fair queueing (Goyal, Vin and Cheng 1996). Each backlogged group has a tag; the group with the smallest tag
is served and its tag grows by charge / weight. Virtual time is the tag last served, and a group that returns from idle
starts there, so that no credit is hoarded. While groups i and j are both backlogged, their charges divided by weight
differ by at most charge_i / weight_i + charge_j / weight_j; a property test checks this bound.

A charge is 1 until `Group.held` reports for how long a service was *held*; from then on it is the recent mean in
seconds. A service that takes longer than its charge raises the charge of services that begin after its end. So groups
share the held time, and service times need not be known in advance.

A *lane* groups everything that becomes ineligible together, such as all groups of a saturated or paused endpoint.
Groups wait in the lane of their head item, lanes wait in one heap by their smallest tag, and a closed lane leaves that
heap when it reaches the top. So selecting costs O(log groups) however many groups are ineligible. A reopened lane also
starts at virtual time: an offset per lane shifts all its groups together and keeps their order among themselves.

A group whose last item was served stays listed at its next tag, since most such groups have new items by then.

The *clock* of a closed lane stands still: at the virtual time of its closing, or at its smallest tag if that is later.
A group that enters or leaves a closed lane keeps its distance to that clock, not its tag: otherwise opening the lane
would shift it twice, or it would break the order of the lane that it enters.

Lanes have *ranks*: a lane is served only while no open lane of a lower rank has groups. Each rank has a heap of lanes.

A group passed over because of its rank falls behind virtual time. It is served first once its rank's turn comes,
and continues from virtual time as if it had been idle.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar


class Queueable(Protocol):
    """An item of a fair queue: it belongs to a weighted group, and its priority orders it within that group."""

    @property
    def group(self) -> str:
        """Fairness key."""

    @property
    def weight(self) -> float:
        """Share of the group under contention, > 0."""

    @property
    def priority(self) -> int:
        """Among the items of one group, higher goes first."""


T = TypeVar("T", bound=Queueable)


@dataclass(slots=True)
class Selection(Generic[T]):
    """An item that could be served next. Nothing has changed yet; `commit` takes it, once.

    Not frozen: one is built per item, and a frozen one takes four times as long to build.
    """

    item: T
    group: Group[T]
    version: int
    tag: float

    @property
    def lane(self) -> str:
        """Name of the lane in which the item waits."""
        return self.group.lane.name


@dataclass(frozen=True, slots=True)
class StaleSelection:
    """A selection that can no longer be committed: the head of its group or the state of its lane has changed."""

    item_id: str
    reason: str


Owner = TypeVar("Owner")

Entry = tuple[float, int, Owner]
"""A heap entry: tag, version, owner. Only the one that the owner's `entry` refers to is valid; others are stale."""

_LEAST_S: Final = 0.001
"""The minimum charge of a service, so that a group whose services take no time does not monopolize the queue."""

UNLISTED: Entry[Any] = (0.0, -1, None)
"""The `entry` of a group or lane that is in no heap."""


@dataclass(slots=True, eq=False)
class Lane:
    """Groups whose head needs the same endpoint.

    Attributes:
        name: what `lane_of` returns.
        is_open: whether its groups may be served.
        rank: open lanes of a lower rank go first.
        offset: added to the tags in `heap` to get virtual time.
        closed_at: virtual time at which it closed.
        heap: entries of its groups.
        entry: its entry in the heap of its rank, at its smallest tag; `UNLISTED` after changes while it is closed.
        kept: length of `heap` after the last sweep.
    """

    name: str
    is_open: bool = True
    rank: int = 0
    offset: float = 0.0
    closed_at: float = 0.0
    heap: list[Entry[Group[Any]]] = field(default_factory=list)
    entry: Entry[Lane] = UNLISTED
    kept: int = 0


@dataclass(slots=True, eq=False)
class Group(Generic[T]):
    """The items of one fairness key, listed in the lane that the first of them needs.

    Attributes:
        name: the fairness key.
        lane: where the group is listed.
        weight: weight of the item added last.
        left_at: the group's next tag in virtual time when its last item left.
        entry: its entry in the heap of its lane.
        items: in service order: by priority, then first come, first served.
        charge: charge for its next service, at weight 1.
    """

    name: str
    lane: Lane
    weight: float = 1.0
    left_at: float = 0.0
    entry: Entry[Any] = UNLISTED
    items: deque[T] = field(default_factory=deque)
    charge: float = 1.0

    def held(self, seconds: float) -> None:
        """Note how long a service was held; it makes up half of the next charge, so a slow spell soon fades."""
        self.charge = (self.charge + max(seconds, _LEAST_S)) / 2

    def add(self, item: T) -> None:
        """Add an item behind those of its priority. O(1), unless it goes ahead of others."""
        items = self.items
        if not items or item.priority <= items[-1].priority:
            items.append(item)
        else:
            items.insert(bisect_right(items, -item.priority, key=lambda other: -other.priority), item)


class FairQueue(Generic[T]):
    """Items that wait to be served. Pure and synchronous; owned by one decision maker.

    Invariants (`validate`): an item is in the queue at most once; every group with items is listed in exactly one lane;
    every open lane with groups is listed once in the heap of lanes, at its smallest tag; virtual time never goes back.
    """

    def __init__(self, *, id_of: Callable[[T], str], lane_of: Callable[[T], str]) -> None:
        self._id_of = id_of
        self._lane_of = lane_of
        self._items: dict[str, T] = {}
        self._groups: dict[str, Group[T]] = {}
        self._lanes: dict[str, Lane] = {}
        self._tops: list[list[Entry[Lane]]] = [[]]
        self._kept = 0
        self._order = 0
        self.virtual_time = 0.0
        """The tag last served; read-only."""

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._items

    def put(self, item: T) -> bool:
        """Add an item unless it is in the queue already; return whether it was added. O(log n)."""
        item_id = self._id_of(item)
        if item_id in self._items:
            return False
        self._items[item_id] = item
        group = self._groups.get(item.group)
        if group is None or not group.items:
            self._begin(item, group)
            return True
        group.weight = item.weight
        group.add(item)
        if group.items[0] is item and (lane := self._lane_for(item)) is not group.lane:
            self._move(group, lane, self._tag_of(group))
        return True

    def first(self, rank: int) -> Selection[T] | None:
        """Return the item to run next among the open lanes of one rank; None when they have none. Changes nothing."""
        top = self._tops[rank] if rank < len(self._tops) else None
        while top:
            entry = top[0]
            lane = entry[2]
            if lane.entry is entry:
                if lane.is_open:
                    _, version, group = lane.heap[0]
                    if group.items:
                        return Selection(group.items[0], group, version, entry[0])
                    self._unlist(group)
                    continue
                lane.entry = UNLISTED
            heapq.heappop(top)
        return None

    def commit(self, selection: Selection[T]) -> T | StaleSelection:
        """Remove the selected item and advance virtual time; refuses a stale selection."""
        item, group = selection.item, selection.group
        if group.entry[1] != selection.version or group.items[0] is not item:
            return StaleSelection(self._id_of(item), "the head of its group has changed")
        lane = group.lane
        if not lane.is_open:
            return StaleSelection(self._id_of(item), f"lane {lane.name} is closed")
        del self._items[self._id_of(item)]
        tag = self._served(group)
        group.items.popleft()
        if not group.items:
            group.left_at = tag
            self._list(group, tag)
        elif (to := self._lane_for(group.items[0])) is lane:
            self._list(group, tag)
        else:
            self._move(group, to, tag)
        return item

    def serve(self, selection: Selection[T]) -> bool:
        """Advance virtual time by one service of the selected item, at its current weight, and keep the item.

        For items that stand for many services, such as a stream. Returns False, and changes nothing, when the selection
        is stale or other items of its group wait behind it.
        """
        group = selection.group
        if group.entry[1] != selection.version or not group.lane.is_open or len(group.items) > 1:
            return False
        tag = self._served(group)
        group.weight = selection.item.weight
        self._list(group, tag)
        return True

    def discard(self, item_id: str) -> bool:
        """Remove an item without serving it; return whether it was queued. O(items of its group)."""
        item = self._items.get(item_id)
        if item is None:
            return False
        self._discard_from(self._groups[item.group], lambda candidate: candidate is item)
        return True

    def discard_where(self, condition: Callable[[T], bool]) -> list[T]:
        """Remove and return all items that meet the condition. O(items)."""
        return [t for group in list(self._groups.values()) for t in self._discard_from(group, condition)]

    def close_lane(self, lane: str) -> None:
        """Make every group whose head needs `lane` ineligible at once. O(1)."""
        self._close(self._lane(lane))

    def open_lane(self, lane: str) -> None:
        """Make the groups of `lane` eligible again, none of them behind virtual time. O(log lanes)."""
        entry = self._lane(lane)
        self._open(entry, entry.rank)

    def relist(self, group: str) -> None:
        """List a group again when the lane of its head may have changed. O(log groups)."""
        entry = self._groups.get(group)
        if entry is not None and entry.items and (lane := self._lane_for(entry.items[0])) is not entry.lane:
            self._move(entry, lane, self._tag_of(entry))

    def advance(self, virtual_time: float) -> None:
        """Move virtual time forward to `virtual_time`, to account for services elsewhere; never backward."""
        self.virtual_time = max(self.virtual_time, virtual_time)

    def is_open(self, lane: str) -> bool:
        """Return whether the lane's groups may run."""
        entry = self._lanes.get(lane)
        return entry is None or entry.is_open

    def item(self, item_id: str) -> T | None:
        """Return a queued item."""
        return self._items.get(item_id)

    def position(self, item_id: str) -> int:
        """Return how many items of the same group are ahead of a queued item. O(items of its group)."""
        item = self._items[item_id]
        return next(place for place, other in enumerate(self._groups[item.group].items) if other is item)

    def items(self) -> Iterator[T]:
        """Iterate over the queued items in the order in which they were added."""
        return iter(list(self._items.values()))

    def heads(self) -> Iterator[T]:
        """Return the first item of each group in an open lane. O(groups)."""
        return (group.items[0] for group in self._groups.values() if group.items and group.lane.is_open)

    # Groups and lanes.

    def _lane(self, name: str) -> Lane:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(name)
        return lane

    def _lane_for(self, item: T) -> Lane:
        return self._lane(self._lane_of(item))

    def _close(self, lane: Lane) -> None:
        if lane.is_open:
            lane.is_open = False
            lane.closed_at = self.virtual_time

    def _open(self, lane: Lane, rank: int) -> None:
        """Open a lane at a rank; if nothing has changed since it closed, it is still listed."""
        if lane.rank != rank:
            self._rank(lane, rank)
        if not lane.is_open:
            if lane.heap and lane.closed_at < self.virtual_time:
                lift = self.virtual_time - self._clock(lane)
                if lift:
                    lane.offset += lift
                    lane.entry = UNLISTED
            lane.is_open = True
        if lane.heap and lane.entry is UNLISTED:
            self._list_lane(lane)

    def _rank(self, lane: Lane, rank: int) -> None:
        lane.rank, lane.entry = rank, UNLISTED
        self._tops.extend([] for _ in range(len(self._tops), rank + 1))

    def _tag_of(self, group: Group[T]) -> float:
        return group.entry[0] + group.lane.offset

    def _clock(self, lane: Lane) -> float:
        """Return the lane's virtual time, which stands still while the lane is closed."""
        now, heap = self.virtual_time, lane.heap
        while heap and not lane.is_open:
            tag, _, group = entry = heap[0]
            if group.entry is entry:
                if group.items:
                    return min(now, max(lane.closed_at, tag + lane.offset))
                group.entry = lane.entry = UNLISTED
            heapq.heappop(heap)
        return now

    def _begin(self, item: T, group: Group[T] | None) -> None:
        """List a group with its first item: at virtual time, or at the group's `left_at` if that is later."""
        lane, tag = self._lane_for(item), self.virtual_time
        if group is None:
            if len(self._groups) > 2 * self._kept + 64:
                self._forget_idle()
            group = self._groups[item.group] = Group(item.group, lane)
        elif group.left_at > tag:
            tag = group.left_at
        if not lane.is_open:
            tag += self._clock(lane) - self.virtual_time
        group.items.append(item)
        group.weight, before, group.lane = item.weight, group.lane, lane
        if before is not lane or group.entry is UNLISTED or group.entry[0] != tag - lane.offset:
            self._list(group, tag)
            if before is not lane:
                self._list_lane(before)

    def _forget_idle(self) -> None:
        """Forget empty groups whose next tag no longer matters, because they would start at virtual time anyway."""
        for name, group in list(self._groups.items()):
            if not group.items and group.left_at <= self.virtual_time:
                del self._groups[name]
                self._unlist(group)
        self._kept = len(self._groups)

    def _served(self, group: Group[T]) -> float:
        """Advance virtual time by one service of the group; return the group's next tag."""
        tag = group.entry[0] + group.lane.offset
        if tag > self.virtual_time:  # noqa: PLR1730 - runs for every task, and calling `max` takes five times as long
            self.virtual_time = tag
        return self.virtual_time + group.charge / group.weight

    def _unlist(self, group: Group[T]) -> None:
        """Remove an empty group from its lane."""
        group.entry = UNLISTED
        self._list_lane(group.lane)

    def _move(self, group: Group[T], lane: Lane, tag: float) -> None:
        """List the group in another lane; `tag` is in the time of its current lane."""
        before = group.lane
        if not (lane.is_open and before.is_open):
            told_at, heard_at = self._clock(before), self._clock(lane)
            if told_at != heard_at:
                tag = heard_at + max(0.0, tag - told_at)
        group.lane = lane
        self._list(group, tag)
        self._list_lane(before)

    def _list(self, group: Group[T], tag: float) -> None:
        """List the group in its lane at a tag, replacing its previous entry if that is on top of the heap."""
        lane, before = group.lane, group.entry
        self._order += 1
        group.entry = entry = (tag - lane.offset, self._order, group)
        heap = lane.heap
        if heap and heap[0] is before:
            heapq.heapreplace(heap, entry)
        else:
            heapq.heappush(heap, entry)
            if len(heap) > 2 * lane.kept + 64:
                _sweep(heap)
                lane.kept = len(heap)
        self._list_lane(lane)

    def _list_lane(self, lane: Lane) -> None:
        """Keep an open lane in the heap of its rank, at its smallest tag."""
        heap = lane.heap
        while heap and heap[0][2].entry is not heap[0]:
            heapq.heappop(heap)
        if not heap or not lane.is_open:
            lane.entry = UNLISTED
            return
        before, (tag, version, _) = lane.entry, heap[0]
        tag += lane.offset
        if before[1] == version and before[0] == tag:
            return
        lane.entry = entry = (tag, version, lane)
        top = self._tops[lane.rank]
        if top and top[0] is before:
            heapq.heapreplace(top, entry)
            return
        heapq.heappush(top, entry)
        if len(top) > 2 * len(self._lanes) + 64:
            _sweep(top)

    def _discard_from(self, group: Group[T], condition: Callable[[T], bool]) -> list[T]:
        gone = [item for item in group.items if condition(item)]
        if not gone:
            return []
        for item in gone:
            del self._items[self._id_of(item)]
        tag = self._tag_of(group)
        group.items = deque(item for item in group.items if self._id_of(item) in self._items)
        if group.items:
            self._move(group, self._lane_for(group.items[0]), tag)
        else:
            group.left_at = tag
            self._unlist(group)
        return gone

    def validate(self) -> None:
        """Assert the invariants of the class."""
        in_groups = [self._id_of(item) for group in self._groups.values() for item in group.items]
        assert len(in_groups) == len(set(in_groups)), "an item is in the queue twice"
        assert set(in_groups) == set(self._items), "groups and index disagree"
        for group in self._groups.values():
            assert group.entry is UNLISTED or group.entry in group.lane.heap, f"group {group.name} is in no lane"
            priorities = [item.priority for item in group.items]
            assert priorities == sorted(priorities, reverse=True), f"group {group.name} is out of order"
            if group.items:
                assert group.entry is not UNLISTED, f"group {group.name} is not listed"
                assert group.lane is self._lane_for(group.items[0]), f"group {group.name} is in the wrong lane"
        for lane in self._lanes.values():
            first = next((entry for entry in sorted(lane.heap) if entry[2].entry is entry), None)
            listing = UNLISTED if first is None else (first[0] + lane.offset, first[1], lane)
            assert lane.entry == listing or not lane.is_open, f"lane {lane.name} is not listed"
            if lane.entry is not UNLISTED:
                assert lane.entry == listing, f"lane {lane.name} is listed at another tag than its first group's"
                assert lane.entry in self._tops[lane.rank], f"lane {lane.name} is not in the heap of its rank"


def _sweep(heap: list[Entry[Any]]) -> None:
    """Remove stale entries."""
    heap[:] = [entry for entry in heap if entry[2].entry is entry]
    heapq.heapify(heap)
