"""A fair queue that sorts its groups at every selection, as DataDesigner's engine does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headgate.core import Task


class SortedScanQueue:
    """Start-time fair queueing over groups by sorting: O(groups log groups) per selection.

    The same rule as ours (smallest tag first, FIFO within a group, two phases), implemented plainly. Cheaper than the
    engine that it represents, which also copies a view of the whole queue per selection, and takes leases.
    """

    def __init__(self, is_open: Callable[[str], bool]) -> None:
        self._is_open = is_open
        self._groups: dict[str, deque[Task]] = {}
        self._tags: dict[str, float] = {}
        self._queued: set[str] = set()
        self._virtual = 0.0

    def enqueue(self, task: Task) -> None:
        """Add a task that is not queued yet."""
        if task.task_id in self._queued:
            return
        self._queued.add(task.task_id)
        group = self._groups.get(task.group)
        if group is None:
            group = self._groups[task.group] = deque()
            self._tags[task.group] = max(self._virtual, self._tags.get(task.group, 0.0))
        group.append(task)

    def select_next(self) -> Task | None:
        """Return the head of the open group with the smallest tag."""
        for name in sorted(self._groups, key=self._tags.__getitem__):
            if self._is_open(name):
                return self._groups[name][0]
        return None

    def commit(self, task: Task) -> None:
        """Remove the selected task and advance its group."""
        group = self._groups[task.group]
        group.popleft()
        self._queued.remove(task.task_id)
        self._virtual = self._tags[task.group]
        self._tags[task.group] += 1 / task.weight
        if not group:
            del self._groups[task.group]
