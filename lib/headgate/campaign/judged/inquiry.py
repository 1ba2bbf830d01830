"""What a running campaign with a judge answers about itself: where a sample is, its health, its capacity plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from headgate.campaign.capacity import CapacityPeaks, capacity_plan
from headgate.campaign.explaining import accepting, journaled, task_row, with_requests
from headgate.campaign.judged.plan import JudgedPlan
from headgate.campaign.judged.rows import WORKERS, Row
from headgate.campaign.judged.stages import Stages
from headgate.campaign.vitals import health_report
from headgate.core import CapacityPlan, TaskId, events
from headgate.core.status import RequestStatus
from headgate.scheduling import Dispatcher, DispatchLoop, Explanation
from headgate.storage import JournalThread
from headgate.telemetry import Handler, Recorded

_UNKNOWN: Final = "unknown"
_IN_HAND: Final = frozenset({"running", "parked"})


class JudgedInquiry:
    """Answers questions about one run. Owned by it; asking changes nothing but reads the journal for rare ones.

    It also listens to the run's events (a `Sink`) for the most that was in use at once.
    """

    def __init__(
        self,
        plan: JudgedPlan,
        stages: Stages,
        dispatcher: Dispatcher,
        journal: JournalThread,
        *,
        now: Callable[[], float],
        epoch_offset: float,
        state: Callable[[], str],
        spooled: Callable[[], int],
        is_accepting: Callable[[str], bool],
    ) -> None:
        """Prepare to answer.

        Args:
            plan: of the run.
            stages: of its samples.
            dispatcher: of its tasks.
            journal: of its samples.
            now: the run's time.
            epoch_offset: what the run's time is ahead of that of its dispatcher.
            state: the run's.
            spooled: samples that are not in the store yet.
            is_accepting: whether a sample is being made durable.
        """
        self._plan = plan
        self._stages = stages
        self._dispatcher = dispatcher
        self._journal = journal
        self._now = now
        self._epoch_offset = epoch_offset
        self._state = state
        self._spooled = spooled
        self._is_accepting = is_accepting
        self.peaks = CapacityPeaks()
        self.loop: DispatchLoop | None = None
        """Set by the run once it has one."""

    # Questions.

    async def explain(self, task_id: str) -> Explanation:
        """Return where a sample, or one stage of it, is, which gate holds it, why, and until when.

        Raises:
            NotFoundError: if neither the run nor its journal has it open: its sample is stored, or it never was.
        """
        found = self._held(TaskId(task_id))
        if found is not None:
            return found
        if self._is_accepting(task_id):
            return accepting(task_id, self._journal)
        known = await journaled(task_id, self._journal, self._plan.settings)
        if known.gate == "holder" and self._state() == "running":
            reason = "it is not open yet: samples are opened as workers and judge have room"
            return replace(known, gate="frontier", reason=reason)
        return known

    def tasks(self, model: str | None, environment: str | None, limit: int) -> list[Mapping[str, Any]]:
        """Return open samples, those in progress first, at most `limit`."""
        rows = (
            row
            for row in self._stages.rows()
            if model in (None, row.task.model) and environment in (None, row.task.environment)
        )
        listed = sorted(((self._is_in_hand(row), row) for row in rows), key=lambda pair: not pair[0])
        return [task_row("running" if runs else "queued", row.task) for runs, row in islice(listed, limit)]

    def health(self) -> events.HealthReported:
        """Return the counts at a glance; bounded in size."""
        plan, dispatcher = self._plan, self._dispatcher
        return health_report(
            dispatcher,
            [model.key for model in (*plan.models, plan.judge)],
            campaign=plan.settings.campaign,
            run_id=plan.run_id,
            state=self._state(),
            workers=(dispatcher.book.limits[WORKERS], dispatcher.book.in_use.get(WORKERS, 0)),
            buffered=0,
            open_tasks=len(self._stages.rows()),
            spooled=self._spooled(),
            requests=self.requests(),
            now=self._now(),
            frontier_target=self.loop.frontier.target if self.loop is not None else None,
        )

    def capacity(self) -> CapacityPlan:
        """Return the capacity plan; the judge is one of its models."""
        plan = self._plan
        return capacity_plan(
            plan.settings,
            (*plan.models, plan.judge),
            self.requests(),
            workers_busy=self._dispatcher.book.in_use.get(WORKERS, 0),
            queued=len(self._dispatcher.queue),
            peaks=self.peaks,
        )

    def requests(self) -> tuple[RequestStatus, ...]:
        """Return the request keys."""
        requests = self._plan.requests
        return () if requests is None else requests.status()

    # The most that was in use.

    @property
    def handlers(self) -> Mapping[type[events.Event], Handler]:
        """The events at which something may be more than before."""
        return {events.TaskStarted: self._task_started, events.SampleAccepted: self._sample_accepted}

    def close(self) -> None:
        """Nothing is held."""

    def _task_started(self, _: Recorded[events.TaskStarted]) -> None:
        peaks = self.peaks
        peaks.workers = max(peaks.workers, self._dispatcher.book.in_use.get(WORKERS, 0))
        peaks.queued = max(peaks.queued, len(self._dispatcher.queue))

    def _sample_accepted(self, _: Recorded[events.SampleAccepted]) -> None:
        self.peaks.spooled = max(self.peaks.spooled, self._spooled())

    # Where a sample may be.

    def _held(self, task_id: TaskId) -> Explanation | None:
        """Return what the loop knows of a task: of one that waits for another, what holds that one."""
        row = self._stages.row_of(task_id)
        if self.loop is None or row is None:
            return None
        found = self.loop.why(task_id)
        if found.gate != "dependency":
            return None if found.state == _UNKNOWN else self._told(found, row, task_id)
        for stage_id in row.stage_ids:
            before = self.loop.why(stage_id)
            if before.state not in (_UNKNOWN, "waiting"):
                before = self._told(before, row, stage_id)
                reason = f"its {self._stages.stage_of(stage_id)} is {before.state}: {before.reason}"
                gate = found.gate if before.gate == "none" else before.gate
                return replace(before, task_id=task_id, state=found.state, gate=gate, reason=reason)
        return found

    def _told(self, found: Explanation, row: Row, stage_id: TaskId) -> Explanation:
        """Return what the loop says in the run's time, and of what is in progress what its requests wait for."""
        if found.until is not None:
            found = replace(found, until=found.until + self._epoch_offset)
        if found.state not in _IN_HAND:
            return found
        is_judges = self._stages.stage_of(stage_id) == "judge"
        model = self._plan.judge.key if is_judges else row.model.key
        return with_requests(found, model, self.requests(), self._now())

    def _is_in_hand(self, row: Row) -> bool:
        return any(self._dispatcher.lease_of(stage_id) is not None for stage_id in row.stage_ids)
