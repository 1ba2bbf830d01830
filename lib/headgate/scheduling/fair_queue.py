"""The ready queue: weighted fair between groups, FIFO inside one, and blind to groups that cannot run.

Start-time fair queueing (Goyal, Vin and Cheng 1996). Each backlogged group has a tag; the group with the smallest tag
is served and its tag grows by 1 / weight. Virtual time is the tag last served, and a group that returns from idle
starts there, so that no credit is hoarded. For two groups i and j that stay backlogged, served_i / weight_i and
served_j / weight_j never differ by more than 1 / weight_i + 1 / weight_j; the property test holds it to that.

A *lane* is what makes a whole set of groups unable to run at once: a model's endpoint that is saturated or paused.
Groups wait in the lane of their head task, lanes wait in one heap by the smallest tag inside, and a closed lane is not
in that heap at all. So selecting costs O(log groups) however many groups are ineligible. A lane that opens again starts
at virtual time as well; an offset per lane moves all its groups together and keeps their order among themselves.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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
    """Tasks of one fairness key. `tag` is relative to the offset of `lane`."""

    name: str
    weight: float
    heap: list[tuple[int, int, Task]] = field(default_factory=list)
    tag: float = 0.0
    lane: str = ""
    version: int = 0


@dataclass(slots=True)
class _Lane:
    """Groups whose head task needs the same endpoint."""

    name: str
    is_open: bool = True
    offset: float = 0.0
    heap: list[tuple[float, int, str, int]] = field(default_factory=list)
    version: int = 0


class FairReadyQueue:
    """Tasks that are ready to run. Pure and synchronous; owned by the dispatcher.

    Invariants (`validate`): a task is in the queue at most once; every group with tasks is listed in exactly one lane;
    every open lane with groups is listed once in the heap of lanes, at its smallest tag; no tag of a group in an open
    lane lies behind virtual time.
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
            eligible: a further condition on a group's head. Each group that it refuses costs O(log groups); what
                refuses whole lanes belongs into `close_lane`, which costs nothing here.
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
        tag = self._tag_of(group)
        self._virtual = max(self._virtual, tag)
        self._advance(group, tag + 1.0 / group.weight)
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
        self._lane(lane).is_open = False

    def open_lane(self, lane: str) -> None:
        """Make the groups of `lane` eligible again, none of them behind virtual time. O(log lanes)."""
        entry = self._lane(lane)
        if entry.is_open:
            return
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

    def _list_group(self, group: _Group, tag: float) -> None:
        before = group.lane
        lane = self._lane(self._lane_of(group.heap[0][2]))
        group.lane = lane.name
        group.tag = tag - lane.offset
        group.version += 1
        self._order += 1
        heapq.heappush(lane.heap, (group.tag, self._order, group.name, group.version))
        if before and before != lane.name:
            self._list_lane(self._lanes[before])
        self._list_lane(lane)

    def _list_lane(self, lane: _Lane) -> None:
        """Put an open lane into the heap of lanes at its smallest tag; lifts it to virtual time when behind."""
        lane.version += 1
        if not lane.is_open:
            return
        first = self._first_group(lane)
        if first is None:
            return
        lane.offset += max(0.0, self._virtual - (first.tag + lane.offset))
        tag, order, _, _ = lane.heap[0]
        heapq.heappush(self._top, (tag + lane.offset, order, lane.name, lane.version))

    def _first_group(self, lane: _Lane) -> _Group | None:
        while lane.heap:
            _, _, name, version = lane.heap[0]
            group = self._groups.get(name)
            if group is not None and group.version == version and group.lane == lane.name:
                return group
            heapq.heappop(lane.heap)
        return None

    def _first_lane(self) -> _Lane | None:
        while self._top:
            _, _, name, version = self._top[0]
            lane = self._lanes[name]
            if lane.is_open and lane.version == version:
                return lane
            heapq.heappop(self._top)
        return None

    def _in_order(self) -> Iterator[Selection]:
        """Yield the head of every group in an open lane, in the order in which they would be served."""
        heads: list[tuple[float, int, _Group]] = []
        for lane in self._lanes.values():
            if lane.is_open:
                heads.extend(
                    (tag + lane.offset, order, self._groups[name])
                    for tag, order, name, version in lane.heap
                    if name in self._groups
                    and self._groups[name].version == version
                    and self._groups[name].lane == lane.name
                )
        heapq.heapify(heads)
        while heads:
            _, _, group = heapq.heappop(heads)
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
        listed = {(n, v) for lane in self._lanes.values() for _, _, n, v in lane.heap}
        for group in self._groups.values():
            assert group.heap, f"empty group {group.name} is kept"
            assert (group.name, group.version) in listed, f"group {group.name} is in no lane"
            assert group.lane == self._lane_of(group.heap[0][2]), f"group {group.name} is in the wrong lane"
            if self._lanes[group.lane].is_open:
                assert self._tag_of(group) >= self._virtual - 1e-6, f"group {group.name} lies behind virtual time"
        top = {(n, v) for _, _, n, v in self._top}
        for lane in self._lanes.values():
            if lane.is_open and self._first_group(lane) is not None:
                assert (lane.name, lane.version) in top, f"lane {lane.name} is not listed"
