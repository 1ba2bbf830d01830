"""What a dispatch loop tells of itself, for those who listen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core import Lease, Task, TaskId, events
from headgate.scheduling.early_stop import EarlyStop
from headgate.scheduling.frontier import BlockReason, FrontierStep
from headgate.scheduling.row_groups import OpenRowGroup
from headgate.scheduling.trace import Trace

if TYPE_CHECKING:
    from headgate.scheduling.loop import DispatchLoop


class LoopEvents:
    """Makes the loop's events; those that nobody wants are not made. Owned by the loop."""

    def __init__(self, trace: Trace | None, loop: DispatchLoop) -> None:
        self._trace = trace if trace is not None else Trace(_nowhere, _wants_nothing)
        self._loop = loop
        self._blocked_by: BlockReason | None = None

    def job_started(self) -> None:
        """Tell that the run begins."""
        trace, dispatcher, rules = self._trace, self._loop.dispatcher, self._loop.frontier.rules
        limits = tuple(sorted(dispatcher.book.limits.items()))
        if trace.wants(events.SchedulerJobStarted):
            trace.emit(
                events.SchedulerJobStarted(
                    trace.run_id, limits, dispatcher.admission.policy.name, rules.floor, rules.cap
                )
            )
        self.health()

    def job_completed(self, seconds: float) -> None:
        """Tell that the run has ended."""
        trace, loop = self._trace, self._loop
        self.health()
        if trace.wants(events.SchedulerJobCompleted):
            counts = (loop.completed, loop.failed, loop.dropped, loop.retried, loop.rows.checkpointed)
            trace.emit(events.SchedulerJobCompleted(trace.run_id, loop.stopped_by, *counts, seconds))

    def health(self) -> None:
        """Tell how the run stands."""
        trace, loop = self._trace, self._loop
        if not trace.wants(events.SchedulerHealthSnapshot):
            return
        dispatcher, book = loop.dispatcher, loop.dispatcher.book
        trace.emit(
            events.SchedulerHealthSnapshot(
                run_id=trace.run_id,
                queued=len(dispatcher.queue),
                running=loop.running,
                parked=len(book.parked),
                deferred=loop.deferred,
                waiting=loop.graph.waiting,
                active_row_groups=len(loop.rows.open),
                active_rows=loop.rows.active_rows,
                frontier_target=loop.frontier.target,
                leased=tuple(sorted(book.in_use.items())),
                limits=tuple(sorted(book.limits.items())),
                queued_demand=tuple((name, dispatcher.queue.demand(name)) for name in sorted(book.limits)),
                blocked_by=self._blocked_by or "",
                passed_over=dispatcher.pressure.pass_overs,
            )
        )

    def drained(self) -> None:
        """Tell that nothing is queued or running."""
        if self._trace.wants(events.QueueDrained):
            self._trace.emit(events.QueueDrained(self._trace.run_id, self._loop.completed))

    def row_group_admitted(self, opened: OpenRowGroup) -> None:
        """Tell that a row group was opened."""
        trace, loop = self._trace, self._loop
        self._blocked_by = None
        if trace.wants(events.RowGroupAdmitted):
            group = opened.group
            counts = (group.rows, len(group.tasks), len(loop.rows.open), loop.frontier.target)
            trace.emit(events.RowGroupAdmitted(trace.run_id, group.name, *counts))

    def admission_blocked(self, reason: BlockReason | None) -> None:
        """Tell why the frontier does not widen, when that changes."""
        trace, loop = self._trace, self._loop
        if reason is None or reason is self._blocked_by:
            return
        self._blocked_by = reason
        if trace.wants(events.RowGroupAdmissionBlocked):
            counts = (len(loop.rows.open), loop.frontier.target, len(loop.dispatcher.queue))
            trace.emit(events.RowGroupAdmissionBlocked(trace.run_id, reason, *counts))

    def target_changed(self, step: FrontierStep) -> None:
        """Tell that the target moved."""
        trace = self._trace
        if trace.wants(events.RowGroupAdmissionTargetChanged):
            trace.emit(events.RowGroupAdmissionTargetChanged(trace.run_id, step.before, step.after, step.reason))

    def checkpointed(self, opened: OpenRowGroup, now: float) -> None:
        """Tell that a row group has ended."""
        trace = self._trace
        if trace.wants(events.RowGroupCheckpointed):
            counts = (opened.completed, opened.failed, opened.dropped)
            seconds = now - opened.opened_at
            trace.emit(events.RowGroupCheckpointed(trace.run_id, opened.group.name, *counts, seconds))

    def dependency_ready(self, task: Task) -> None:
        """Tell that a stage may run."""
        trace = self._trace
        if trace.wants(events.DependencyReady):
            what = (task.task_id, task.stage, task.group, trace.trace_of(task))
            trace.emit(events.DependencyReady(trace.run_id, *what))

    def spawned(self, task: Task, lease: Lease) -> None:
        """Tell that a worker began."""
        trace = self._trace
        if trace.wants(events.WorkerSpawned):
            what = (task.task_id, lease.lease_id, task.attempt, trace.trace_of(task))
            trace.emit(events.WorkerSpawned(trace.run_id, *what))

    def spawn_failed(self, task: Task, lease: Lease, error: BaseException) -> None:
        """Tell that no worker could be started."""
        trace = self._trace
        if trace.wants(events.WorkerSpawnFailed):
            what = f"{type(error).__name__}: {error}"
            trace.emit(events.WorkerSpawnFailed(trace.run_id, task.task_id, lease.lease_id, what))

    def completed(self, task: Task, outcome: str, seconds: float) -> None:
        """Tell that a task's work ended."""
        trace = self._trace
        if trace.wants(events.TaskCompleted):
            what = (task.task_id, task.stage, task.group, outcome, seconds, trace.trace_of(task))
            trace.emit(events.TaskCompleted(trace.run_id, *what))

    def cancelled(self, task: Task, reason: str) -> None:
        """Tell that a task was cancelled."""
        trace = self._trace
        if trace.wants(events.TaskCancelled):
            trace.emit(events.TaskCancelled(trace.run_id, task.task_id, reason))

    def deferred(self, task: Task, reason: str, wait_s: float) -> None:
        """Tell that a task is put off."""
        trace = self._trace
        if trace.wants(events.RetryDeferred):
            trace.emit(events.RetryDeferred(trace.run_id, task.task_id, reason, wait_s, task.attempt))

    def redispatched(self, task: Task) -> None:
        """Tell that a task is queued again."""
        trace = self._trace
        if trace.wants(events.RetryRedispatched):
            trace.emit(events.RetryRedispatched(trace.run_id, task.task_id, task.attempt))

    def given_up(self, task: Task, reason: str, because_of: TaskId, error: str) -> None:
        """Tell that a task has no result and will have none."""
        trace = self._trace
        if trace.wants(events.NonRetryableDropped):
            what = (task.task_id, task.stage, task.group, reason, because_of, error)
            trace.emit(events.NonRetryableDropped(trace.run_id, *what))

    def stopped_early(self, stop: EarlyStop) -> None:
        """Tell that too many tasks failed."""
        trace = self._trace
        if trace.wants(events.EarlyStopped):
            trace.emit(events.EarlyStopped(trace.run_id, stop.recent.failed, stop.recent.window, stop.recent.rate))


def _nowhere(_event: events.Event) -> None:
    return


def _wants_nothing(_kind: type[events.Event]) -> bool:
    return False
