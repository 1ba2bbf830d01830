"""Fair batches: a sampler's tasks are buffered and enter the ready queue together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from headgate.core import Task
from headgate.sampling.timers import TimerHeap


@dataclass(slots=True)
class FairBatches:
    """Buffers of tasks, one per sampler. Pure.

    A buffer is ready when it holds `batch_size` tasks or its oldest has waited `flush_after_s`. Each buffer has its own
    time, so no sampler is always first. A removed sampler's buffer is dropped with it, and nothing is enqueued twice.
    """

    batch_size: int = 50
    flush_after_s: float = 30.0
    _buffers: dict[str, list[Task]] = field(default_factory=dict)
    _flush: TimerHeap = field(default_factory=TimerHeap)
    size: int = 0

    def add(self, sampler: str, task: Task, now: float) -> None:
        """Buffer a task of a sampler."""
        buffer = self._buffers.setdefault(sampler, [])
        buffer.append(task)
        self.size += 1
        if len(buffer) >= self.batch_size:
            self._flush.set(sampler, now)
        elif len(buffer) == 1:
            self._flush.set(sampler, now + self.flush_after_s)

    def next_at(self) -> float | None:
        """Return when the next buffer becomes ready, None when all are empty."""
        return self._flush.next_at()

    def take_ready(self, now: float, *, everything: bool = False) -> list[tuple[str, list[Task]]]:
        """Take out the buffers that are ready, or `everything`, in the order in which they become so."""
        return [(sampler, self.take(sampler)) for sampler in self._flush.pop_due(math.inf if everything else now)]

    def take(self, sampler: str) -> list[Task]:
        """Take out one sampler's buffer, ready or not."""
        self._flush.set(sampler, None)
        tasks = self._buffers.pop(sampler, [])
        self.size -= len(tasks)
        return tasks

    def put_back(self, sampler: str, tasks: list[Task], ready_at: float) -> None:
        """Put tasks that found no room at the head of their sampler's buffer, ready again at `ready_at`."""
        self._buffers[sampler] = tasks + self._buffers.get(sampler, [])
        self.size += len(tasks)
        self._flush.set(sampler, ready_at)

    def items(self) -> Iterator[Task]:
        """Return every task that waits in a buffer, by sampler."""
        return (task for buffer in self._buffers.values() for task in buffer)
