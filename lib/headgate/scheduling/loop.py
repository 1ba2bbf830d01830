"""The dispatch loop: row groups in, tasks run in stages, one event-driven loop around the pure decision makers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from headgate.core import Lease, Task, TaskId, events
from headgate.core.errors import InvalidInputError
from headgate.scheduling.dispatcher import Dispatch, Dispatcher
from headgate.scheduling.explanation import Explanation
from headgate.scheduling.frontier import AdaptiveFrontier, BlockReason, FrontierRules, FrontierView
from headgate.scheduling.retries import Retries, RetryLaterError, RetryRules, TaskFailedError, is_defect
from headgate.scheduling.row_groups import RowGroup, RowGroups, RowGroupSource, taken_from
from headgate.scheduling.stages import Progress, StageGraph
from headgate.scheduling.trace import Trace

Work = Callable[[Task], Awaitable[object]]
"""Does one task's work under its lease. An exception defers the task (`RetryLaterError`), stops the run if it is a
defect (`is_defect`), or else fails the task."""

EVERYTHING_DONE: Final = "everything is done"


@dataclass(frozen=True, slots=True)
class LoopResult:
    """What a run did.

    Attributes:
        completed: tasks with a result.
        failed: tasks that failed for good.
        dropped: tasks that did not run because a dependency failed or the run stopped.
        retried: task runs that were deferred to a later time.
        row_groups: checkpointed row groups.
        stopped_by: why the run ended.
    """

    completed: int
    failed: int
    dropped: int
    retried: int
    row_groups: int
    stopped_by: str

    @property
    def is_complete(self) -> bool:
        """Whether every task has its result."""
        return self.stopped_by == EVERYTHING_DONE and not self.failed and not self.dropped


class DispatchLoop:
    """Runs row groups: opens them adaptively, starts tasks that are ready and leased, and acts on how they end.

    One coroutine decides; it sleeps until the dispatcher signals that something may run, a task ends, or a timer is
    due (a retry, a cooldown, a reserve). Nothing is polled. Every task's work runs in the loop's task group under a
    lease that ends with it, whatever happens: failure, cancellation, a defect, or a worker that cannot be started.

    A single-stage task needs no row group: the dispatcher's owner may enqueue it directly, and the loop runs it.

    Lives for one `run`. It needs a dispatcher of its own, because it sets the dispatcher's `on_change`.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        row_groups: Iterable[RowGroup] | RowGroupSource,
        work: Work,
        *,
        now: Callable[[], float],
        frontier: FrontierRules | None = None,
        model_resource: str = "llm_wait",
        retries: RetryRules | None = None,
        tolerant_stages: Iterable[str] = (),
        trace: Trace | None = None,
        health_every_s: float | None = None,
        is_done: Callable[[], bool] | None = None,
        turned: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare a run.

        Args:
            dispatcher: holds the run's resources and policy.
            row_groups: what to run, taken one at a time: an iterable, or a function that returns the next one, None
                while there is none.
            work: does a task's work.
            now: returns the time for the dispatcher, in seconds.
            frontier: how many row groups are open.
            model_resource: the resource whose idleness widens the frontier.
            retries: rules for retrying tasks that may succeed later.
            tolerant_stages: stages that run once their dependencies have ended, successfully or not.
            trace: where events go.
            health_every_s: seconds between health snapshots; None reports them only at the start and the end.
            is_done: whether the run has ended, asked while nothing runs; by default, when all row groups have ended.
            turned: called at the end of each turn, after everything that can start has started.
        """
        self.dispatcher = dispatcher
        self.graph = StageGraph(tolerant_stages)
        self.frontier = AdaptiveFrontier(frontier or FrontierRules())
        self.rows = RowGroups(taken_from(row_groups), model_resource)
        self.stopped_by = ""
        self.completed = self.failed = self.dropped = self.retried = 0
        self._work = work
        self._now = now
        self._is_done = is_done or (lambda: not self.rows.open and self.rows.next is None)
        self._turned = turned
        self._model_resource = model_resource
        self.retries = Retries(retries or RetryRules())
        self._trace = trace
        self._blocked_by: BlockReason | None = None
        self._health_every_s = health_every_s
        self._health_at: float | None = None
        self.is_draining = False
        self._wake = asyncio.Event()
        self._defect: Exception | None = None
        dispatcher.on_change = self._wake.set
        if trace is not None:
            dispatcher.trace = trace

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in progress, deferred or open; there may be ready tasks that cannot start."""
        return not self.dispatcher.running and not len(self.retries) and not self.rows.open

    async def run(self) -> LoopResult:
        """Run everything; return when it has ended.

        Raises:
            Exception: the defect that stopped the run, as raised, after everything else was cancelled.
            InvalidInputError: if a task can never run: an unknown dependency, or more units than the limit.
        """
        began = self._now()
        self._tell_began()
        try:
            async with asyncio.TaskGroup() as workers:
                await self._turns(workers)
        except BaseExceptionGroup:
            if self._defect is not None:
                raise self._defect  # noqa: B904 - its own traceback shows where; the group adds nothing
            raise
        finally:
            self.stopped_by = self.stopped_by or "interrupted"
            self._clean_up()
            self._tell_health()
            counts = (self.completed, self.failed, self.dropped, self.retried, self.rows.checkpointed)
            if self._trace is not None:
                self._trace.tell(events.SchedulerJobCompleted, self.stopped_by, *counts, self._now() - began)
        return LoopResult(*counts, self.stopped_by)

    def stop(self, reason: str) -> None:
        """Start no further task and let `run` return once running tasks have ended. May be called repeatedly."""
        if not self.stopped_by:
            self.stopped_by = reason
            self.dispatcher.shut_down(reason)
            self._wake.set()

    def drain(self) -> None:
        """Open no further row group and start no task that takes the model resource; other stages go on."""
        self.is_draining = True
        self.dispatcher.withhold(self._model_resource)
        self._wake.set()

    def wake(self) -> None:
        """Wake the loop, after row groups became available or a condition that the run waits for changed."""
        self._wake.set()

    def drop(self, tasks: Iterable[Task], reason: str) -> None:
        """End tasks that were withdrawn from the dispatcher, without a result."""
        now = self._now()
        for task in tasks:
            self.dropped += 1
            self._tell_given_up(task, "withdrawn", task.task_id, reason)
            progress = self.graph.failed(task.task_id)
            self._close(task, "dropped", now)
            self._follow(progress, now)

    @property
    def held(self) -> dict[TaskId, Task]:
        """The tasks that are deferred until `go_on`; they hold no lease. Read-only."""
        return self.retries.held

    @property
    def only_holds(self) -> bool:
        """Whether every deferred task waits for `go_on`."""
        return len(self.retries) == len(self.retries.held)

    def go_on(self, task_id: TaskId) -> None:
        """Queue a task again that was deferred until this call; other tasks are ignored."""
        task = self.retries.held.pop(task_id, None)
        if task is not None and not self.stopped_by:
            if self._trace is not None:
                self._trace.tell(events.RetryRedispatched, task.task_id, task.attempt)
            self.dispatcher.enqueue((task,), self._now())

    def discard_put_off(self, condition: Callable[[Task], bool]) -> list[Task]:
        """Withdraw and return deferred tasks that meet the condition and belong to no row group."""
        return self.retries.take(lambda task: task.task_id not in self.graph and condition(task))

    def why(self, task_id: TaskId) -> Explanation:
        """Return which gate holds a task."""
        missing = self.graph.missing(task_id)
        if missing:
            return Explanation(task_id, "waiting", "dependency", f"it waits for {', '.join(missing)}")
        if task_id in self.retries.held:
            return Explanation(task_id, "deferred", "batch", "it waits for its batch of requests")
        at = self.retries.at(task_id)
        if at is not None:
            return Explanation(task_id, "deferred", "retry", "its last run failed; it is tried again", at)
        return self.dispatcher.why(task_id, self._now())

    # Turns of the loop.

    async def _turns(self, workers: asyncio.TaskGroup) -> None:
        try:
            await self._turn_after_turn(workers)
        except Exception as error:
            self._defect = self._defect or error
            raise

    async def _turn_after_turn(self, workers: asyncio.TaskGroup) -> None:
        while True:
            self._wake.clear()
            now = self._now()
            self._requeue_due(now)
            # Tasks of a new row group for an open endpoint go before tasks for a pressured one.
            self._dispatch(workers, now, open_only=True)
            while not self.stopped_by and not self.is_draining and self._widen(now):
                self._dispatch(workers, now, open_only=True)
            if self.dispatcher.pressure.lanes:
                self._dispatch(workers, now)
            self._turned()
            self._report_health(now)
            if not self.dispatcher.running and (self.stopped_by or self._is_done()):
                self.stopped_by = self.stopped_by or EVERYTHING_DONE
                if self._trace is not None:
                    self._trace.tell(events.QueueDrained, self.completed)
                return
            await self._sleep(now)

    async def _sleep(self, now: float) -> None:
        """Return once the loop is woken or the next timer is due."""
        times = (
            self.retries.next_at() if not self.stopped_by else None,
            self.dispatcher.next_change_at(now),
            self.frontier.next_change_at() if not self.stopped_by else None,
            self._health_at,
        )
        at = min((at for at in times if at is not None), default=None)
        timer = None
        if at is not None:
            timer = asyncio.get_running_loop().call_later(max(0.0, at - now), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _dispatch(self, workers: asyncio.TaskGroup, now: float, *, open_only: bool = False) -> None:
        while (granted := self.dispatcher.take(now, open_only=open_only)) is not None:
            self._spawn(workers, granted, now)

    def _widen(self, now: float) -> bool:
        """Open the next row group if the frontier says so; return whether to look again."""
        step = self.frontier.step(self._view(), now)
        if step.before != step.after and self._trace is not None:
            self._trace.tell(events.RowGroupAdmissionTargetChanged, step.before, step.after, step.reason)
        if not step.opens:
            if step.blocked_by is not None and step.blocked_by is not self._blocked_by:
                self._blocked_by = step.blocked_by
                if self._trace is not None:
                    counts = (len(self.rows.open), self.frontier.target, len(self.dispatcher.queue))
                    self._trace.tell(events.RowGroupAdmissionBlocked, step.blocked_by, *counts)
            return step.before != step.after
        self._blocked_by = None
        if self.rows.next is not None:
            self._check(self.rows.next)
        group = self.rows.open_next(now).group
        if self._trace is not None:
            opened_now = (group.name, group.rows, len(group.tasks), len(self.rows.open), self.frontier.target)
            self._trace.tell(events.RowGroupAdmitted, *opened_now)
        progress = self.graph.add(group.tasks)
        self._follow(progress, now, dependencies=False)
        return True

    def _view(self) -> FrontierView:
        rows, book, queue = self.rows, self.dispatcher.book, self.dispatcher.queue
        limit, pressed = book.limits.get(self._model_resource), self.dispatcher.pressure.lanes
        return FrontierView(
            active=len(rows.open),
            active_rows=rows.active_rows,
            next_rows=rows.next.rows if rows.next is not None else 0,
            queued=len(queue),
            limit=limit,
            free=book.available(self._model_resource),
            # Tasks that cannot start now, or would wait, are no demand: they must not keep other models' rows closed.
            demand=queue.demand(self._model_resource) - queue.stuck(self._model_resource, pressed),
            warming=rows.warming,
        )

    def _check(self, group: RowGroup) -> None:
        limits = self.dispatcher.book.limits
        for task in group.tasks:
            for resource, units in task.resources.items():
                limit = limits.get(resource, 0)
                if units > limit:
                    raise InvalidInputError(
                        f"task {task.task_id} wants {units} of {resource}, more than the limit of {limit}",
                        next_step="Raise the limit of that resource, or let the task take less.",
                    )

    # A task's life.

    def _spawn(self, workers: asyncio.TaskGroup, granted: Dispatch, now: float) -> None:
        task, lease = granted.task, granted.lease
        body = self._worker(task, lease, now)
        try:
            workers.create_task(body, name=f"task {task.task_id}")
        except BaseException as error:
            body.close()
            self.dispatcher.finished(task, lease, now)
            self.dispatcher.enqueue((task,), now)
            if self._trace is not None:
                what = f"{type(error).__name__}: {error}"
                self._trace.tell(events.WorkerSpawnFailed, task.task_id, lease.lease_id, what)
            raise
        if (trace := self._trace) is not None:
            trace.tell(events.WorkerSpawned, task.task_id, lease.lease_id, task.attempt, trace.trace_of(task))

    def _give_back(self, task: Task, lease: Lease, outcome: str, seconds: float) -> None:
        self.dispatcher.finished(task, lease, lease.acquired_at + seconds)
        if (trace := self._trace) is not None:
            what = (task.task_id, task.stage, task.group, outcome, seconds, trace.trace_of(task))
            trace.tell(events.TaskCompleted, *what)

    async def _worker(self, task: Task, lease: Lease, began: float) -> None:
        failure: Exception | None = None
        outcome = "cancelled"
        try:
            await self._work(task)
            outcome = "success"
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if me is None or me.cancelling():
                self._tell_cancelled(task)
                raise
            failure = TaskFailedError("its work cancelled itself")
            outcome = "failed"
        except Exception as error:  # noqa: BLE001 - the boundary around a task's work: judged; a defect stops the run
            failure = error
            outcome = "deferred" if isinstance(error, RetryLaterError) else "failed"
        finally:
            now = self._now()
            self._give_back(task, lease, outcome, now - began)
        self._ended(task, failure, now)

    def _ended(self, task: Task, failure: Exception | None, now: float) -> None:
        if failure is not None and is_defect(failure):
            self.stopped_by = self.stopped_by or "internal error"
            self._defect = self._defect or failure
            raise failure
        if isinstance(failure, RetryLaterError):
            wait_s = self.retries.put_off(task, failure, now)
            if wait_s is not None:
                self.retried += 1
                self.rows.put_off(task.task_id)
                if self._trace is not None:
                    self._trace.tell(events.RetryDeferred, task.task_id, failure.reason, wait_s, task.attempt)
                return
        self.retries.ended(task.task_id)
        if failure is None:
            self.completed += 1
        else:
            self.failed += 1
            self._tell_given_up(task, "failed", task.task_id, str(failure))
        if task.task_id in self.graph:
            progress = self.graph.done(task.task_id) if failure is None else self.graph.failed(task.task_id)
            self._close(task, "completed" if failure is None else "failed", now)
            self._follow(progress, now)

    def _requeue_due(self, now: float) -> None:
        for task in self.retries.due(now) if not self.stopped_by else ():
            if self._trace is not None:
                self._trace.tell(events.RetryRedispatched, task.task_id, task.attempt)
            self.dispatcher.enqueue((task,), now)

    def _follow(self, progress: Progress, now: float, *, dependencies: bool = True) -> None:
        for task in progress.ready:
            self.rows.became_ready(task.task_id)
            if dependencies and (trace := self._trace) is not None:
                what = (task.task_id, task.stage, task.group, trace.trace_of(task))
                trace.tell(events.DependencyReady, *what)
        self.dispatcher.enqueue(progress.ready, now)
        for dropped in progress.dropped:
            self.dropped += 1
            self._tell_given_up(dropped.task, "dependency_failed", dropped.because_of, "")
            self._close(dropped.task, "dropped", now)

    def _close(self, task: Task, outcome: str, now: float) -> None:
        opened = self.rows.ended(task.task_id, outcome)
        if opened is not None:
            if self._trace is not None:
                counts = (opened.completed, opened.failed, opened.dropped)
                self._trace.tell(events.RowGroupCheckpointed, opened.group.name, *counts, now - opened.opened_at)
            self.graph.forget(t.task_id for t in opened.group.tasks)

    def _clean_up(self) -> None:
        """Release the leases of workers cancelled before their first step, and count the tasks that did not run."""
        for granted in list(self.dispatcher.running.values()):
            self._tell_cancelled(granted.task)
            self._give_back(granted.task, granted.lease, "cancelled", 0.0)
        self.dropped += sum(opened.remaining for opened in self.rows.open.values())

    # Events.

    def _tell_began(self) -> None:
        if self._trace is not None:
            limits, rules = tuple(sorted(self.dispatcher.book.limits.items())), self.frontier.rules
            policy = self.dispatcher.admission.policy.name
            self._trace.tell(events.SchedulerJobStarted, limits, policy, rules.floor, rules.cap)
        self._tell_health()

    def _tell_cancelled(self, task: Task) -> None:
        if self._trace is not None:
            self._trace.tell(events.TaskCancelled, task.task_id, self.stopped_by or "the run was interrupted")

    def _tell_given_up(self, task: Task, reason: str, because_of: TaskId, error: str) -> None:
        if self._trace is not None:
            what = (task.task_id, task.stage, task.group, reason, because_of, error)
            self._trace.tell(events.NonRetryableDropped, *what)

    def _report_health(self, now: float) -> None:
        if self._health_every_s is None or (self._health_at is not None and now < self._health_at):
            return
        if self._health_at is not None:
            self._tell_health()
        self._health_at = now + self._health_every_s

    def _tell_health(self) -> None:
        if self._trace is None:
            return
        dispatcher, book = self.dispatcher, self.dispatcher.book
        self._trace.tell(
            events.SchedulerHealthSnapshot,
            queued=len(dispatcher.queue),
            running=len(dispatcher.running),
            parked=len(book.parked),
            deferred=len(self.retries),
            waiting=self.graph.waiting,
            active_row_groups=len(self.rows.open),
            active_rows=self.rows.active_rows,
            frontier_target=self.frontier.target,
            leased=tuple(sorted(book.in_use.items())),
            limits=tuple(sorted(book.limits.items())),
            queued_demand=tuple((name, dispatcher.queue.demand(name)) for name in sorted(book.limits)),
            blocked_by=self._blocked_by or "",
            passed_over=dispatcher.pressure.pass_overs,
        )
