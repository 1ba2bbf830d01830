"""The facts of one run of a case, from which every figure is computed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
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

_NOTHING: Mapping[str, int] = MappingProxyType({})


class Step(StrEnum):
    """Kind of a fact.

    A task is READY (it entered the queue), LEASED, running in a WORKER, and RELEASED. Its request is WAITING, ADMITTED
    and DONE; while it waits, the task's lease may be PARKED and UNPARKED. A task may be SKIPPED because its provider is
    pressed. A row group is OPENED and CLOSED; the frontier gets a new TARGET. BEGUN and ENDED frame the run.
    """

    BEGUN = "begun"
    READY = "ready"
    SKIPPED = "skipped"
    LEASED = "leased"
    WORKER = "worker"
    WAITING = "waiting"
    ADMITTED = "admitted"
    DONE = "done"
    PARKED = "parked"
    UNPARKED = "unparked"
    RELEASED = "released"
    OPENED = "opened"
    CLOSED = "closed"
    TARGET = "target"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Fact:
    """One event of a run."""

    at: float  # seconds on the run's clock
    step: Step  # what happened
    task: str = ""  # the task; the row group for OPENED and CLOSED
    stage: str = ""  # stage of the task, e.g. `heavy_0`
    # Scheduler resources that the task takes (READY, LEASED, RELEASED).
    resources: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    provider: str = ""  # provider of the request (WAITING, ADMITTED, DONE)
    value: int = 0  # the new target (TARGET)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a case."""

    facts: Sequence[Fact]  # in the order in which they happened
    limits: Mapping[str, int]  # units of each scheduler resource
    # Request slots of each provider; empty if the case makes no requests.
    slots: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    leases_left: int = 0  # task leases not released at the end
    requests_left: int = 0  # request leases not released at the end
    waiters_left: int = 0  # requests still waiting at the end
    cpu_s: float = 0.0  # CPU time; not a figure of the simulation, and never in a summary

    @property
    def wall_s(self) -> float:
        """Time from the first fact to the last."""
        return self.facts[-1].at - self.facts[0].at if self.facts else 0.0

    def fingerprint(self) -> str:
        """Return a digest of all facts in order, to compare runs."""
        digest = hashlib.sha256()
        for fact in self.facts:
            digest.update(f"{fact.at!r} {fact.step} {fact.task} {fact.stage} {fact.provider} {fact.value}\n".encode())
        return digest.hexdigest()[:16]


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
    """Records the facts of one run, in order. Owned by the run.

    `stages` maps a task to its stage, since not every event has it.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.facts: list[Fact] = []
        self.stages: dict[str, str] = {}
        self._now = now
        self._resources: dict[_Units, Mapping[str, int]] = {}

    def emit(self, event: Event) -> None:
        """Record an event of scheduling if it is a fact of the suite."""
        at, step = self._now(), _STEPS.get(type(event))
        if step is None:
            return
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
        """Record a fact about a running task."""
        self.facts.append(Fact(self._now(), step, task, self.stages.get(task, ""), provider=provider))

    def _note(self, at: float, step: Step, task: str, units: _Units) -> None:
        resources = self._resources.get(units)
        if resources is None:
            resources = self._resources[units] = dict(units)
        self.facts.append(Fact(at, step, task, self.stages[task], resources))
