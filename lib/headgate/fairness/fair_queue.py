"""A queue that is weighted fair between groups, FIFO inside one, and blind to groups that cannot be served.

Start-time fair queueing (Goyal, Vin and Cheng 1996). Each backlogged group has a tag; the group with the smallest tag
is served and its tag grows by 1 / weight. Virtual time is the tag last served, and a group that returns from idle
starts there, so that no credit is hoarded. For two groups i and j that stay backlogged, served_i / weight_i and
served_j / weight_j never differ by more than 1 / weight_i + 1 / weight_j; the property test holds it to that.

A *lane* is what makes a whole set of groups unable to be served at once: an endpoint that is saturated or paused.
Groups wait in the lane of their head item, lanes wait in one heap by the smallest tag inside, and a closed lane is not
in that heap at all. So selecting costs O(log groups) however many groups are ineligible. A lane that opens again starts
at virtual time as well; an offset per lane moves all its groups together and keeps their order among themselves.

While a lane is closed its *clock* stands: at the virtual time of its closing, or at its smallest tag if that comes
later. A group that enters or leaves such a lane takes along how far it is ahead of the clock, and not its tag: else it
would be moved twice when the lane opens, or would take the order of the lane that it enters apart.

Lanes have *ranks*: one is served only while no open lane of a lower rank has groups. There is a heap of lanes per rank.

A group that a condition or its rank passes over falls behind virtual time; it is the first to be served when that lets
it, and goes on from virtual time as if it had been idle.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic

from headgate.fairness.entries import Group, Lane, Selection, StaleSelection, T


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
        self._tops: list[list[tuple[float, int, str, int]]] = [[]]
        self._last_tag: dict[str, float] = {}
        self._kept_tags = 0
        self._virtual = 0.0
        self._order = 0

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._items

    @property
    def virtual_time(self) -> float:
        """The tag last served."""
        return self._virtual

    def enqueue(self, items: Iterable[T]) -> list[T]:
        """Add items that are not in the queue yet; return those that were added. O(log n) each."""
        return [item for item in items if self.put(item)]

    def put(self, item: T) -> bool:
        """Add an item unless it is in the queue already; return whether it was added. O(log n)."""
        item_id = self._id_of(item)
        if item_id in self._items:
            return False
        self._items[item_id] = item
        self._entered(item)
        self._order += 1
        group = self._groups.get(item.group)
        if group is None:
            group = self._groups[item.group] = Group[T](item.group, item.weight)
            group.heap.append((-item.priority, self._order, item))
            tag = max(self._virtual, self._last_tag.pop(item.group, 0.0))
            self._list_group(group, tag)
            return True
        group.weight = item.weight
        heapq.heappush(group.heap, (-item.priority, self._order, item))
        if group.heap[0][2] is item and self._lane_of(item) != group.lane:
            self._list_group(group, self._tag_of(group))
        return True

    def first(self, rank: int) -> Selection[T] | None:
        """Return the item to run next among the open lanes of one rank; None when they have none. Changes nothing."""
        lane = self._first_lane(rank)
        if lane is None:
            return None
        tag, version, name = lane.heap[0]
        return Selection(self._groups[name].heap[0][2], lane.name, version, tag + lane.offset)

    def select_next(self, eligible: Callable[[T], bool] | None = None) -> Selection[T] | None:
        """Return the item that is to run next, or None when no group in an open lane can run. Changes nothing.

        Lanes of a lower rank go before those of a higher one.

        Args:
            eligible: a further condition on a group's head, which must not change the queue. It is asked in the order
                of service, and each group that it refuses costs O(log groups); what refuses whole lanes belongs into
                `close_lane`, which costs nothing here.
        """
        ranks = range(len(self._tops))
        if eligible is None:
            return next((s for rank in ranks if (s := self.first(rank)) is not None), None)
        return next((s for rank in ranks for s in self._in_order(rank) if eligible(s.item)), None)

    def commit(self, selection: Selection[T]) -> T | StaleSelection:
        """Take the selected item out and advance virtual time; refuses a selection that is out of date."""
        item = selection.item
        group = self._groups.get(item.group)
        if group is None or group.version != selection.version or group.heap[0][2] is not item:
            return StaleSelection(self._id_of(item), "the head of its group has changed")
        lane = self._lanes[group.lane]
        if not lane.is_open:
            return StaleSelection(self._id_of(item), f"lane {lane.name} is closed")
        heapq.heappop(group.heap)
        del self._items[self._id_of(item)]
        self._left(item)
        self._virtual = max(self._virtual, group.tag + lane.offset)
        tag = self._virtual + 1.0 / group.weight
        name = self._lane_of(group.heap[0][2]) if group.heap else ""
        if name == lane.name:
            self._list_again(group, lane, tag)
        elif name:
            self._list_group(group, tag, name)
        else:
            self._advance(group, tag)
        return item

    def serve(self, selection: Selection[T]) -> bool:
        """Advance virtual time by a service of the selected item and keep it, at the weight that it has now.

        For items that stand for many services, such as a stream. Returns False, and changes nothing, when the selection
        is out of date or other items of its group wait behind it.
        """
        group = self._groups.get(selection.item.group)
        if group is None or group.version != selection.version or len(group.heap) > 1:
            return False
        lane = self._lanes[group.lane]
        if not lane.is_open:
            return False
        self._virtual = max(self._virtual, group.tag + lane.offset)
        tag = self._virtual + 1.0 / group.weight
        group.weight = selection.item.weight
        self._list_again(group, lane, tag)
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
        entry = self._lane(lane)
        if entry.is_open:
            entry.is_open = False
            entry.closed_at = self._virtual

    def open_lane(self, lane: str) -> None:
        """Make the groups of `lane` eligible again, none of them behind virtual time. O(log lanes)."""
        entry = self._lane(lane)
        if entry.is_open:
            return
        entry.offset += self._virtual - self._clock(entry)
        entry.is_open = True
        self._list_lane(entry)

    def set_rank(self, lane: str, rank: int) -> None:
        """Serve the groups of `lane` only while no open lane of a lower rank has any. O(log lanes).

        A group that is passed over for its rank keeps its tag: it is first when its rank is served, and goes on from
        virtual time.
        """
        entry = self._lane(lane)
        if entry.rank == rank:
            return
        entry.rank = rank
        self._tops.extend([] for _ in range(len(self._tops), rank + 1))
        self._list_lane(entry)

    def has_group(self, group: str) -> bool:
        """Return whether a group has items here."""
        return group in self._groups

    def relist(self, group: str) -> None:
        """List a group again when the lane of its head may have changed. O(log groups)."""
        entry = self._groups.get(group)
        if entry is not None and (lane := self._lane_of(entry.heap[0][2])) != entry.lane:
            self._list_group(entry, self._tag_of(entry), lane)

    def advance(self, virtual_time: float) -> None:
        """Move virtual time forward to `virtual_time`, for what was served elsewhere; never back."""
        self._virtual = max(self._virtual, virtual_time)

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
        return next(i for i, entry in enumerate(sorted(self._groups[item.group].heap)) if entry[2] is item)

    def items(self) -> Iterator[T]:
        """Iterate over the queued items, in the order in which they were enqueued."""
        return iter(list(self._items.values()))

    # What a subclass may count.

    def _entered(self, item: T) -> None:
        """Note that an item was added."""

    def _left(self, item: T) -> None:
        """Note that an item was taken or discarded."""

    # Groups and lanes.

    def _lane(self, name: str) -> Lane:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(name)
        return lane

    def _tag_of(self, group: Group[T]) -> float:
        return group.tag + self._lanes[group.lane].offset

    def _advance(self, group: Group[T], tag: float) -> None:
        """List the group again at its next tag, or retire it when it is empty."""
        if group.heap:
            self._list_group(group, tag)
            return
        lane = self._lanes[group.lane]
        del self._groups[group.name]
        if tag > self._virtual:
            self._last_tag[group.name] = tag
            if len(self._last_tag) > 2 * self._kept_tags + 64:
                # A tag that virtual time has passed says nothing any more: its group would start at virtual time.
                self._last_tag = {g: t for g, t in self._last_tag.items() if t > self._virtual}
                self._kept_tags = len(self._last_tag)
        self._list_lane(lane)

    def _clock(self, lane: Lane) -> float:
        """Return virtual time as the lane sees it: it stands still while the lane is closed."""
        first = None if lane.is_open else self._first_group(lane)
        return self._virtual if first is None else min(self._virtual, max(lane.closed_at, first.tag + lane.offset))

    def _list_group(self, group: Group[T], tag: float, name: str = "") -> None:
        """List the group in the lane of its head; `tag` is told in the time of the lane where it was before."""
        before = self._lanes[group.lane] if group.lane else None
        lane = self._lane(name or self._lane_of(group.heap[0][2]))
        if lane is not before and not (lane.is_open and (before is None or before.is_open)):
            told_at, heard_at = self._clock(before) if before else self._virtual, self._clock(lane)
            if told_at != heard_at:
                tag = heard_at + max(0.0, tag - told_at)
        group.lane = lane.name
        group.tag = tag - lane.offset
        self._order += 1
        group.version = self._order
        self._push(lane, group)
        if before is not None and lane is not before:
            self._list_lane(before)
        self._list_lane(lane)

    def _list_again(self, group: Group[T], lane: Lane, tag: float) -> None:
        """List a group that stays in its lane: what `_list_group` does, in place where it was first in the heap."""
        before = group.version
        group.tag = tag - lane.offset
        self._order += 1
        group.version = self._order
        if lane.heap[0][1] == before:
            heapq.heapreplace(lane.heap, (group.tag, group.version, group.name))
        else:
            self._push(lane, group)
        self._list_lane(lane)

    def _push(self, lane: Lane, group: Group[T]) -> None:
        """Add a listing to the heap of a lane; sweep the heap when it has doubled."""
        heapq.heappush(lane.heap, (group.tag, group.version, group.name))
        if len(lane.heap) > 2 * lane.kept + 64:
            lane.heap = [entry for entry in lane.heap if self._is_listed(entry, lane)]
            heapq.heapify(lane.heap)
            lane.kept = len(lane.heap)

    def _is_listed(self, entry: tuple[float, int, str], lane: Lane) -> bool:
        """Return whether an entry of a lane's heap stands for its group as it is now."""
        group = self._groups.get(entry[2])
        return group is not None and group.version == entry[1] and group.lane == lane.name

    def _is_current(self, entry: tuple[float, int, str, int]) -> bool:
        """Return whether an entry of the heap of lanes stands for its lane as it is now."""
        lane = self._lanes[entry[2]]
        return lane.is_open and lane.version == entry[3]

    def _list_lane(self, lane: Lane) -> None:
        """Put an open lane into the heap of lanes at its smallest tag."""
        before = lane.version
        lane.version += 1
        if not lane.is_open or self._first_group(lane) is None:
            return
        tag, order, _ = lane.heap[0]
        top = self._tops[lane.rank]
        entry = (tag + lane.offset, order, lane.name, lane.version)
        if top and top[0][3] == before and top[0][2] == lane.name:
            heapq.heapreplace(top, entry)
            return
        heapq.heappush(top, entry)
        if len(top) > 2 * len(self._lanes) + 64:
            top[:] = [entry for entry in top if self._is_current(entry)]
            heapq.heapify(top)

    def _first_group(self, lane: Lane) -> Group[T] | None:
        heap = lane.heap
        while heap:
            # No two listings share a version, so this one is the group's own.
            group = self._groups.get(heap[0][2])
            if group is not None and group.version == heap[0][1]:
                return group
            heapq.heappop(heap)
        return None

    def _first_lane(self, rank: int) -> Lane | None:
        """Return the first open lane of a rank; the first entry of its heap is its first group's."""
        top = self._tops[rank] if rank < len(self._tops) else None
        while top:
            entry = top[0]
            lane = self._lanes[entry[2]]
            if lane.version == entry[3] and lane.is_open and self._first_group(lane) is not None:
                return lane
            heapq.heappop(top)
        return None

    def _in_order(self, rank: int) -> Iterator[Selection[T]]:
        """Yield the head of every group in an open lane of a rank, in the order in which they would be served.

        Walks the heaps best first and takes nothing out: an entry is looked at after its parent, so what is yielded
        costs O(log groups) each, and what is not asked for costs nothing.
        """
        frontier: list[tuple[float, int, str, int]] = []
        top = self._tops[rank]

        def reach(lane_name: str, place: int) -> None:
            lane = self._lanes[lane_name] if lane_name else None
            heap: Sequence[tuple[float, int, *tuple[object, ...]]] = lane.heap if lane else top
            if place < len(heap):
                tag = heap[place][0] + (lane.offset if lane else 0.0)
                heapq.heappush(frontier, (tag, heap[place][1], lane_name, place))

        reach("", 0)
        while frontier:
            _, _, lane_name, place = heapq.heappop(frontier)
            reach(lane_name, 2 * place + 1)
            reach(lane_name, 2 * place + 2)
            if not lane_name:
                if self._is_current(top[place]):
                    reach(top[place][2], 0)
            elif self._is_listed(entry := self._lanes[lane_name].heap[place], self._lanes[lane_name]):
                group = self._groups[entry[2]]
                yield Selection(group.heap[0][2], group.lane, group.version, self._tag_of(group))

    def _discard_from(self, group: Group[T], condition: Callable[[T], bool]) -> list[T]:
        gone = [entry[2] for entry in group.heap if condition(entry[2])]
        if not gone:
            return []
        for item in gone:
            self._forget(item)
        group.heap = [entry for entry in group.heap if self._id_of(entry[2]) in self._items]
        heapq.heapify(group.heap)
        self._advance(group, self._tag_of(group))
        return gone

    def _forget(self, item: T) -> None:
        del self._items[self._id_of(item)]
        self._left(item)

    def validate(self) -> None:
        """Assert the invariants of the class."""
        in_groups = [self._id_of(entry[2]) for group in self._groups.values() for entry in group.heap]
        assert len(in_groups) == len(set(in_groups)), "an item is in the queue twice"
        assert set(in_groups) == set(self._items), "groups and index disagree"
        listed = {(n, v) for lane in self._lanes.values() for _, v, n in lane.heap}
        for group in self._groups.values():
            assert group.heap, f"empty group {group.name} is kept"
            assert (group.name, group.version) in listed, f"group {group.name} is in no lane"
            assert group.lane == self._lane_of(group.heap[0][2]), f"group {group.name} is in the wrong lane"
        top = {(name, version): (rank, tag) for rank, t in enumerate(self._tops) for tag, _, name, version in t}
        for lane in self._lanes.values():
            first = self._first_group(lane)
            if lane.is_open and first is not None:
                listing = (lane.rank, first.tag + lane.offset)
                assert top.get((lane.name, lane.version)) == listing, f"lane {lane.name} is not listed"
