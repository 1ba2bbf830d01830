"""From the events of scheduling to the facts that figures are computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from headgate.core.events import (
    Event,
    ReadyEnqueued,
    RequestPressureSkipped,
    RowGroupAdmissionTargetChanged,
    RowGroupAdmitted,
    RowGroupCheckpointed,
    SchedulerJobCompleted,
    SchedulerJobStarted,
    TaskLeaseAcquired,
    TaskLeaseReleased,
    TaskParked,
    TaskUnparked,
)
from headgate_bench.idle.facts import Fact, Step

_STEPS: Final[Mapping[type[Event], Step]] = {
    SchedulerJobStarted: Step.BEGUN,
    RowGroupAdmitted: Step.OPENED,
    RowGroupAdmissionTargetChanged: Step.TARGET,
    ReadyEnqueued: Step.READY,
    RequestPressureSkipped: Step.SKIPPED,
    TaskLeaseAcquired: Step.LEASED,
    TaskParked: Step.PARKED,
    TaskUnparked: Step.UNPARKED,
    TaskLeaseReleased: Step.RELEASED,
    RowGroupCheckpointed: Step.CLOSED,
    SchedulerJobCompleted: Step.ENDED,
}
_Units = tuple[tuple[str, int], ...]


class Recorder:
    """Keeps what happens in one run, in order. Owned by the run.

    `stages` says of which stage a task is, since not every event does.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.facts: list[Fact] = []
        self.stages: dict[str, str] = {}
        self._now = now
        self._resources: dict[_Units, Mapping[str, int]] = {}

    def wants(self, kind: type[Event]) -> bool:
        """Return whether an event of this type is a fact of the suite."""
        return kind in _STEPS

    def emit(self, event: Event) -> None:
        """Take an event of scheduling."""
        at, step = self._now(), _STEPS[type(event)]
        match event:
            case ReadyEnqueued() | TaskLeaseAcquired():
                self.stages[event.task_id] = event.stage
                self._note(at, step, event.task_id, event.resources)
            case TaskLeaseReleased() | TaskParked() | TaskUnparked():
                self._note(at, step, event.task_id, event.resources)
            case RequestPressureSkipped():
                self.facts.append(Fact(at, step, event.task_id, self.stages[event.task_id]))
            case RowGroupAdmitted() | RowGroupCheckpointed():
                self.facts.append(Fact(at, step, event.row_group))
            case RowGroupAdmissionTargetChanged():
                self.facts.append(Fact(at, step, value=event.after))
            case _:
                self.facts.append(Fact(at, step))

    def tell(self, step: Step, task: str, provider: str = "") -> None:
        """Take a fact of a task at work."""
        self.facts.append(Fact(self._now(), step, task, self.stages.get(task, ""), provider=provider))

    def _note(self, at: float, step: Step, task: str, units: _Units) -> None:
        resources = self._resources.get(units)
        if resources is None:
            resources = self._resources[units] = dict(units)
        self.facts.append(Fact(at, step, task, self.stages[task], resources))
