"""What a running campaign answers about itself: where a task is, its open tasks, its health, its capacity plan."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from headgate.campaign.capacity import CapacityPeaks, capacity_plan
from headgate.campaign.explaining import accepting, journaled, task_row, with_requests
from headgate.campaign.parts import Parts
from headgate.campaign.request_side import DAILY_BUDGET
from headgate.campaign.vitals import health_report
from headgate.campaign.workforce import Workforce
from headgate.core import CapacityPlan, TaskId, events
from headgate.core.status import RequestStatus
from headgate.scheduling import Explanation
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
            return self._with_budget(found)
        return (
            self._buffered(task_id)
            or self._accepting(task_id)
            or await journaled(task_id, parts.journal, parts.settings)
        )

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
        return [task_row(state, task) for state, task in first]

    def health(self) -> events.HealthReported:
        """Return the counts at a glance; bounded in size."""
        parts, dispatcher = self._parts, self._parts.dispatcher
        workers = self._workforce.figures.status(parts.now())
        return health_report(
            dispatcher,
            parts.samplers,
            campaign=parts.settings.campaign,
            run_id=self._run_id,
            state=self._state(),
            workers=(workers.total, workers.active),
            buffered=parts.batches.size,
            open_tasks=len(dispatcher.queue) + parts.batches.size + dispatcher.in_flight(),
            spooled=self._spooled(),
            requests=self._requests(),
            now=parts.now(),
        )

    def capacity(self) -> CapacityPlan:
        """Return the capacity plan."""
        parts = self._parts
        return capacity_plan(
            parts.settings,
            [sampler.model for sampler in parts.samplers.values()],
            self._requests(),
            workers_busy=self._busy(),
            queued=len(parts.dispatcher.queue),
            peaks=self.peaks,
        )

    def _busy(self) -> int:
        """Return the tasks in progress that hold a worker; parked ones have lent theirs."""
        dispatcher = self._parts.dispatcher
        return dispatcher.in_flight() - len(dispatcher.book.parked)

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
        self.peaks.workers = max(self.peaks.workers, self._busy())

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
        return found if task is None else with_requests(found, task.model, self._requests(), self._parts.now())

    def _with_budget(self, found: Explanation) -> Explanation:
        """Say what of its day's budget a model has used, where that holds a queued task."""
        task = self._parts.dispatcher.queue.item(found.task_id)
        if self._parts.requests is None or task is None or found.gate != DAILY_BUDGET:
            return found
        stop = self._parts.requests.budgets.stop_of(task.model)
        return found if stop is None else replace(found, reason=stop.reason, until=stop.until)

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
        return accepting(task_id, self._parts.journal) if self._is_accepting(task_id) else None

    def _requests(self) -> tuple[RequestStatus, ...]:
        requests = self._parts.requests
        return () if requests is None else requests.status()
