"""The ready queue: weighted fair between groups, FIFO inside one, and blind to groups that cannot run.

Start-time fair queueing (Goyal, Vin and Cheng 1996). Each backlogged group has a tag; the group with the smallest tag
is served and its tag grows by 1 / weight. Virtual time is the tag last served, and a group that returns from idle
starts there, so that no credit is hoarded. For two groups i and j that stay backlogged, served_i / weight_i and
served_j / weight_j never differ by more than 1 / weight_i + 1 / weight_j; the property test holds it to that.

A *lane* is what makes a whole set of groups unable to run at once: a model's endpoint that is saturated or paused.
Groups wait in the lane of their head task, lanes wait in one heap by the smallest tag inside, and a closed lane is not
in that heap at all. So selecting costs O(log groups) however many groups are ineligible. A lane that opens again starts
at virtual time as well; an offset per lane moves all its groups together and keeps their order among themselves.

While a lane is closed its *clock* stands: at the virtual time of its closing, or at its smallest tag if that comes
later. A group that enters or leaves such a lane takes along how far it is ahead of the clock, and not its tag: else it
would be moved twice when the lane opens, or would take the order of the lane that it enters apart.

A group that a condition passes over falls behind virtual time; it is the first to be served when the condition lets it,
and goes on from virtual time as if it had been idle.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from headgate.core import Task, TaskId


@dataclass(frozen=True, slots=True)
class Selection:
    """A task that could run next. Nothing has changed yet; `commit` takes it, once."""

    task: Task
    lane: str
    version: int


@dataclass(frozen=True, slots=True)
class StaleSelection:
    """A selection that can no longer be committed: the head of its group or the state of its lane has changed."""

    task_id: TaskId
    reason: str


@dataclass(slots=True)
class _Group:
    """Tasks of one fairness key. `tag` is relative to the offset of `lane`; no two listings share a `version`."""

    name: str
    weight: float
    heap: list[tuple[int, int, Task]] = field(default_factory=list)
    tag: float = 0.0
    lane: str = ""
    version: int = 0


@dataclass(slots=True)
class _Lane:
    """Groups whose head task needs the same endpoint. `kept` is the length of `heap` after it was last swept."""

    name: str
    is_open: bool = True
    offset: float = 0.0
    closed_at: float = 0.0
    heap: list[tuple[float, int, str]] = field(default_factory=list)
    version: int = 0
    kept: int = 0


class FairReadyQueue:
    """Tasks that are ready to run. Pure and synchronous; owned by the dispatcher.

    Invariants (`validate`): a task is in the queue at most once; every group with tasks is listed in exactly one lane;
    every open lane with groups is listed once in the heap of lanes, at its smallest tag; virtual time never goes back.
    """

    def __init__(self, lane_of: Callable[[Task], str] = lambda task: task.model) -> None:
        self._lane_of = lane_of
        self._tasks: dict[TaskId, Task] = {}
        self._groups: dict[str, _Group] = {}
        self._lanes: dict[str, _Lane] = {}
        self._top: list[tuple[float, int, str, int]] = []
        self._last_tag: dict[str, float] = {}
        self._virtual = 0.0
        self._order = 0
        self.by_environment: Counter[str] = Counter()
        self.by_model: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._tasks

    @property
    def virtual_time(self) -> float:
        """The tag last served."""
        return self._virtual

    def enqueue(self, tasks: Iterable[Task]) -> list[Task]:
        """Add tasks that are not in the queue yet; return those that were added. O(log n) each."""
        added: list[Task] = []
        for task in tasks:
            if task.task_id in self._tasks:
                continue
            self._tasks[task.task_id] = task
            self.by_environment[task.environment] += 1
            self.by_model[task.model] += 1
            self._order += 1
            group = self._groups.get(task.group)
            if group is None:
                group = self._groups[task.group] = _Group(task.group, task.weight)
                heapq.heappush(group.heap, (-task.priority, self._order, task))
                tag = max(self._virtual, self._last_tag.pop(task.group, 0.0))
                self._list_group(group, tag)
            else:
                group.weight = task.weight
                heapq.heappush(group.heap, (-task.priority, self._order, task))
                if group.heap[0][2] is task and self._lane_of(task) != group.lane:
                    self._list_group(group, self._tag_of(group))
            added.append(task)
        return added

    def select_next(self, eligible: Callable[[Task], bool] | None = None) -> Selection | None:
        """Return the task that is to run next, or None when no group in an open lane can run. Changes nothing.

        Args:
            eligible: a further condition on a group's head, which must not change the queue. It is asked in the order
                of service, and each group that it refuses costs O(log groups); what refuses whole lanes belongs into
                `close_lane`, which costs nothing here.
        """
        if eligible is None:
            lane = self._first_lane()
            if lane is None:
                return None
            group = self._first_group(lane)
            return Selection(group.heap[0][2], lane.name, group.version) if group else None
        return next((s for s in self._in_order() if eligible(s.task)), None)

    def commit(self, selection: Selection) -> Task | StaleSelection:
        """Take the selected task out and advance virtual time; refuses a selection that is out of date."""
        task = selection.task
        group = self._groups.get(task.group)
        if group is None or not group.heap or group.heap[0][2] is not task or group.version != selection.version:
            return StaleSelection(task.task_id, "the head of its group has changed")
        lane = self._lanes[group.lane]
        if not lane.is_open:
            return StaleSelection(task.task_id, f"lane {lane.name} is closed")
        heapq.heappop(group.heap)
        self._forget(task)
        self._virtual = max(self._virtual, self._tag_of(group))
        self._advance(group, self._virtual + 1.0 / group.weight)
        return task

    def discard(self, task_id: TaskId) -> bool:
        """Take a task out without serving it; return whether it was there. O(tasks of its group)."""
        task = self._tasks.get(task_id)
        if task is None:
            return False
        self._discard_from(self._groups[task.group], lambda t: t.task_id == task_id)
        return True

    def discard_where(self, condition: Callable[[Task], bool]) -> list[Task]:
        """Take out and return all tasks that fulfil the condition. O(tasks)."""
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

    def is_open(self, lane: str) -> bool:
        """Return whether the lane's groups may run."""
        entry = self._lanes.get(lane)
        return entry is None or entry.is_open

    def task(self, task_id: TaskId) -> Task | None:
        """Return a queued task."""
        return self._tasks.get(task_id)

    def position(self, task_id: TaskId) -> int:
        """Return how many tasks of the same group are ahead of a queued task. O(tasks of its group)."""
        task = self._tasks[task_id]
        return next(i for i, entry in enumerate(sorted(self._groups[task.group].heap)) if entry[2] is task)

    def tasks(self) -> Iterator[Task]:
        """Iterate over the queued tasks, in the order in which they were enqueued."""
        return iter(list(self._tasks.values()))

    # Groups and lanes.

    def _lane(self, name: str) -> _Lane:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(name)
        return lane

    def _tag_of(self, group: _Group) -> float:
        return group.tag + self._lanes[group.lane].offset

    def _advance(self, group: _Group, tag: float) -> None:
        """List the group again at its next tag, or retire it when it is empty."""
        if group.heap:
            self._list_group(group, tag)
            return
        lane = self._lanes[group.lane]
        del self._groups[group.name]
        if tag > self._virtual:
            self._last_tag[group.name] = tag
            if len(self._last_tag) > 2 * len(self._groups) + 64:
                # A tag that virtual time has passed says nothing any more: its group would start at virtual time.
                self._last_tag = {g: t for g, t in self._last_tag.items() if t > self._virtual}
        self._list_lane(lane)

    def _clock(self, lane: _Lane) -> float:
        """Return virtual time as the lane sees it: it stands still while the lane is closed."""
        first = None if lane.is_open else self._first_group(lane)
        return self._virtual if first is None else min(self._virtual, max(lane.closed_at, first.tag + lane.offset))

    def _list_group(self, group: _Group, tag: float) -> None:
        """List the group in the lane of its head; `tag` is told in the time of the lane where it was before."""
        before = self._lanes[group.lane] if group.lane else None
        lane = self._lane(self._lane_of(group.heap[0][2]))
        if lane is not before:
            told_at, heard_at = self._clock(before) if before else self._virtual, self._clock(lane)
            if told_at != heard_at:
                tag = heard_at + max(0.0, tag - told_at)
        group.lane = lane.name
        group.tag = tag - lane.offset
        self._order += 1
        group.version = self._order
        heapq.heappush(lane.heap, (group.tag, group.version, group.name))
        if len(lane.heap) > 2 * lane.kept + 64:
            lane.heap = [entry for entry in lane.heap if self._is_listed(entry, lane)]
            heapq.heapify(lane.heap)
            lane.kept = len(lane.heap)
        if before is not None and lane is not before:
            self._list_lane(before)
        self._list_lane(lane)

    def _is_listed(self, entry: tuple[float, int, str], lane: _Lane) -> bool:
        """Return whether an entry of a lane's heap stands for its group as it is now."""
        group = self._groups.get(entry[2])
        return group is not None and group.version == entry[1] and group.lane == lane.name

    def _is_current(self, entry: tuple[float, int, str, int]) -> bool:
        """Return whether an entry of the heap of lanes stands for its lane as it is now."""
        lane = self._lanes[entry[2]]
        return lane.is_open and lane.version == entry[3]

    def _list_lane(self, lane: _Lane) -> None:
        """Put an open lane into the heap of lanes at its smallest tag."""
        lane.version += 1
        if not lane.is_open or self._first_group(lane) is None:
            return
        tag, order, _ = lane.heap[0]
        heapq.heappush(self._top, (tag + lane.offset, order, lane.name, lane.version))
        if len(self._top) > 2 * len(self._lanes) + 64:
            self._top = [entry for entry in self._top if self._is_current(entry)]
            heapq.heapify(self._top)

    def _first_group(self, lane: _Lane) -> _Group | None:
        while lane.heap:
            if self._is_listed(lane.heap[0], lane):
                return self._groups[lane.heap[0][2]]
            heapq.heappop(lane.heap)
        return None

    def _first_lane(self) -> _Lane | None:
        while self._top:
            if self._is_current(self._top[0]):
                return self._lanes[self._top[0][2]]
            heapq.heappop(self._top)
        return None

    def _in_order(self) -> Iterator[Selection]:
        """Yield the head of every group in an open lane, in the order in which they would be served.

        Walks the heaps best first and takes nothing out: an entry is looked at after its parent, so what is yielded
        costs O(log groups) each, and what is not asked for costs nothing.
        """
        frontier: list[tuple[float, int, str, int]] = []

        def reach(lane_name: str, place: int) -> None:
            lane = self._lanes[lane_name] if lane_name else None
            heap: Sequence[tuple[float, int, *tuple[object, ...]]] = lane.heap if lane else self._top
            if place < len(heap):
                tag = heap[place][0] + (lane.offset if lane else 0.0)
                heapq.heappush(frontier, (tag, heap[place][1], lane_name, place))

        reach("", 0)
        while frontier:
            _, _, lane_name, place = heapq.heappop(frontier)
            reach(lane_name, 2 * place + 1)
            reach(lane_name, 2 * place + 2)
            if not lane_name:
                if self._is_current(self._top[place]):
                    reach(self._top[place][2], 0)
            elif self._is_listed(entry := self._lanes[lane_name].heap[place], self._lanes[lane_name]):
                group = self._groups[entry[2]]
                yield Selection(group.heap[0][2], group.lane, group.version)

    def _discard_from(self, group: _Group, condition: Callable[[Task], bool]) -> list[Task]:
        gone = [entry[2] for entry in group.heap if condition(entry[2])]
        if not gone:
            return []
        for task in gone:
            self._forget(task)
        group.heap = [entry for entry in group.heap if entry[2].task_id in self._tasks]
        heapq.heapify(group.heap)
        self._advance(group, self._tag_of(group))
        return gone

    def _forget(self, task: Task) -> None:
        del self._tasks[task.task_id]
        self.by_environment[task.environment] -= 1
        self.by_model[task.model] -= 1

    def validate(self) -> None:
        """Assert the invariants of the class."""
        in_groups = [entry[2].task_id for group in self._groups.values() for entry in group.heap]
        assert len(in_groups) == len(set(in_groups)), "a task is in the queue twice"
        assert set(in_groups) == set(self._tasks), "groups and index disagree"
        assert sum(self.by_environment.values()) == sum(self.by_model.values()) == len(self._tasks)
        listed = {(n, v) for lane in self._lanes.values() for _, v, n in lane.heap}
        for group in self._groups.values():
            assert group.heap, f"empty group {group.name} is kept"
            assert (group.name, group.version) in listed, f"group {group.name} is in no lane"
            assert group.lane == self._lane_of(group.heap[0][2]), f"group {group.name} is in the wrong lane"
        top = {(name, version): tag for tag, _, name, version in self._top}
        for lane in self._lanes.values():
            first = self._first_group(lane)
            if lane.is_open and first is not None:
                assert top.get((lane.name, lane.version)) == first.tag + lane.offset, f"lane {lane.name} is not listed"
