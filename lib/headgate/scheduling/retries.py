"""Retries: what an exception of a task's work means, and tasks that wait for their next run without a lease."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

from headgate.core import ChatError, Task, TaskId
from headgate.core.errors import HeadgateError


class RetryLaterError(Exception):
    """The work could not be done now and may be later: after a provider's cooldown, say.

    Attributes:
        reason: why, in a few words.
        wait_s: seconds after which it may be tried again; None leaves it to the run's rules.
        is_failure: False where nothing went wrong, and it waits for as long as it takes: for a new day's budget, say.
        is_held: says whether it still waits to be told (`DispatchLoop.go_on`); None where only time passes.
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
    """A task's work failed for good, by its provider or its answer's form: this sample fails, the run goes on."""

    code = "task_failed"
    next_step = "The sample is recorded as failed; its cause is in the message."


def is_defect(error: Exception) -> bool:
    """Return whether an exception of a task's work stops the run.

    An error that Headgate raises on purpose, or a failed chat, is the sample's. Anything else (a `TypeError`, a
    `KeyError`) is a mistake in the code that runs the sample, and would hit the next one as well.
    """
    return not isinstance(error, RetryLaterError | HeadgateError | ChatError)


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How long a task may be tried again, and when if its error does not say.

    Attributes:
        max_attempts: runs of one task at most; the last failure is for good.
        for_s: seconds since its first failure after which the next one is for good, too.
        wait_s: seconds before the second run; doubles with each further one.
        max_wait_s: seconds at most, also for what an error asks for.
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
    """The tasks that are put off, by the time of their next run. Pure; owned by one loop."""

    def __init__(self, rules: RetryRules) -> None:
        self.rules = rules
        self._waiting: list[tuple[float, int, Task]] = []
        self._failing_since: dict[TaskId, float] = {}
        self.held: dict[TaskId, Task] = {}
        """Those that wait to be told, whatever the time; to be read."""
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._waiting) + len(self.held)

    def put_off(self, task: Task, retry: RetryLaterError, now: float) -> float | None:
        """Put a task off that has failed for now; return the seconds, or None if that was its last run."""
        if not retry.is_failure:
            self._failing_since.pop(task.task_id, None)
        elif self._is_last(task, now):
            return None
        if retry.is_held is not None and retry.is_held():
            self.held[task.task_id] = task
            return 0.0
        wait_s = self.rules.wait_for(retry, task.attempt)
        # What merely waits has not failed, and may be put off for as long as it takes.
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
        """Take out and return the tasks that fulfil a condition."""
        taken = [task for task in (*self.held.values(), *(task for _, _, task in self._waiting)) if condition(task)]
        gone = {task.task_id for task in taken}
        self._waiting = [entry for entry in self._waiting if entry[2].task_id not in gone]
        heapq.heapify(self._waiting)
        for task_id in gone:
            self.held.pop(task_id, None)
            self._failing_since.pop(task_id, None)
        return taken

    def due(self, now: float) -> list[Task]:
        """Take out and return the tasks whose time has come."""
        due = []
        while self._waiting and self._waiting[0][0] <= now:
            due.append(heapq.heappop(self._waiting)[2])
        return due

    def next_at(self) -> float | None:
        """Return when the next task's time comes."""
        return self._waiting[0][0] if self._waiting else None

    def at(self, task_id: TaskId) -> float | None:
        """Return when a task's time comes; None if it is not put off. O(tasks put off)."""
        return next((at for at, _, task in self._waiting if task.task_id == task_id), None)
