"""The workers and their states; every change of state goes through here."""

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
"""How many times less often a sleeping engine is read than one that is awake."""

_HOLD_STARTS: Final = 3
"""A woken worker stays awake for at least this many start times: less would not pay for the start."""

_LONGEST_RETRIES: Final = 20

MANY_FAILURES: Final = 5
"""From this many failures in a row on, each is followed by the longest pause."""


class Fleet:
    """All workers of a pool. Owned by one pool.

    Attributes:
        workers: worker id -> worker, in the order in which they were given.
        active: those that take requests, in that order.
        open: active workers with room; kept up to date so that a request need not scan hundreds of full workers.
        agenda: when each worker is to be checked.
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
        """Add a worker that is awake or asleep."""
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
            UnknownWorkerError: there is no worker of that name.
        """
        if (found := self.workers.get(worker_id)) is None:
            raise UnknownWorkerError(f"The pool {self._outbox.pool} has no worker {worker_id!r}")
        return found

    def current(self, worker_id: str, epoch: int) -> Worker | None:
        """Return the worker that a report is about; None if the report is about an earlier epoch."""
        found = self.workers.get(worker_id)
        return found if found is not None and found.epoch == epoch else None

    def why_full(self) -> str:
        """Return why no worker takes a request; if none is awake, with the last failure."""
        if self.active:
            return "no worker had room"
        failed = max(self.in_state(WorkerState.FAILED), key=lambda worker: worker.since, default=None)
        return "no worker is awake" + (f": {failed.worker_id} has failed: {failed.last_error}" if failed else "")

    def in_state(self, *states: WorkerState) -> Iterator[Worker]:
        """Yield the workers in one of these states."""
        return (worker for worker in self.workers.values() if worker.state in states)

    def note_room(self, worker: Worker) -> None:
        """Update whether a worker has room; called after anything that could change that."""
        if worker.has_room:
            self.open[worker.worker_id] = worker
        else:
            self.open.pop(worker.worker_id, None)

    def _note_slots(self) -> None:
        slots = [worker.slots for worker in self.workers.values()]
        self.slots = sum(slots) / len(slots) if slots else 1.0

    # Changes of state

    def activate(self, worker: Worker, reason: str, now: float) -> None:
        """Let a worker take requests: it has started, or is needed after all."""
        if worker.state is WorkerState.STARTING and self._config.min_stable_period:
            hold_s = max(self._config.min_stable_period, _HOLD_STARTS * self._meter.start_s)
            worker.held_until = now + hold_s
        self._move(worker, WorkerState.ACTIVE, reason, now)
        worker.stage = None
        worker.read_at = now
        self.active = {each.worker_id: each for each in self.in_state(WorkerState.ACTIVE)}
        self.look_at(worker, now + self._config.monitoring_interval)

    def drain(self, worker: Worker, reason: str, now: float) -> None:
        """Stop giving a worker new requests, and begin its drain."""
        self._move(worker, WorkerState.DRAINING, reason, now)
        worker.stage = DrainStage.EMPTYING
        worker.drain_by = now + self._config.drain_timeout
        self.look_at(worker, min(worker.drain_by, now + self._config.monitoring_interval))

    def sleep(self, worker: Worker, now: float) -> None:
        """Put an idle worker to sleep."""
        worker.stage = DrainStage.SLEEPING
        worker.epoch += 1  # makes a pending reading stale
        worker.is_reading = False
        worker.drain_by = now + self._config.start_timeout
        self._outbox.want(Sleep(worker.worker_id, worker.epoch))
        self.look_at(worker, worker.drain_by)

    def asleep(self, worker: Worker, reason: str, now: float) -> None:
        """Record that a worker is asleep."""
        self._move(worker, WorkerState.INACTIVE, reason, now)
        worker.stage = None
        worker.is_leased = worker.is_lease_lost = False
        worker.load = None
        self.rest(worker, now)

    def wake(self, worker: Worker, reason: str, now: float) -> None:
        """Start a sleeping worker."""
        self._move(worker, WorkerState.STARTING, reason, now)
        worker.is_lease_lost = False
        self._outbox.want(Wake(worker.worker_id, worker.epoch))
        self.look_at(worker, math.inf)

    def leased(self, worker: Worker, now: float) -> None:
        """Record that a starting worker has its lease: its start time counts from here."""
        worker.is_leased = True
        worker.since = now
        self.look_at(worker, now + self._config.start_timeout)

    def forgo(self, worker: Worker, reason: str, now: float) -> None:
        """Cancel the start of a worker that still waits for its lease."""
        self._move(worker, WorkerState.INACTIVE, reason, now)
        self._outbox.want(LetGo(worker.worker_id, worker.epoch))
        self.rest(worker, now)

    def fail(self, worker: Worker, why: str, now: float) -> None:
        """Mark a worker as failed until it answers again. Its requests must have been taken from it before."""
        worker.last_error = why
        self._move(worker, WorkerState.FAILED, why, now)
        worker.stage = None
        worker.is_leased = worker.is_lease_lost = False
        worker.load = None
        self._outbox.want(LetGo(worker.worker_id, worker.epoch))
        self.try_later(worker, now)

    def try_later(self, worker: Worker, now: float) -> None:
        """Schedule the next try of a failed worker, after a pause that grows each time."""
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
        """Schedule the next check of a worker, replacing any earlier schedule."""
        self.agenda.set(worker.worker_id, at)

    def rest(self, worker: Worker, now: float) -> None:
        """Schedule an occasional check of a sleeping worker: it may die, or be woken by others."""
        self.look_at(worker, now + _ASLEEP_READINGS * self._config.monitoring_interval)

    def read(self, worker: Worker) -> None:
        """Request a reading of a worker, unless one is pending."""
        if not worker.is_reading:
            worker.is_reading = True
            self._outbox.want(Read(worker.worker_id, worker.epoch))

    def learn(self, worker: Worker, load: EngineLoad, now: float) -> None:
        """Apply a reading."""
        worker.load = load
        surplus = max(0, load.running + load.waiting - len(worker.requests))
        # One reading may still count a request that has just ended here; a surplus in two readings is foreign.
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
