"""The workers and their states: one door through which every change of state goes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from headgate.core import TimerHeap, events
from headgate.elastic.demand import Meter
from headgate.elastic.errors import UnknownWorkerError
from headgate.elastic.outbox import LetGo, Outbox, Read, Sleep, Wake
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import DrainStage, EngineLoad, Worker, WorkerState

_EDGES: Final = {
    WorkerState.INACTIVE: {WorkerState.STARTING, WorkerState.DRAINING, WorkerState.FAILED},
    WorkerState.STARTING: {WorkerState.ACTIVE, WorkerState.INACTIVE, WorkerState.FAILED},
    WorkerState.ACTIVE: {WorkerState.DRAINING, WorkerState.FAILED},
    WorkerState.DRAINING: {WorkerState.ACTIVE, WorkerState.INACTIVE, WorkerState.FAILED},
    WorkerState.FAILED: {WorkerState.INACTIVE, WorkerState.DRAINING},
}
_ASLEEP_READINGS: Final = 6
"""A sleeping engine is asked whether it lives so much less often than one that works."""

_HOLD_STARTS: Final = 3
"""A worker is left awake so many times as long as it took to start: less would not pay for the start."""

_LONGEST_RETRIES: Final = 20

MANY_FAILURES: Final = 5
"""So many failures in a row and each further one are followed by the longest pause."""


class Fleet:
    """All workers of a pool. Owned by one pool.

    Attributes:
        workers: worker id -> worker, in the order in which they were named.
        active: those that take requests, in that order.
        open: those of them that have room; kept, so that a full pool of hundreds costs a request no look at each.
        agenda: when each is to be looked at.
        slots: requests that a worker takes at once, on average.
    """

    def __init__(self, config: ElasticConfig, meter: Meter, outbox: Outbox, *, has_others: bool) -> None:
        self.workers: dict[str, Worker] = {}
        self.active: dict[str, Worker] = {}
        self.open: dict[str, Worker] = {}
        self.agenda = TimerHeap()
        self._config = config
        self._meter = meter
        self._outbox = outbox
        self._has_others = has_others
        self.slots = 1.0
        self._entered = 0

    def enter(self, worker: Worker, *, is_awake: bool) -> None:
        """Take in a worker that is awake or asleep."""
        worker.number = self._entered
        self._entered += 1
        self.workers[worker.worker_id] = worker
        if is_awake:
            worker.state = WorkerState.ACTIVE
            worker.is_leased = True
            self.active[worker.worker_id] = worker
        self._note_slots()
        self.note_room(worker)

    def worker(self, worker_id: str) -> Worker:
        """Return a worker.

        Raises:
            UnknownWorkerError: there is none of that name.
        """
        if (found := self.workers.get(worker_id)) is None:
            raise UnknownWorkerError(f"The pool {self._outbox.pool} has no worker {worker_id!r}")
        return found

    def current(self, worker_id: str, epoch: int) -> Worker | None:
        """Return the worker whom an answer is about; None when it is about a state that has passed."""
        found = self.workers.get(worker_id)
        return found if found is not None and found.epoch == epoch else None

    def why_full(self) -> str:
        """Return why no worker takes a request: where none is awake, what failed last."""
        if self.active:
            return "no worker had room"
        failed = max(self.in_state(WorkerState.FAILED), key=lambda worker: worker.since, default=None)
        return "no worker is awake" + (f": {failed.worker_id} has failed: {failed.last_error}" if failed else "")

    def in_state(self, *states: WorkerState) -> Iterator[Worker]:
        """Yield the workers in one of these states."""
        return (worker for worker in self.workers.values() if worker.state in states)

    def note_room(self, worker: Worker) -> None:
        """Take note of whether a worker has room; called after whatever could change that."""
        if worker.has_room:
            self.open[worker.worker_id] = worker
        else:
            self.open.pop(worker.worker_id, None)

    def _note_slots(self) -> None:
        slots = [worker.slots for worker in self.workers.values()]
        self.slots = sum(slots) / len(slots) if slots else 1.0

    # Changes of state

    def activate(self, worker: Worker, reason: str, now: float) -> None:
        """Have a worker take requests: it has started, or is needed after all."""
        if worker.state is WorkerState.STARTING and self._config.min_stable_period:
            hold_s = max(self._config.min_stable_period, _HOLD_STARTS * self._meter.start_s)
            worker.held_until = now + hold_s
        self._move(worker, WorkerState.ACTIVE, reason, now)
        worker.stage = None
        worker.read_at = now
        self.active = {each.worker_id: each for each in self.in_state(WorkerState.ACTIVE)}
        self.look_at(worker, now + self._config.monitoring_interval)

    def drain(self, worker: Worker, reason: str, now: float) -> None:
        """Have a worker take no further request and come to its end."""
        self._move(worker, WorkerState.DRAINING, reason, now)
        worker.stage = DrainStage.EMPTYING
        worker.drain_by = now + self._config.drain_timeout
        self.look_at(worker, min(worker.drain_by, now + self._config.monitoring_interval))

    def sleep(self, worker: Worker, now: float) -> None:
        """Have an idle worker put to sleep."""
        worker.stage = DrainStage.SLEEPING
        worker.epoch += 1  # a reading that is under way means nothing from here on
        worker.is_reading = False
        worker.drain_by = now + self._config.start_timeout
        self._outbox.want(Sleep(worker.worker_id, worker.epoch))
        self.look_at(worker, worker.drain_by)

    def asleep(self, worker: Worker, reason: str, now: float) -> None:
        """Take note that a worker sleeps."""
        self._move(worker, WorkerState.INACTIVE, reason, now)
        worker.stage = None
        worker.is_leased = worker.is_lease_lost = False
        worker.load = None
        self.rest(worker, now)

    def wake(self, worker: Worker, reason: str, now: float) -> None:
        """Have a sleeping worker start."""
        self._move(worker, WorkerState.STARTING, reason, now)
        worker.is_lease_lost = False
        self._outbox.want(Wake(worker.worker_id, worker.epoch))
        self.look_at(worker, math.inf)

    def leased(self, worker: Worker, now: float) -> None:
        """Take note that a starting worker has what it stands on: its start counts from here."""
        worker.is_leased = True
        worker.since = now
        self.look_at(worker, now + self._config.start_timeout)

    def forgo(self, worker: Worker, reason: str, now: float) -> None:
        """Take back that a worker starts: it still waits for what it would stand on."""
        self._move(worker, WorkerState.INACTIVE, reason, now)
        self._outbox.want(LetGo(worker.worker_id, worker.epoch))
        self.rest(worker, now)

    def fail(self, worker: Worker, why: str, now: float) -> None:
        """Give a worker up until it answers again. What it had must have been taken from it before."""
        worker.last_error = why
        self._move(worker, WorkerState.FAILED, why, now)
        worker.stage = None
        worker.is_leased = worker.is_lease_lost = False
        worker.load = None
        self._outbox.want(LetGo(worker.worker_id, worker.epoch))
        self.try_later(worker, now)

    def try_later(self, worker: Worker, now: float) -> None:
        """Leave a failed worker alone for a while, longer each time."""
        retry_s = self._config.failed_retry * min(2.0**worker.failures, _LONGEST_RETRIES)
        worker.failures += 1
        worker.retry_at = now + retry_s
        self._outbox.tell(events.WorkerFailed(self._outbox.pool, worker.worker_id, worker.last_error, retry_s))
        self.look_at(worker, worker.retry_at)

    def _move(self, worker: Worker, after: WorkerState, reason: str, now: float) -> None:
        before = worker.state
        assert after in _EDGES[before], f"{worker.worker_id} cannot go from {before} to {after}"
        worker.state = after
        worker.epoch += 1
        worker.is_reading = worker.is_suspect = False
        worker.idle_readings = worker.unanswered = worker.breaks = 0
        worker.foreign = worker.surplus = 0
        if before is WorkerState.ACTIVE:
            self.active.pop(worker.worker_id, None)
        self._outbox.tell(
            events.WorkerChanged(
                self._outbox.pool, worker.worker_id, str(before), str(after), reason, now - worker.since
            )
        )
        worker.since = now
        self.note_room(worker)
        self._meter.share(worker, now)

    # Readings

    def look_at(self, worker: Worker, at: float) -> None:
        """Have a worker looked at, at a time and at no other."""
        self.agenda.set(worker.worker_id, at)

    def rest(self, worker: Worker, now: float) -> None:
        """Have a sleeping worker looked at now and then: it may die, or be woken by others."""
        self.look_at(worker, now + _ASLEEP_READINGS * self._config.monitoring_interval)

    def read(self, worker: Worker) -> None:
        """Have a worker read, unless that is under way."""
        if not worker.is_reading:
            worker.is_reading = True
            self._outbox.want(Read(worker.worker_id, worker.epoch))

    def learn(self, worker: Worker, load: EngineLoad, now: float) -> None:
        """Take over what a reading said."""
        worker.load = load
        surplus = max(0, load.running + load.waiting - len(worker.requests))
        # One reading may count a request that has just ended here; what two count is somebody else's.
        worker.foreign = min(surplus, worker.surplus) if self._has_others else 0
        worker.surplus = surplus
        worker.read_at = now
        worker.is_reading = worker.is_suspect = False
        worker.unanswered = 0
        if load.slots:
            most = self._config.requests_per_worker_capacity
            slots = load.slots if most is None else min(most, load.slots)
            if slots != worker.slots:
                worker.slots = slots
                self._note_slots()
        self.note_room(worker)
        self._meter.share(worker, now)
