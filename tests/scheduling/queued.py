"""What queue tests are about: tasks, and a reference of the fair queue that is slow and obvious."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from headgate.core import Task, TaskId
from headgate.scheduling import FairQueue, Selection


def task(
    name: str,
    group: str = "a",
    *,
    weight: float = 1.0,
    priority: int = 0,
    environment: str = "sat",
    model: str | None = None,
    resources: dict[str, int] | None = None,
) -> Task:
    """A task of a group; its model is the group unless told otherwise."""
    return Task(
        task_id=TaskId(name),
        model=group if model is None else model,
        environment=environment,
        sequence=0,
        index=0,
        seed=0,
        group=group,
        due_at=0.0,
        weight=weight,
        priority=priority,
        resources=resources if resources is not None else {"workers": 1},
    )


class ReadyQueue(FairQueue[Task]):
    """A fair queue of tasks, each model with a lane of its own unless told otherwise."""

    def __init__(self, lane_of: Callable[[Task], str] = attrgetter("model")) -> None:
        super().__init__(id_of=attrgetter("task_id"), lane_of=lane_of)

    def enqueue(self, items: Iterable[Task]) -> list[Task]:
        """Add items; return those that were not in the queue yet."""
        return [item for item in items if self.put(item)]

    def select_next(self) -> Selection[Task] | None:
        """Return the first item of the lowest rank that has one."""
        return next((s for rank in range(len(self._tops)) if (s := self.first(rank)) is not None), None)

    def set_rank(self, lane: str, rank: int) -> None:
        """Have the groups of a lane go behind those of lower ranks."""
        known = self._lane(lane)
        if known.is_open:
            self._open(known, rank)
        elif known.rank != rank:
            self._rank(known, rank)


@dataclass
class Group:
    weight: float
    tag: float
    lane: str
    tasks: list[Task] = field(default_factory=list)

    def put(self, one: Task) -> None:
        """Behind every task of the same or a higher priority."""
        place = next((i for i, t in enumerate(self.tasks) if t.priority < one.priority), len(self.tasks))
        self.tasks.insert(place, one)


class Reference:
    """Start-time fair queueing with lanes, every step in the open: no heaps, no offsets, no versions."""

    def __init__(self, lane_of: Callable[[Task], str]) -> None:
        self.lane_of = lane_of
        self.now = 0.0
        self.groups: dict[str, Group] = {}
        self.closed: dict[str, float] = {}
        self.last: dict[str, float] = {}
        self.seen: dict[str, None] = {}

    def clock(self, lane: str) -> float:
        tags = [g.tag for g in self.groups.values() if g.lane == lane]
        return min(self.now, max(self.closed[lane], min(tags))) if lane in self.closed and tags else self.now

    def enqueue(self, one: Task) -> None:
        group = self.groups.get(one.group)
        self.seen[one.group] = None
        if group is None:
            ahead = max(0.0, self.last.pop(one.group, 0.0) - self.now)
            lane = self.lane_of(one)
            self.groups[one.group] = Group(one.weight, self.clock(lane) + ahead, lane, [one])
            return
        group.weight = one.weight
        group.put(one)
        self.move(group)

    def move(self, group: Group) -> None:
        lane = self.lane_of(group.tasks[0])
        if lane != group.lane:
            told_at, heard_at = self.clock(group.lane), self.clock(lane)
            if told_at != heard_at:
                group.tag = heard_at + max(0.0, group.tag - told_at)
            group.lane = lane

    def candidates(self) -> dict[str, float]:
        return {name: g.tag for name, g in self.groups.items() if g.lane not in self.closed}

    def serve(self, name: str) -> Task:
        group = self.groups[name]
        served = group.tasks.pop(0)
        self.now = max(self.now, group.tag)
        group.tag = self.now + 1.0 / group.weight
        self.settle(name)
        return served

    def settle(self, name: str) -> None:
        group = self.groups[name]
        if group.tasks:
            self.move(group)
            return
        del self.groups[name]
        if group.tag > self.now:
            self.last[name] = group.tag

    def discard(self, condition: Callable[[Task], bool]) -> None:
        """Group by group, as they were first seen: each that leaves a closed lane moves the clock of that lane."""
        for name in [name for name in self.seen if name in self.groups]:
            group = self.groups[name]
            kept = [t for t in group.tasks if not condition(t)]
            if len(kept) < len(group.tasks):
                group.tasks = kept
                self.settle(name)

    def open_lane(self, lane: str) -> None:
        if lane in self.closed:
            lift = self.now - self.clock(lane)
            del self.closed[lane]
            for group in self.groups.values():
                group.tag += lift if group.lane == lane else 0.0
