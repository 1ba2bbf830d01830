"""A queue that is weighted fair between groups, FIFO inside one, and blind to groups that cannot be served.

Start-time fair queueing (Goyal, Vin and Cheng 1996). Each backlogged group has a tag; the group with the smallest tag
is served and its tag grows by charge / weight. Virtual time is the tag last served, and a group that returns from idle
starts there, so that no credit is hoarded. What two groups i and j were charged by weight while both were backlogged
differs by charge_i / weight_i + charge_j / weight_j at most; the property test holds it to that.

A charge is 1 until the group is told how long a service was *held* (`Group.held`), and the recent mean in seconds from
there on. A service that was longer than that is charged to those that begin after its end. So groups share what is
served by time held, and nobody has to know how long a service will be.

A *lane* is what makes a whole set of groups unable to be served at once: an endpoint that is saturated or paused.
Groups wait in the lane of their head item, lanes wait in one heap by the smallest tag inside, and a closed lane leaves
that heap when it comes up. So selecting costs O(log groups) however many groups are ineligible. A lane that opens again
starts at virtual time as well; an offset per lane moves all its groups together and keeps their order among themselves.

A group whose last item was served stays listed at its next tag, since most groups that come and go are back by then.

While a lane is closed its *clock* stands: at the virtual time of its closing, or at its smallest tag if that comes
later. A group that enters or leaves such a lane takes along how far it is ahead of the clock, and not its tag: else it
would be moved twice when the lane opens, or would take the order of the lane that it enters apart.

Lanes have *ranks*: one is served only while no open lane of a lower rank has groups. There is a heap of lanes per rank.

A group that its rank passes over falls behind virtual time; it is the first to be served when that lets
it, and goes on from virtual time as if it had been idle.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar


class Queueable(Protocol):
    """What a fair queue can hold: it belongs to a group that has a weight, and goes before others by priority."""

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

    Not frozen, because one is made per item: that takes four times as long to build.
    """

    item: T
    group: Group[T]
    version: int
    tag: float

    @property
    def lane(self) -> str:
        """Name of the lane that the item waits in."""
        return self.group.lane.name


@dataclass(frozen=True, slots=True)
class StaleSelection:
    """A selection that can no longer be committed: the head of its group or the state of its lane has changed."""

    item_id: str
    reason: str


Owner = TypeVar("Owner")

Entry = tuple[float, int, Owner]
"""A place in a heap: tag, version, owner. The owner's `entry` is the one that counts; others are out of date."""

_LEAST_S: Final = 0.001
"""What a service is charged at least: whose services take no time is not served for ever."""

UNLISTED: Entry[Any] = (0.0, -1, None)
"""The entry of what is in no heap."""


@dataclass(slots=True, eq=False)
class Lane:
    """Groups whose head needs the same endpoint.

    Attributes:
        name: what `lane_of` returns.
        is_open: whether its groups may be served.
        rank: open lanes of a lower one go first.
        offset: what the tags of its groups are relative to.
        closed_at: virtual time of its closing.
        heap: entries of its groups.
        entry: its own in the heap of its rank, at the smallest tag; none while it is closed and something has changed.
        kept: length of `heap` after it was last swept.
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
    """Items of one fairness key, and its entry in the heap of the lane that the first of them needs.

    Attributes:
        name: the key.
        lane: where it is listed.
        weight: of the item that came last.
        left_at: its next tag in virtual time, as it was when it had no items any more.
        entry: its own in the heap of its lane.
        items: in the order in which they are served: by priority, and first come, first served.
        charge: of its next service, at weight 1.
    """

    name: str
    lane: Lane
    weight: float = 1.0
    left_at: float = 0.0
    entry: Entry[Any] = UNLISTED
    items: deque[T] = field(default_factory=deque)
    charge: float = 1.0

    def held(self, seconds: float) -> None:
        """Note how long a service was held: half of the next charge, so that a slow time is forgiven soon."""
        self.charge = (self.charge + max(seconds, _LEAST_S)) / 2

    def add(self, item: T) -> None:
        """Add an item behind those of its priority: O(1), but for one that goes before others."""
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
        """The tag last served; to be read."""

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
        """Take the selected item out and advance virtual time; refuses a selection that is out of date."""
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
        """Advance virtual time by a service of the selected item and keep it, at the weight that it has now.

        For items that stand for many services, such as a stream. Returns False, and changes nothing, when the selection
        is out of date or other items of its group wait behind it.
        """
        group = selection.group
        if group.entry[1] != selection.version or not group.lane.is_open or len(group.items) > 1:
            return False
        tag = self._served(group)
        group.weight = selection.item.weight
        self._list(group, tag)
        return True

    def discard(self, item_id: str) -> bool:
        """Take a item out without serving it; return whether it was there. O(items of its group)."""
        item = self._items.get(item_id)
        if item is None:
            return False
        self._discard_from(self._groups[item.group], lambda candidate: candidate is item)
        return True

    def discard_where(self, condition: Callable[[T], bool]) -> list[T]:
        """Take out and return all items that fulfil the condition. O(items)."""
        return [t for group in list(self._groups.values()) for t in self._discard_from(group, condition)]

    def close_lane(self, lane: str) -> None:
        """Make every group whose head needs `lane` ineligible, at once. O(1)."""
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
        """Move virtual time forward to `virtual_time`, for what was served elsewhere; never back."""
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
        """Iterate over the queued items, in the order in which they were enqueued."""
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
        """Open a lane at a rank; where nothing has happened since it closed, it is still listed."""
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
        """Return virtual time as the lane sees it: it stands still while the lane is closed."""
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
        """List a group with its first item: at virtual time, or at the tag that it left with if that is later."""
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
        """Forget groups without items whose next tag says nothing any more: they would begin at virtual time."""
        for name, group in list(self._groups.items()):
            if not group.items and group.left_at <= self.virtual_time:
                del self._groups[name]
                self._unlist(group)
        self._kept = len(self._groups)

    def _served(self, group: Group[T]) -> float:
        """Advance virtual time by a service of the group; return its next tag."""
        tag = group.entry[0] + group.lane.offset
        if tag > self.virtual_time:  # noqa: PLR1730 - done for every task, and a call of `max` takes five times as long
            self.virtual_time = tag
        return self.virtual_time + group.charge / group.weight

    def _unlist(self, group: Group[T]) -> None:
        """Take a group without items out of its lane."""
        group.entry = UNLISTED
        self._list_lane(group.lane)

    def _move(self, group: Group[T], lane: Lane, tag: float) -> None:
        """List the group in another lane; `tag` is told in the time of the lane where it is."""
        before = group.lane
        if not (lane.is_open and before.is_open):
            told_at, heard_at = self._clock(before), self._clock(lane)
            if told_at != heard_at:
                tag = heard_at + max(0.0, tag - told_at)
        group.lane = lane
        self._list(group, tag)
        self._list_lane(before)

    def _list(self, group: Group[T], tag: float) -> None:
        """List the group in its lane at a tag, in the place of its entry so far where that is the first."""
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
    """Take out what is out of date."""
    heap[:] = [entry for entry in heap if entry[2].entry is entry]
    heapq.heapify(heap)
