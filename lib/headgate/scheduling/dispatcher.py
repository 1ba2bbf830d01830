"""The dispatcher: which ready task gets a worker next. Pure; events in, decisions out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.core import Denied, HolderId, Lease, LeaseBook, ReleaseOutcome, Task, TaskId
from headgate.fairness import StaleSelection
from headgate.scheduling.ready_queue import FairReadyQueue


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Run this task now; give the lease back with `finished`."""

    task: Task
    lease: Lease


@dataclass(frozen=True, slots=True)
class Held:
    """Nothing can run: why. A release, a new task, an opened lane or a raised limit can change it."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Which gate holds a task (`headgate why`)."""

    task_id: TaskId
    state: str
    gate: str
    reason: str
    until: float | None = None
    ahead: int = 0


class Dispatcher:
    """The ready queue, the leases on scheduler resources, and the lanes of the models, as one decision maker.

    A lane is open while the model has a free parallel slot and is not held (paused). Worker slots are a limit, not
    polling loops: a task gets its lease before anything is spawned for it, so no worker waits hidden.

    Owned by the campaign's loop. Invariants: those of its queue and its book; requests in flight of a model never
    exceed its `max_parallel` unless that was lowered under them.
    """

    def __init__(self, resources: Mapping[str, int], *, holder: HolderId) -> None:
        self.queue = FairReadyQueue()
        self.book = LeaseBook(dict(resources))
        self._holder = holder
        self._max_parallel: dict[str, int] = {}
        self._in_flight: dict[str, int] = {}
        self._held_until: dict[str, float] = {}
        self._leases: dict[TaskId, Lease] = {}
        self.enqueued = 0
        self.dequeued = 0

    def set_model(self, model: str, max_parallel: int) -> None:
        """Let a model run `max_parallel` tasks at once."""
        self._max_parallel[model] = max_parallel
        self._update_lane(model)

    def remove_model(self, model: str) -> list[Task]:
        """Withdraw a model's queued tasks; what is in flight runs on. Returns the withdrawn tasks."""
        self._max_parallel.pop(model, None)
        self._held_until.pop(model, None)
        self._update_lane(model)
        return self.queue.discard_where(lambda task: task.model == model)

    def hold(self, model: str, until: float) -> None:
        """Start nothing of a model until `until`, or until `unhold`."""
        self._held_until[model] = until
        self._update_lane(model)

    def unhold(self, model: str) -> None:
        """Let a held model run again."""
        self._held_until.pop(model, None)
        self._update_lane(model)

    def enqueue(self, tasks: Iterable[Task]) -> int:
        """Add ready tasks; one that is queued or running already is ignored. Returns how many were added.

        A task whose model is not known (any more) waits until `set_model` makes it known.
        """
        fresh = [task for task in tasks if task.task_id not in self._leases]
        for model in {task.model for task in fresh}:
            if model not in self._max_parallel:
                self._update_lane(model)
        added = self.queue.enqueue(fresh)
        self.enqueued += len(added)
        return len(added)

    def next(self, now: float) -> Dispatch | Held:
        """Return the next task with its lease, or what holds it."""
        if not len(self.queue):
            return Held("queue_empty", "no task is ready")
        selection = self.queue.select_next()
        if selection is None:
            return Held("lanes_closed", "every model with ready tasks is paused or has all its parallel slots in use")
        lease = self.book.acquire(self._holder, selection.item.resources, now, subject=selection.item.task_id)
        if isinstance(lease, Denied):
            return Held(lease.reason, f"{lease.capacity}: wants {lease.wanted}, {lease.available} free")
        task = self.queue.commit(selection)
        if isinstance(task, StaleSelection):
            self.book.release(lease)
            return Held("stale_selection", task.reason)
        self.dequeued += 1
        self._leases[task.task_id] = lease
        self._in_flight[task.model] = self._in_flight.get(task.model, 0) + 1
        self._update_lane(task.model)
        return Dispatch(task, lease)

    def finished(self, task: Task, lease: Lease) -> ReleaseOutcome:
        """Take a lease back, whatever became of the task."""
        outcome = self.book.release(lease)
        if outcome is ReleaseOutcome.RELEASED:
            del self._leases[task.task_id]
            self._in_flight[task.model] -= 1
            self._update_lane(task.model)
        return outcome

    def in_flight(self, model: str | None = None) -> int:
        """Return the tasks in progress, of one model or of all."""
        return len(self._leases) if model is None else self._in_flight.get(model, 0)

    def queued(self, model: str) -> int:
        """Return the ready tasks of a model."""
        return self.queue.by_model.get(model, 0)

    def why(self, task_id: TaskId, now: float) -> Explanation:
        """Return which gate holds a task, why, and until when."""
        if task_id in self._leases:
            return Explanation(task_id, "running", "none", "it holds a worker lease")
        task = self.queue.item(task_id)
        if task is None:
            return Explanation(task_id, "unknown", "none", "it is neither queued nor running here")
        ahead = self.queue.position(task_id)
        until = self._held_until.get(task.model)
        if until is not None:
            state = "is paused" if until > now else "is about to run again after its pause"
            return Explanation(task_id, "queued", "model_pause", f"model {task.model} {state}", until, ahead)
        limit = self._max_parallel.get(task.model)
        if limit is None:
            reason = f"model {task.model} is not in the roster"
            return Explanation(task_id, "queued", "no_model", reason, None, ahead)
        if self.in_flight(task.model) >= limit:
            reason = f"model {task.model} has {self.in_flight(task.model)} of {limit} requests in flight"
            return Explanation(task_id, "queued", "model_parallel", reason, None, ahead)
        denied = self.book.shortage(task.resources)
        if denied is not None:
            reason = f"{denied.capacity}: wants {denied.wanted}, {denied.available} free"
            return Explanation(task_id, "queued", denied.reason, reason, None, ahead)
        return Explanation(task_id, "queued", "fair_share", "other groups are served first", None, ahead)

    def _update_lane(self, model: str) -> None:
        limit = self._max_parallel.get(model, 0)
        if model in self._held_until or self._in_flight.get(model, 0) >= limit:
            self.queue.close_lane(model)
        else:
            self.queue.open_lane(model)

    def validate(self) -> None:
        """Assert the invariants of the class, its queue and its book."""
        self.queue.validate()
        self.book.validate()
        assert sum(self._in_flight.values()) == len(self._leases) == len(self.book.live)
