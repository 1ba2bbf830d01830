"""The dispatcher: which ready task gets a worker next. Pure; events in, decisions out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headgate.core import Denied, HolderId, Lease, LeaseBook, ReleaseOutcome, Task, TaskId, events
from headgate.scheduling.explanation import Explanation, explained
from headgate.scheduling.fair_queue import Group, StaleSelection
from headgate.scheduling.policies import DenyReason, StrictFair, TaskPolicy
from headgate.scheduling.pressure import PressureBoard, PressureRules
from headgate.scheduling.shelves import CLOSED, OPEN, PRESSURED, RANKS, ReadyShelves, Shelf
from headgate.scheduling.task_admission import Choice, TaskAdmission
from headgate.scheduling.trace import Trace


@dataclass(slots=True, eq=False)
class Dispatch:
    """Run this task now; give the lease back with `finished`.

    Attributes:
        task: the task to run.
        lease: the task's lease on the resources it needs.
        group: the group charged for the run.
        since: when the run started, or last resumed from parking.
        held_s: seconds for which it held its lease before `since`.
    """

    task: Task
    lease: Lease
    group: Group[Task]
    since: float
    held_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Held:
    """Why nothing can run. A release, a new task, an opened lane or a raised limit can change it."""

    reason: str
    detail: str


@dataclass(slots=True)
class Lane:
    """One model's lane: open while it has a free parallel slot, is not held, and its requests would not just wait."""

    max_parallel: int | None = None
    queued: int = 0
    in_flight: int = 0
    held_until: float | None = None


_RELEASED = ReleaseOutcome.RELEASED
_STANDINGS = ("within its share", "borrows", "at its ceiling")


class Dispatcher:
    """The ready tasks, the leases on scheduler resources, and the lanes of the models, as one decision maker.

    A task gets its lease before anything is spawned for it, so no spawned worker waits for resources. `on_change` is
    called after every change that may let a task run, so a caller that sleeps until then misses no wakeup.

    Owned by a run and driven by its `DispatchLoop`. Invariants: those of its queue, its book and its holdings; a model
    never has more than `max_parallel` tasks in flight, unless the limit was lowered while they ran.
    """

    def __init__(
        self,
        resources: Mapping[str, int],
        *,
        holder: HolderId,
        policy: TaskPolicy | None = None,
        pressure: PressureRules | None = None,
        governed: Iterable[str] | None = None,
        max_parked: int | None = None,
        is_roster_open: bool = False,
        on_change: Callable[[], None] = lambda: None,
        trace: Trace | None = None,
    ) -> None:
        """Prepare a dispatcher.

        Args:
            resources: scheduler resource -> its total units.
            holder: the holder recorded on leases.
            policy: what a group may hold; `StrictFair` by default.
            pressure: how long pressured lanes are passed over.
            governed: resources that the policy governs; by default all but `submission`, unless a task takes only that.
            max_parked: leases that can be parked at once; the largest resource limit by default.
            is_roster_open: whether models never passed to `set_model` run without a limit of their own.
            on_change: called when a waiting task may be able to run, or `next_change_at` has changed; must not call
                the dispatcher.
            trace: where events go.
        """
        self.book = LeaseBook(dict(resources))
        self.queue = ReadyShelves(None if governed is None else frozenset(governed))
        self.pressure = PressureBoard(pressure or PressureRules())
        self.admission = TaskAdmission(policy or StrictFair(), self.book, self.queue, self._capped)
        self.on_change = on_change
        self.enqueued = 0
        self.dequeued = 0
        self.shut_down_by = ""
        self._withheld = ""
        self.lanes: defaultdict[str, Lane] = defaultdict(Lane)
        self._holder = holder
        self.is_roster_open = is_roster_open
        self._max_parked = max_parked if max_parked is not None else max(resources.values(), default=0)
        self.aside: dict[TaskId, Task] = {}
        """Ready tasks that must not start (`set_aside`); read-only."""
        self._is_aside: Callable[[Task], bool] | None = None
        self.running: dict[TaskId, Dispatch] = {}
        """The tasks in progress, parked ones included; read-only."""
        self.trace = trace
        self._told_held = ""

    # What can run.

    def set_model(self, model: str, max_parallel: int) -> None:
        """Let a model run `max_parallel` tasks at once."""
        self.lanes[model].max_parallel = max_parallel
        self._update_lane(model)
        self.on_change()

    def remove_model(self, model: str) -> list[Task]:
        """Withdraw a model's queued tasks and return them; tasks in flight run on."""
        lane = self.lanes[model]
        lane.max_parallel, lane.held_until = None, None
        self.pressure.put(model, None, None)
        self.queue.set_state(model, CLOSED)
        withdrawn = self.discard_where(lambda task: task.model == model)
        if not lane.in_flight:
            self._forget(model)
        return withdrawn

    def _forget(self, model: str) -> None:
        """Drop the lanes of a model that has nothing queued or in progress and no limit or hold."""
        del self.lanes[model]
        self.queue.forget(model)

    def hold(self, model: str, until: float) -> None:
        """Start no task of a model until `unhold`; `until` is the expected end of the hold."""
        self.lanes[model].held_until = until
        self._update_lane(model)

    def unhold(self, model: str) -> None:
        """Let a held model run again."""
        self.lanes[model].held_until = None
        self._update_lane(model)
        self.on_change()

    def set_aside(self, condition: Callable[[Task], bool] | None, now: float) -> None:
        """Start no task that meets `condition`, which replaces the previous one; None lets every task start.

        Ready tasks that meet it leave the queue until they no longer do. Running tasks are not affected.
        """
        self._is_aside = condition
        back = [task for task in self.aside.values() if condition is None or not condition(task)]
        for task in back:
            del self.aside[task.task_id]
        if condition is not None:
            self.aside |= {task.task_id: task for task in self._taken_out(condition)}
        self.enqueue(back, now)

    def set_pressure(self, model: str, reason: str | None, until: float | None = None) -> None:
        """Mark the endpoint of a model as under pressure, or (None) clear the mark.

        Its tasks start only when no task of an open lane can, or after a bounded number of pass-overs. Under a reason
        in `PressureRules.closing` they do not start at all until `until`, or until the pressure is cleared.
        """
        self.pressure.put(model, reason, until)
        if model in self.lanes:
            self._update_lane(model)
        self.on_change()

    def set_limit(self, resource: str, limit: int) -> None:
        """Change a resource's limit; below the units held, it denies new leases until enough have been released."""
        self.book.set_limit(resource, limit)
        self.admission.limits_changed()
        self.on_change()

    def withhold(self, resource: str) -> None:
        """Start no further task that takes this resource; tasks that take only others still start."""
        self._withheld = resource

    def shut_down(self, reason: str) -> None:
        """Start no further task; running tasks run on."""
        self.shut_down_by = reason

    # The life of a task.

    def enqueue(self, tasks: Iterable[Task], now: float = 0.0) -> int:
        """Add ready tasks and return how many were added; tasks already queued or running are ignored.

        A task whose model is unknown, or was removed, waits until `set_model` adds the model.
        """
        added, counts = 0, self.admission.counts
        for task in tasks:
            if task.task_id in self.running:
                continue
            if self._is_aside is not None and self._is_aside(task):
                self.aside[task.task_id] = task
                continue
            if task.model not in self.lanes:
                self._update_lane(task.model)
            lane = self.lanes[task.model]
            shelf = self.queue.shelf_for(task)
            if not self.queue.add(shelf, task):
                continue
            added += 1
            lane.queued += 1
            if counts:
                self.admission.holdings.queued(task.group, task.weight, shelf.governed, now)
            if (trace := self.trace) is not None:
                self._told_held = ""
                about = (task.task_id, task.stage, task.group, task.model)
                trace.tell(events.ReadyEnqueued, *about, shelf.units, len(self.queue), trace.trace_of(task))
        self.enqueued += added
        if added:
            self.on_change()
        return added

    def next(self, now: float) -> Dispatch | Held:
        """Return the next task with its lease, or why none can run."""
        return self._found(now) or self._held()

    def take(self, now: float, *, open_only: bool = False) -> Dispatch | None:
        """Return the next task with its lease; None when nothing can run, without the cost of finding out why.

        With `open_only`, a task for a pressured endpoint waits for as long as it may be passed over, even if no other
        task can run, and is not reported as held: the caller calls again without `open_only`.
        """
        found = self._found(now, open_only=open_only)
        if isinstance(found, Dispatch):
            return found
        if self.trace is not None and not (open_only and self.pressure.lanes):
            self._tell_held(self.trace, found or self._held())
        return None

    def _tell_held(self, trace: Trace, held: Held) -> None:
        """Report why nothing runs; once, until the reason changes."""
        if held.reason == self._told_held:
            return
        self._told_held = held.reason
        if held.reason == "queue_empty":
            trace.tell(events.QueueEmpty, len(self.running))
        else:
            trace.tell(events.AdmissionBlocked, held.reason, held.detail, len(self.queue))

    def _found(self, now: float, *, open_only: bool = False) -> Dispatch | Held | None:
        if self.shut_down_by:
            return Held(DenyReason.SHUTDOWN, self.shut_down_by)
        choice = self._choose(now, open_only=open_only)
        return self._taken(choice, now) if choice is not None else None

    def _taken(self, choice: Choice, now: float) -> Dispatch | Held:
        """Take the chosen task out of the queue, under its lease."""
        shelf, selection, tag = choice
        task = selection.item
        lease = self.book.acquire(self._holder, task.resources, now, subject=task.task_id)
        if isinstance(lease, Denied):
            if self.trace is not None:
                what = (lease.reason, lease.capacity, lease.wanted, lease.available)
                self.trace.tell(events.AdmissionDenied, task.task_id, *what)
            return Held(lease.reason, f"{lease.capacity}: wants {lease.wanted}, {lease.available} free")
        committed = shelf.commit(selection)
        if isinstance(committed, StaleSelection):
            return self._put_back(task, lease, committed.reason)
        if tag > self.queue.virtual_time:  # noqa: PLR1730 - as in the fair queue
            self.queue.virtual_time = tag
        dispatch = Dispatch(task, lease, selection.group, now)
        self.dequeued += 1
        self.running[task.task_id] = dispatch
        if self.admission.counts:
            self.admission.holdings.started(task.group, shelf.governed)
        if self.pressure.lanes:
            self.pressure.started(task.model)
        lane = self.lanes[task.model]
        lane.queued -= 1
        lane.in_flight += 1
        if lane.in_flight == lane.max_parallel:
            self.queue.full.add(task.model)
        if (trace := self.trace) is not None:
            self._told_held = ""
            about, trace_id = (task.group, task.model), trace.trace_of(task)
            trace.tell(events.TaskSelected, task.task_id, *about, trace_id)
            lease_id = lease.lease_id
            trace.tell(events.TaskLeaseAcquired, task.task_id, lease_id, task.stage, *about, shelf.units, trace_id)
        return dispatch

    def _put_back(self, task: Task, lease: Lease, reason: str) -> Held:
        self.book.release(lease)
        if self.trace is not None:
            self.trace.tell(events.SelectionStale, task.task_id, reason)
        return Held("stale_selection", reason)

    def finished(self, task: Task, lease: Lease, now: float | None = None) -> ReleaseOutcome:
        """Take a lease back, whatever the task's outcome; charge its group for the time until `now`, if given."""
        was_parked = lease.lease_id in self.book.parked
        outcome = self.book.release(lease)
        if outcome is _RELEASED:
            running = self.running.pop(task.task_id)
            if now is not None:
                running.group.held(running.held_s if was_parked else running.held_s + now - running.since)
            lane = self.lanes[task.model]
            lane.in_flight -= 1
            if self.admission.counts and not was_parked:
                self.admission.gave_back(task)
            if lane.max_parallel is None and not self.is_roster_open:
                if not lane.in_flight and lane.held_until is None and not lane.queued:
                    self._forget(task.model)
            elif lane.in_flight + 1 == lane.max_parallel:
                if task.model in self.queue.full:
                    self.queue.full.remove(task.model)
                else:
                    self._update_lane(task.model)
            self.on_change()
        if self.trace is not None:
            about = (task.task_id, lease.lease_id)
            if outcome is _RELEASED:
                held_s = 0.0 if now is None else now - lease.acquired_at
                units = self.queue.shelf_for(task).units
                self.trace.tell(events.TaskLeaseReleased, *about, task.group, units, held_s)
            else:
                self.trace.tell(events.ReleaseDiagnostic, *about, outcome)
        return outcome

    def park(self, lease: Lease, now: float) -> bool:
        """Lend the units of a lease to others while its task's request waits; return False if it cannot be parked.

        At most `max_parked` leases are parked at once, which bounds how many resumed tasks can exceed the limits.
        """
        running = self.running.get(TaskId(lease.subject))
        if len(self.book.parked) >= self._max_parked or running is None or running.lease is not lease:
            return False
        if not self.book.park(lease):
            return False
        running.held_s += now - running.since
        if self.admission.counts:
            self.admission.gave_back(running.task)
        if self.trace is not None:
            units = self.queue.shelf_for(running.task).units
            self.trace.tell(events.TaskParked, running.task.task_id, lease.lease_id, units)
        self.on_change()
        return True

    def unpark(self, lease: Lease, now: float) -> bool:
        """Give a parked lease its units back at once; return whether it was parked.

        The task resumes without waiting, because it now holds a request slot, which is scarcer than a worker. Tasks
        started in its place run on above the limit, and no new task starts until enough units have been released.
        """
        if not self.book.unpark(lease):
            return False
        running = self.running[TaskId(lease.subject)]
        running.since = now
        task = running.task
        if self.admission.counts:
            self.admission.took_again(task, now)
        if self.trace is not None:
            self.trace.tell(events.TaskUnparked, task.task_id, lease.lease_id, self.queue.shelf_for(task).units)
        return True

    def discard_where(self, condition: Callable[[Task], bool]) -> list[Task]:
        """Withdraw all queued tasks that meet the condition, including those set aside; return them. O(tasks)."""
        aside = [task for task in self.aside.values() if condition(task)]
        for task in aside:
            del self.aside[task.task_id]
        return aside + self._taken_out(condition)

    def _taken_out(self, condition: Callable[[Task], bool]) -> list[Task]:
        gone = self.queue.discard_where(condition)
        for task in gone:
            self.lanes[task.model].queued -= 1
            if self.admission.counts:
                self.admission.withdrawn(task)
        return gone

    # State.

    def in_flight(self, model: str | None = None) -> int:
        """Return the tasks in progress, of one model or of all."""
        if model is None:
            return len(self.running)
        lane = self.lanes.get(model)
        return lane.in_flight if lane is not None else 0

    def queued(self, model: str) -> int:
        """Return the ready tasks of a model."""
        lane = self.lanes.get(model)
        return lane.queued if lane is not None else 0

    def lease_of(self, task_id: TaskId) -> Lease | None:
        """Return the lease of a running task."""
        running = self.running.get(task_id)
        return running.lease if running is not None else None

    def next_change_at(self, now: float) -> float | None:
        """Return when a task may become able to run by time alone: when a cooldown or a kept reserve ends."""
        times = [self.pressure.next_end(), self.admission.reserve_ends]
        return min((at for at in times if at is not None and at > now), default=None)

    def is_next(self, task: Task, now: float) -> bool:
        """Return whether `next` would start this task. Affects no decision."""
        choice = None if self.shut_down_by else self._choose(now, counts=False)
        return choice is not None and choice[1].item is task

    def why(self, task_id: TaskId, now: float) -> Explanation:
        """Return which gate holds a task, why, and until when."""
        return explained(self, task_id, now)

    # Choosing.

    def _choose(self, now: float, *, counts: bool = True, open_only: bool = False) -> Choice | None:
        """Return the task to run next; with `counts` it will run, so a task passed over for it is counted."""
        if self.pressure.lanes and (ends := self.pressure.next_end()) is not None and ends <= now:
            for model in self.pressure.end_due(now):
                self._update_lane(model)
        shelves = self.queue.stocked(self.book)
        if self._withheld:
            shelves = [shelf for shelf in shelves if self._withheld not in shelf.needs]
        if not shelves:
            return None
        best = self.admission.first(shelves, OPEN, now)
        if not self.pressure.lanes:
            return best
        pressed = self.admission.first(shelves, PRESSURED, now)
        if pressed is None or (best is not None and best[2] < pressed[2]):
            return best
        if not self.pressure.may_pass_over(pressed[1].item.model, now):
            return pressed
        if best is None:
            return None if open_only else pressed
        if counts:
            self._pass_over(pressed[1].item, best[1].item, now)
        return best

    def _pass_over(self, passed: Task, goes: Task, now: float) -> None:
        self.pressure.pass_over(passed.model, now)
        if self.trace is not None:
            pressed = self.pressure.lanes[passed.model]
            what = (passed.model, pressed.reason, pressed.passed_over, goes.task_id)
            self.trace.tell(events.RequestPressureSkipped, passed.task_id, *what)

    def _capped(self, group: str, standing: int, shelf: Shelf) -> None:
        if self.trace is not None:
            self.trace.tell(events.GroupCapped, group, _STANDINGS[standing], shelf.governed)

    def _held(self) -> Held:
        if not len(self.queue):
            return Held("queue_empty", "no task is ready")
        self.queue.close_full()
        shelves = self.queue.stocked(self.book)
        if shelves and any(s.first(rank) is not None for s in shelves for rank in range(RANKS)):
            return Held(DenyReason.BORROW_DEBT, "every group that could run has its share, and the reserve is not lent")
        denied = self.queue.short
        is_open = any(shelf.first(rank) is not None for shelf in self.queue.shelves() for rank in range(RANKS))
        if denied is None or shelves or not is_open:
            return Held("lanes_closed", "every model with ready tasks is paused or has all its parallel slots in use")
        return Held(denied.reason, f"{denied.capacity}: wants {denied.wanted}, {denied.available} free")

    def _update_lane(self, model: str) -> None:
        lane = self.lanes[model]
        pressed = self.pressure.lanes.get(model)
        is_full = lane.in_flight >= lane.max_parallel if lane.max_parallel is not None else not self.is_roster_open
        if is_full or lane.held_until is not None or (pressed is not None and pressed.is_useless):
            self.queue.set_state(model, CLOSED)
        else:
            self.queue.set_state(model, OPEN if pressed is None else PRESSURED)

    def validate(self) -> None:
        """Assert the invariants of the class, its queue, its book and its holdings."""
        self.queue.validate()
        self.book.validate()
        self.admission.holdings.validate()
        for model in self.queue.full:
            lane = self.lanes[model]
            assert lane.max_parallel is not None, f"{model} has no parallel slots to fill"
            assert lane.in_flight >= lane.max_parallel, f"{model} counts as full and is not"
        queued = {model: lane.queued for model, lane in self.lanes.items() if lane.queued}
        assert queued == Counter(task.model for task in self.queue.items()), "queued tasks are miscounted"
        assert not any(task_id in self.queue for task_id in self.aside), "a task that stands aside is queued"
        assert all(self._is_aside is not None and self._is_aside(task) for task in self.aside.values())
        assert sum(lane.in_flight for lane in self.lanes.values()) == len(self.running) == len(self.book.live)
