"""Row groups: samples that are opened together, and the progress of each group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from headgate.core import Task, TaskId


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Samples that the frontier opens together.

    Attributes:
        name: unique in the run.
        tasks: all stages of all rows, including every dependency; at least one.
        rows: number of samples.
    """

    name: str
    tasks: tuple[Task, ...]
    rows: int = 1

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError(f"row group {self.name!r} must have a task")
        if self.rows < 1:
            raise ValueError(f"row group {self.name!r} must have a row (got {self.rows})")


RowGroupSource = Callable[[], RowGroup | None]
"""Returns the next row group, None while there is none; later calls may return more."""


def taken_from(row_groups: Iterable[RowGroup] | RowGroupSource) -> RowGroupSource:
    """Return a function that returns the row groups one by one."""
    return row_groups if callable(row_groups) else partial(next, iter(row_groups), None)


@dataclass(slots=True)
class OpenRowGroup:
    """A row group in progress.

    Attributes:
        group: the row group.
        opened_at: when it was opened.
        remaining: tasks that have not ended.
        is_warming: whether its future demand counts towards `RowGroups.warming`.
    """

    group: RowGroup
    opened_at: float
    remaining: int
    is_warming: bool = True
    completed: int = 0
    failed: int = 0
    dropped: int = 0


@dataclass(slots=True)
class RowGroups:
    """The row groups of a run: pending ones, of which one is fetched ahead, and open ones. Pure; owned by one loop.

    `warming` counts the units of the model resource that open row groups will want soon: those of tasks that want it,
    are not ready yet, and depend on no other such task.
    """

    pending: RowGroupSource
    model_resource: str
    open: dict[str, OpenRowGroup] = field(default_factory=dict)
    active_rows: int = 0
    checkpointed: int = 0
    warming: int = 0
    _next: RowGroup | None = None
    _where: dict[TaskId, str] = field(default_factory=dict)
    _first_wave: dict[TaskId, int] = field(default_factory=dict)

    @property
    def next(self) -> RowGroup | None:
        """The row group to open next, fetched if necessary; None while there is none."""
        if self._next is None:
            self._next = self.pending()
        return self._next

    def open_next(self, now: float) -> OpenRowGroup:
        """Open the next row group."""
        group = self.next
        if group is None:
            raise ValueError("no row group is left to be opened")
        if group.name in self.open:
            raise ValueError(f"two row groups are called {group.name!r}: a name must be unique in its run")
        self._next = None
        opened = self.open[group.name] = OpenRowGroup(group, now, len(group.tasks))
        self.active_rows += group.rows
        for task in group.tasks:
            self._where[task.task_id] = group.name
        for task in _first_wave(group.tasks, self.model_resource):
            units = task.resources[self.model_resource]
            self._first_wave[task.task_id] = units
            self.warming += units
        return opened

    def became_ready(self, task_id: TaskId) -> None:
        """Note that a task is ready: from now on the queue counts its demand."""
        self.warming -= self._first_wave.pop(task_id, 0)

    def put_off(self, task_id: TaskId) -> None:
        """Note that a task is deferred, so its row group's future demand no longer counts as imminent."""
        opened = self.open.get(self._where.get(task_id, ""))
        if opened is not None and opened.is_warming:
            opened.is_warming = False
            for task in opened.group.tasks:
                self.became_ready(task.task_id)

    def ended(self, task_id: TaskId, outcome: str) -> OpenRowGroup | None:
        """Note a task's outcome (`completed`, `failed` or `dropped`); return its row group if that has now ended."""
        name = self._where.pop(task_id, None)
        if name is None:
            return None  # a single-stage task, which belongs to no row group
        self.became_ready(task_id)
        opened = self.open[name]
        opened.remaining -= 1
        setattr(opened, outcome, getattr(opened, outcome) + 1)
        if opened.remaining:
            return None
        del self.open[name]
        self.active_rows -= opened.group.rows
        self.checkpointed += 1
        return opened

    def validate(self) -> None:
        """Assert the invariants of the class."""
        assert self.active_rows == sum(o.group.rows for o in self.open.values())
        assert self.warming == sum(self._first_wave.values())
        assert sum(o.remaining for o in self.open.values()) == len(self._where)


def _first_wave(tasks: Iterable[Task], resource: str) -> list[Task]:
    """Return the tasks that want a resource and depend on none of `tasks` that wants it too."""
    by_id = {task.task_id: task for task in tasks}
    is_behind: dict[TaskId, bool] = {}

    def comes_after(task: Task) -> bool:
        stack = [task]
        while stack:
            top = stack[-1]
            unknown = [d for d in top.depends_on if d in by_id and d not in is_behind]
            if unknown:
                stack.extend(by_id[d] for d in unknown)
                continue
            stack.pop()
            is_behind[top.task_id] = any(
                resource in by_id[d].resources or is_behind[d] for d in top.depends_on if d in by_id
            )
        return is_behind[task.task_id]

    return [task for task in by_id.values() if resource in task.resources and not comes_after(task)]
