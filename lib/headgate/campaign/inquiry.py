"""What a running campaign answers about itself: where a task is, its open tasks, its health, its capacity plan."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from headgate.campaign.capacity import CapacityPeaks, capacity_plan
from headgate.campaign.parts import Parts
from headgate.campaign.vitals import health_report
from headgate.campaign.workforce import Workforce
from headgate.core import CapacityPlan, Task, TaskId, events
from headgate.core.errors import NotFoundError
from headgate.core.status import RequestStatus
from headgate.scheduling import Explanation
from headgate.storage import TaskState
from headgate.telemetry import Handler, Recorded

_UNKNOWN: Final = "unknown"


class Inquiry:
    """Answers questions about one campaign. Owned by it; asking changes nothing but reads the journal for rare ones.

    It also listens to the campaign's events (a `Sink`) for the most that was in use at once.
    """

    def __init__(
        self,
        parts: Parts,
        workforce: Workforce,
        *,
        run_id: str,
        state: Callable[[], str],
        spooled: Callable[[], int],
        is_accepting: Callable[[str], bool],
    ) -> None:
        """Prepare to answer.

        Args:
            parts: of the campaign.
            workforce: its workers.
            run_id: of this run.
            state: the campaign's.
            spooled: samples that are not in the store yet.
            is_accepting: whether a task's sample is being made durable.
        """
        self._parts = parts
        self._workforce = workforce
        self._run_id = run_id
        self._state = state
        self._spooled = spooled
        self._is_accepting = is_accepting
        self.peaks = CapacityPeaks()

    # Questions.

    async def explain(self, task_id: str) -> Explanation:
        """Return where a task is, which gate holds it, why, and until when.

        Raises:
            NotFoundError: if neither the campaign nor its journal has it open: its sample is stored, or it never was.
        """
        parts = self._parts
        found = parts.dispatcher.why(TaskId(task_id), parts.now())
        if found.state in ("running", "parked"):
            return self._with_requests(found)
        if found.state != _UNKNOWN:
            return found
        return self._buffered(task_id) or self._accepting(task_id) or await self._journaled(task_id)

    def tasks(self, model: str | None, environment: str | None, limit: int) -> list[Mapping[str, Any]]:
        """Return open tasks, those that run first and then by due time, at most `limit`."""
        parts = self._parts
        open_tasks = chain(
            (("running", task) for task in self._workforce.tasks),
            (("queued", task) for task in parts.dispatcher.queue.items()),
            (("buffered", task) for task in parts.batches.items()),
        )
        chosen = (
            (state, task)
            for state, task in open_tasks
            if model in (None, task.model) and environment in (None, task.environment)
        )
        first = heapq.nsmallest(limit, chosen, key=lambda pair: (pair[0] != "running", pair[1].due_at))
        return [_row(state, task) for state, task in first]

    def health(self) -> events.HealthReported:
        """Return the counts at a glance; bounded in size."""
        parts = self._parts
        return health_report(
            parts,
            run_id=self._run_id,
            state=self._state(),
            workers=self._workforce.figures.status(parts.now()),
            spooled=self._spooled(),
            requests=self._requests(),
            passed_over=parts.dispatcher.pressure.pass_overs,
            now=parts.now(),
        )

    def capacity(self) -> CapacityPlan:
        """Return the capacity plan."""
        parts = self._parts
        return capacity_plan(
            parts.settings,
            [sampler.model for sampler in parts.samplers.values()],
            self._requests(),
            workers_busy=parts.dispatcher.in_flight(),
            queued=len(parts.dispatcher.queue),
            peaks=self.peaks,
        )

    # The most that was in use.

    @property
    def handlers(self) -> Mapping[type[events.Event], Handler]:
        """The events at which something may be more than before."""
        return {
            events.TaskStarted: self._task_started,
            events.TasksEnqueued: self._tasks_enqueued,
            events.SampleAccepted: self._sample_accepted,
        }

    def close(self) -> None:
        """Nothing is held."""

    def _task_started(self, _: Recorded[events.TaskStarted]) -> None:
        self.peaks.workers = max(self.peaks.workers, self._parts.dispatcher.in_flight())

    def _tasks_enqueued(self, recorded: Recorded[events.TasksEnqueued]) -> None:
        peaks = self.peaks
        peaks.queued = max(peaks.queued, recorded.event.queued)
        peaks.buffered = max(peaks.buffered, self._parts.batches.size)

    def _sample_accepted(self, _: Recorded[events.SampleAccepted]) -> None:
        self.peaks.spooled = max(self.peaks.spooled, self._spooled())

    # Where a task may be.

    def _with_requests(self, found: Explanation) -> Explanation:
        """Add what the requests of a running task's model wait for."""
        task = next((task for task in self._workforce.tasks if task.task_id == found.task_id), None)
        keys = [key for key in self._requests() if task is not None and task.model in key.models]
        pressed = next((key for key in keys if key.pressure is not None or key.waiters), None)
        if pressed is None:
            return found
        told = f"{pressed.in_flight} of {pressed.limit} requests of its model in flight, {pressed.waiters} wait"
        closed = f" ({pressed.pressure})" if pressed.pressure else ""
        until = self._parts.now() + pressed.cooldown_s if pressed.cooldown_s else None
        gate = "request_admission" if found.gate == "none" else found.gate
        return replace(found, gate=gate, reason=f"{found.reason}; {told}{closed}", until=found.until or until)

    def _buffered(self, task_id: str) -> Explanation | None:
        parts = self._parts
        if not any(task.task_id == task_id for task in parts.batches.items()):
            return None
        if parts.backpressure.is_paused:
            size, resume_at = len(parts.dispatcher.queue), parts.backpressure.resume_at
            reason = f"the ready queue is paused: {size} tasks, it goes on at {resume_at}"
            return Explanation(TaskId(task_id), "buffered", "backpressure", reason)
        reason = f"its sampler's buffer enters the queue at {parts.settings.batch_size} tasks or when its time is over"
        return Explanation(TaskId(task_id), "buffered", "batch", reason, parts.batches.next_at())

    def _accepting(self, task_id: str) -> Explanation | None:
        if not self._is_accepting(task_id):
            return None
        gate = "journal" if self._parts.journal.is_blocked else "none"
        reason = "the journal cannot be written" if gate == "journal" else "its sample is being written to the journal"
        return Explanation(TaskId(task_id), "accepting", gate, reason)

    async def _journaled(self, task_id: str) -> Explanation:
        journal = self._parts.journal
        state = await journal.call(journal.journal.state_of, task_id)
        if state is TaskState.SPOOLED:
            settings = self._parts.settings
            reason = (
                f"its sample is durable and waits for its batch: stored at {settings.sink_batch_size} samples, "
                f"or {settings.sink_max_wait:g} s after the oldest of them"
            )
            return Explanation(TaskId(task_id), "spooled", "batch", reason)
        if state is TaskState.UNKNOWN:
            raise NotFoundError(
                f"task {task_id} is not open in campaign {self._parts.settings.campaign}",
                next_step="Its sample may be stored: `headgate why` looks there, too.",
            )
        reason = "another process of this journal holds it, or will take it over when this one looks again"
        return Explanation(TaskId(task_id), str(state), "holder", reason)

    def _requests(self) -> tuple[RequestStatus, ...]:
        requests = self._parts.requests
        return () if requests is None else requests.status()


def _row(state: str, task: Task) -> Mapping[str, Any]:
    return {
        "task_id": task.task_id,
        "state": state,
        "model": task.model,
        "environment": task.environment,
        "sequence": task.sequence,
        "stage": task.stage,
        "due_at": task.due_at,
        "attempt": task.attempt,
    }
