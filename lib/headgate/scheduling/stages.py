"""Stages: which tasks become ready when others end, and which never will."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from headgate.core import Task, TaskId
from headgate.core.errors import InvalidInputError


class StageState(StrEnum):
    """A task's state in its graph. The last three are final."""

    WAITING = "waiting"
    READY = "ready"
    DONE = "done"
    FAILED = "failed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Dropped:
    """A task that will never run, because a dependency failed or was dropped.

    Attributes:
        task: the dropped task.
        because_of: the task that failed, or was dropped, first.
    """

    task: Task
    because_of: TaskId


@dataclass(frozen=True, slots=True)
class Progress:
    """Tasks that became ready or were dropped when a task ended or tasks were added."""

    ready: tuple[Task, ...] = ()
    dropped: tuple[Dropped, ...] = ()


@dataclass(slots=True)
class _Node:
    task: Task
    state: StageState
    missing: int
    dependants: list[TaskId] = field(default_factory=list)


_NOTHING = Progress()


class StageGraph:
    """The dependencies between tasks, and which of them are met. Pure; owned by one loop.

    A task is ready once every task in its `depends_on` is done; if one of them failed or was dropped, it is dropped,
    and so is everything that depends on it. A task of a *tolerant* stage is ready once they have all ended, whatever
    their outcome: for example, an aggregate of whatever results there are. A task is reported as ready once.

    Invariants (`validate`): a waiting task's `missing` is the number of its dependencies that have not ended; a task
    whose dependencies have all ended does not wait.
    """

    def __init__(self, tolerant_stages: Iterable[str] = ()) -> None:
        self._tolerant = frozenset(tolerant_stages)
        self._nodes: dict[TaskId, _Node] = {}
        self.waiting = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._nodes

    def state(self, task_id: TaskId) -> StageState | None:
        """Return a task's state; None if it is not, or no longer, in the graph."""
        node = self._nodes.get(task_id)
        return node.state if node is not None else None

    def missing(self, task_id: TaskId) -> list[TaskId]:
        """Return the dependencies of a task that have not ended."""
        node = self._nodes.get(task_id)
        return [] if node is None else [d for d in node.task.depends_on if not self._has_ended(d)]

    def add(self, tasks: Iterable[Task]) -> Progress:
        """Add tasks together with their dependencies; tasks already in the graph are ignored. O(edges).

        Raises:
            InvalidInputError: if a task depends on one that is neither in the graph nor among `tasks`, or, directly or
                indirectly, on itself. Then no task is added.
        """
        fresh = {task.task_id: task for task in tasks if task.task_id not in self._nodes}
        ordered = self._ordered(fresh)
        ready: list[Task] = []
        dropped: list[Dropped] = []
        for task in ordered:
            node = self._nodes[task.task_id] = _Node(task, StageState.WAITING, 0)
            self.waiting += 1
            for dependency in dict.fromkeys(task.depends_on):
                on = self._nodes[dependency]
                if not self._has_ended(dependency):
                    node.missing += 1
                    on.dependants.append(task.task_id)
            lost = next(
                (d for d in task.depends_on if self._nodes[d].state in {StageState.FAILED, StageState.DROPPED}), None
            )
            if lost is not None and task.stage not in self._tolerant:
                node.state = StageState.DROPPED
                self.waiting -= 1
                dropped.append(Dropped(task, lost))
            elif not node.missing:
                ready.append(self._make_ready(node))
        return Progress(tuple(ready), tuple(dropped))

    def done(self, task_id: TaskId) -> Progress:
        """Note that a task has its result; return the tasks that become ready."""
        return self._ended(task_id, StageState.DONE)

    def failed(self, task_id: TaskId) -> Progress:
        """Note that a task failed for good; return the tasks that become ready nevertheless and those dropped."""
        return self._ended(task_id, StageState.FAILED)

    def forget(self, task_ids: Iterable[TaskId]) -> None:
        """Remove those of the tasks that have ended; no task added later may depend on them."""
        for task_id in task_ids:
            if task_id in self._nodes and self._has_ended(task_id):
                del self._nodes[task_id]

    def _ended(self, task_id: TaskId, state: StageState) -> Progress:
        node = self._nodes.get(task_id)
        if node is None or node.state is not StageState.READY:
            return _NOTHING
        node.state = state
        ready: list[Task] = []
        dropped: list[Dropped] = []
        self._told(node, task_id, ready, dropped, is_lost=state is StageState.FAILED)
        return Progress(tuple(ready), tuple(dropped))

    def _told(self, node: _Node, cause: TaskId, ready: list[Task], dropped: list[Dropped], *, is_lost: bool) -> None:
        """Update the tasks that depend, directly or indirectly, on a node that has ended."""
        ended = [(node, is_lost)]
        while ended:
            over, was_lost = ended.pop()
            for dependant in over.dependants:
                other = self._nodes[dependant]
                if other.state is not StageState.WAITING:
                    continue
                other.missing -= 1
                if was_lost and other.task.stage not in self._tolerant:
                    other.state = StageState.DROPPED
                    self.waiting -= 1
                    dropped.append(Dropped(other.task, cause))
                    ended.append((other, True))
                elif not other.missing:
                    ready.append(self._make_ready(other))
            over.dependants = []

    def _make_ready(self, node: _Node) -> Task:
        node.state = StageState.READY
        self.waiting -= 1
        return node.task

    def _has_ended(self, task_id: TaskId) -> bool:
        return self._nodes[task_id].state in {StageState.DONE, StageState.FAILED, StageState.DROPPED}

    def _ordered(self, fresh: dict[TaskId, Task]) -> list[Task]:
        """Return fresh tasks in an order in which each comes after its dependencies."""
        ordered: list[Task] = []
        placed: set[TaskId] = set()
        path: dict[TaskId, None] = {}
        for root in fresh.values():
            stack = [root]
            while stack:
                task = stack[-1]
                if task.task_id in placed:
                    stack.pop()
                    continue
                path[task.task_id] = None
                missing = [d for d in task.depends_on if d not in placed and d not in self._nodes]
                for dependency in missing:
                    if dependency not in fresh:
                        raise _unknown(task, dependency)
                    if dependency in path:
                        raise _circular(task, dependency)
                if missing:
                    stack.extend(fresh[d] for d in missing[:1])
                    continue
                ordered.append(task)
                placed.add(task.task_id)
                del path[task.task_id]
                stack.pop()
        return ordered

    def validate(self) -> None:
        """Assert the invariants of the class."""
        assert self.waiting == sum(node.state is StageState.WAITING for node in self._nodes.values())
        for node in self._nodes.values():
            if node.state is StageState.WAITING:
                missing = {d for d in node.task.depends_on if d in self._nodes and not self._has_ended(d)}
                assert node.missing == len(missing), f"{node.task.task_id} misses {node.missing}, not {missing}"
                assert node.missing, f"{node.task.task_id} waits for nothing"
                assert all(node.task.task_id in self._nodes[d].dependants for d in missing)


def _unknown(task: Task, dependency: TaskId) -> InvalidInputError:
    return InvalidInputError(
        f"task {task.task_id} depends on {dependency}, which is not known",
        next_step="Add a task together with, or after, all of its dependencies.",
    )


def _circular(task: Task, dependency: TaskId) -> InvalidInputError:
    return InvalidInputError(
        f"task {task.task_id} depends on {dependency}, which in turn depends on it",
        next_step="Stages must form a graph without cycles: remove one of the dependencies.",
    )
