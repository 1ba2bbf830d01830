"""Retries: what an exception from a task's work means, and the tasks that wait for a retry without a lease."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

from headgate.core import ChatError, Task, TaskId
from headgate.core.errors import HeadgateError


class RetryLaterError(Exception):
    """The work cannot be done now but may succeed later, for example after a provider's cooldown.

    Attributes:
        reason: why, in a few words.
        wait_s: seconds before the next try; None leaves it to the run's rules.
        is_failure: False if nothing went wrong and the task may wait indefinitely, for example for a new day's budget.
        is_held: returns whether the task still waits for `DispatchLoop.go_on`; None if it waits only for time.
    """

    def __init__(
        self,
        reason: str,
        wait_s: float | None = None,
        *,
        is_failure: bool = True,
        is_held: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait_s = wait_s
        self.is_failure = is_failure
        self.is_held = is_held


class TaskFailedError(HeadgateError):
    """A task failed for good because of its provider or its answer's form: the sample fails, the run goes on."""

    code = "task_failed"
    next_step = "The sample is recorded as failed; its cause is in the message."


def is_defect(error: Exception) -> bool:
    """Return whether an exception from a task's work stops the run.

    An error that Headgate raises on purpose, or a failed chat, fails only the sample. Anything else (a `TypeError`, a
    `KeyError`) is a bug in the code that runs the sample, and would hit the next one as well.
    """
    return not isinstance(error, RetryLaterError | HeadgateError | ChatError)


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How long a task is retried, and when if its error does not say.

    Attributes:
        max_attempts: maximum number of runs of one task; the last failure is final.
        for_s: seconds since a task's first failure after which its next failure is final.
        wait_s: seconds before the second run; doubles with each further run.
        max_wait_s: maximum seconds before a run, which also caps the wait that an error asks for.
    """

    max_attempts: int = 1_000
    for_s: float = 3_600.0
    wait_s: float = 1.0
    max_wait_s: float = 300.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts must be >= 1 (got {self.max_attempts})")
        for name in ("for_s", "wait_s", "max_wait_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be >= 0 (got {getattr(self, name)})")

    def wait_for(self, retry: RetryLaterError, attempt: int) -> float:
        """Return the seconds before run number `attempt` + 1."""
        asked = self.wait_s * 2.0 ** min(attempt - 1, 30) if retry.wait_s is None else retry.wait_s
        return min(max(asked, 0.0), self.max_wait_s)


class Retries:
    """The deferred tasks, by the time of their next run. Pure; owned by one loop."""

    def __init__(self, rules: RetryRules) -> None:
        self.rules = rules
        self._waiting: list[tuple[float, int, Task]] = []
        self._failing_since: dict[TaskId, float] = {}
        self.held: dict[TaskId, Task] = {}
        """Tasks that wait for `DispatchLoop.go_on`, however long; read-only."""
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._waiting) + len(self.held)

    def waiting(self) -> list[Task]:
        """Return the tasks that wait for a time."""
        return [task for _, _, task in self._waiting]

    def put_off(self, task: Task, retry: RetryLaterError, now: float) -> float | None:
        """Defer a task; return the seconds until its next run, 0 if it is held, None if this was its last run."""
        if not retry.is_failure:
            self._failing_since.pop(task.task_id, None)
        elif self._is_last(task, now):
            return None
        if retry.is_held is not None and retry.is_held():
            self.held[task.task_id] = task
            return 0.0
        wait_s = self.rules.wait_for(retry, task.attempt)
        # A task that merely waits has not failed: its wait does not count as an attempt.
        again = replace(task, attempt=task.attempt + 1) if retry.is_failure else task
        heapq.heappush(self._waiting, (now + wait_s, next(self._order), again))
        return wait_s

    def _is_last(self, task: Task, now: float) -> bool:
        since = self._failing_since.setdefault(task.task_id, now)
        return task.attempt >= self.rules.max_attempts or now - since >= self.rules.for_s

    def ended(self, task_id: TaskId) -> None:
        """Forget a task that has ended for good."""
        self._failing_since.pop(task_id, None)

    def take(self, condition: Callable[[Task], bool]) -> list[Task]:
        """Remove and return the tasks that meet a condition."""
        taken = [task for task in (*self.held.values(), *(task for _, _, task in self._waiting)) if condition(task)]
        gone = {task.task_id for task in taken}
        self._waiting = [entry for entry in self._waiting if entry[2].task_id not in gone]
        heapq.heapify(self._waiting)
        for task_id in gone:
            self.held.pop(task_id, None)
            self._failing_since.pop(task_id, None)
        return taken

    def due(self, now: float) -> list[Task]:
        """Remove and return the tasks that are due."""
        due = []
        while self._waiting and self._waiting[0][0] <= now:
            due.append(heapq.heappop(self._waiting)[2])
        return due

    def next_at(self) -> float | None:
        """Return when the next task is due, None if none waits for a time."""
        return self._waiting[0][0] if self._waiting else None

    def at(self, task_id: TaskId) -> float | None:
        """Return when a task is due; None if it does not wait for a time. O(deferred tasks)."""
        return next((at for at, _, task in self._waiting if task.task_id == task_id), None)
