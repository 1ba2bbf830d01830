"""What the dispatcher tells of itself, for those who listen."""

from __future__ import annotations

from headgate.core import Denied, Lease, ReleaseOutcome, Task, events
from headgate.scheduling.holdings import Units
from headgate.scheduling.pressure import Pressed
from headgate.scheduling.shelves import Shelf
from headgate.scheduling.trace import Trace

_STANDINGS = ("within its share", "borrows", "at its ceiling")


class DispatchEvents:
    """Makes the dispatcher's events; those that nobody wants are not made. Owned by the dispatcher."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._last_block = ""

    def enqueued(self, task: Task, units: Units, queued: int) -> None:
        """Tell that a task is ready."""
        trace = self._trace
        self._last_block = ""
        if trace.wants(events.ReadyEnqueued):
            what = (task.task_id, task.stage, task.group, task.model, units, queued, trace.trace_of(task))
            trace.emit(events.ReadyEnqueued(trace.run_id, *what))

    def acquired(self, task: Task, lease: Lease, units: Units) -> None:
        """Tell that a task was selected and has its lease."""
        trace = self._trace
        self._last_block = ""
        trace_id = trace.trace_of(task)
        if trace.wants(events.TaskSelected):
            trace.emit(events.TaskSelected(trace.run_id, task.task_id, task.group, task.model, trace_id))
        if trace.wants(events.TaskLeaseAcquired):
            what = (task.task_id, lease.lease_id, task.stage, task.group, task.model, units, trace_id)
            trace.emit(events.TaskLeaseAcquired(trace.run_id, *what))

    def released(self, task: Task, lease: Lease, units: Units, outcome: ReleaseOutcome, now: float) -> None:
        """Tell that a lease came back, or why that counted for nothing."""
        trace = self._trace
        if outcome is not ReleaseOutcome.RELEASED:
            if trace.wants(events.ReleaseDiagnostic):
                trace.emit(events.ReleaseDiagnostic(trace.run_id, task.task_id, lease.lease_id, outcome))
        elif trace.wants(events.TaskLeaseReleased):
            what = (task.task_id, lease.lease_id, task.group, units, now - lease.acquired_at)
            trace.emit(events.TaskLeaseReleased(trace.run_id, *what))

    def parked(self, task: Task, lease: Lease, units: Units) -> None:
        """Tell that a lease is lent out."""
        trace = self._trace
        if trace.wants(events.TaskParked):
            trace.emit(events.TaskParked(trace.run_id, task.task_id, lease.lease_id, units))

    def unparked(self, task: Task, lease: Lease, units: Units) -> None:
        """Tell that a lease has its units again."""
        trace = self._trace
        if trace.wants(events.TaskUnparked):
            trace.emit(events.TaskUnparked(trace.run_id, task.task_id, lease.lease_id, units))

    def stale(self, task: Task, reason: str) -> None:
        """Tell that a selection was out of date."""
        trace = self._trace
        if trace.wants(events.SelectionStale):
            trace.emit(events.SelectionStale(trace.run_id, task.task_id, reason))

    def denied(self, task: Task, denied: Denied) -> None:
        """Tell that a selected task got no lease."""
        trace = self._trace
        if trace.wants(events.AdmissionDenied):
            what = (denied.reason, denied.capacity, denied.wanted, denied.available)
            trace.emit(events.AdmissionDenied(trace.run_id, task.task_id, *what))

    def passed_over(self, task: Task, pressed: Pressed, in_favour_of: Task) -> None:
        """Tell that a task was passed over for its endpoint."""
        trace = self._trace
        if trace.wants(events.RequestPressureSkipped):
            what = (task.task_id, task.model, pressed.reason, pressed.passed_over, in_favour_of.task_id)
            trace.emit(events.RequestPressureSkipped(trace.run_id, *what))

    def capped(self, group: str, standing: int, shelf: Shelf) -> None:
        """Tell that a group has its share."""
        trace = self._trace
        if trace.wants(events.GroupCapped):
            trace.emit(events.GroupCapped(trace.run_id, group, _STANDINGS[standing], shelf.governed))

    def held(self, reason: str, detail: str, queued: int, running: int) -> None:
        """Tell why nothing runs, once until that changes."""
        trace = self._trace
        if reason == self._last_block:
            return
        self._last_block = reason
        if reason != "queue_empty":
            if trace.wants(events.AdmissionBlocked):
                trace.emit(events.AdmissionBlocked(trace.run_id, reason, detail, queued))
        elif trace.wants(events.QueueEmpty):
            trace.emit(events.QueueEmpty(trace.run_id, running))
