"""The writer: the one thread that runs operations on the ledger and commits them in groups, one transaction each.

While a commit waits for the disk, requests pile up; all of them go into the next transaction. So each is durable when
it is answered, and the queue handles many more of them per second than the disk handles flushes.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from headgate.core import Clock
from headgate.core.errors import HeadgateError
from headgate.core.events import Emit, JobDied
from headgate.jobqueue.claims import LATE_RESULTS_KEPT_S
from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.job import Job
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.outcomes import Instant, NoneFree, Reserved, Settled, Stale, Waiting
from headgate.jobqueue.records import Changes, Happening
from headgate.jobqueue.stores.sql import Store

_log = logging.getLogger("headgate.jobqueue")

T = TypeVar("T")

Operation = Callable[[Ledger, Instant], T]

_GROUP: Final = 512
"""Most operations in one transaction: this bounds how long the first of them waits for the others."""

_SLACK_S: Final = 0.001
"""A lease expires when its deadline has passed, not when it is reached."""

_OVERSLEPT_S: Final = 1.0
"""A deadline handled this much too late means that this process stalled and could not receive heartbeats."""

_STOOD_STILL_S: Final = 2.0
"""This much real time between two looks at the clock means the same, even when the stall ended right after a deadline.
Less than a third of the shortest lease: a worker heard before a shorter stall loses nothing by it."""

_LOOK_EVERY_S: Final = 0.5

_BACKLOG_S: Final = 0.25
"""Requests that arrived during a stall are read within this time after it."""

_RELOAD_EVERY_S: Final = 1.0
_REPLIES_KEPT_S: Final = 24 * 3600.0
_SWEPT_EVERY_S: Final = 600.0


@dataclass(slots=True)
class _Request(Generic[T]):
    operation: Operation[T]
    future: Future[Any]
    outcome: Any = None
    error: HeadgateError | None = None

    def __post_init__(self) -> None:
        self.future.set_running_or_notify_cancel()  # cannot be cancelled: only the writer sets its outcome


@dataclass(frozen=True, slots=True)
class _Waiter:
    """A waiter; its future gets the outcome that `Ledger.settle` returns for its ticket."""

    ticket: int
    future: Future[tuple[Job, ...] | Reserved | NoneFree | Stale]


class _Stop:
    pass


@dataclass(slots=True)
class WriterFigures:
    """What the writer has done since it opened."""

    operations: int = 0
    commits: int = 0
    reloads: int = 0
    expired: int = 0


class Stopwatch:
    """Detects stalls of this process for the writer, which owns it, while leases are running."""

    def __init__(self) -> None:
        self.received_at: float | None = None  # last `hearing`, in real time
        self._looked_at = time.monotonic()

    def is_cut_off(self) -> bool:
        """Return whether no request could be received for so long that leases may have expired because of it."""
        return self.received_at is not None and time.monotonic() - self.received_at > _STOOD_STILL_S

    def wait_s(self, deadline: float | None, now: float) -> float | None:
        """Return how long to wait for requests before the next look; None means forever."""
        return None if deadline is None else min(max(deadline + _SLACK_S - now, 0.0), _LOOK_EVERY_S)

    def has_stalled(self, deadline: float | None, now: float) -> bool:
        """Return whether a stall kept the lease with the first `deadline` from being renewed; notes when it looked."""
        # Real time, whatever the writer's clock says: this is about the process.
        looked_at, self._looked_at = self._looked_at, time.monotonic()
        if deadline is None or now + _BACKLOG_S < deadline:
            return False
        if self._looked_at - looked_at > _STOOD_STILL_S or now > deadline + _OVERSLEPT_S or self.is_cut_off():
            _log.warning("This server stalled while a lease expired: every lease gets a full new period")
            return True
        return False


class LedgerWriter:
    """Runs operations on a ledger, durably; every method may be called from any thread or loop.

    Owns the store from `open` to `close`. An operation that raises an error of Headgate has changed nothing; after any
    other exception, and after a failed commit, the ledger is rebuilt from the store, so that no answer rests on
    unwritten state.
    """

    def __init__(self, store: Store, clock: Clock, owner: str, emit: Emit | None = None) -> None:
        """Prepare it; `emit` gets an event for each job that died, from the writer's thread."""
        self._emit = emit
        self.figures = WriterFigures()
        self.failed_at = float("-inf")  # when the store last failed, by the clock; -inf once a commit succeeds
        self._store = store
        self._clock = clock
        self._owner = owner
        self._inbox: queue.SimpleQueue[_Request[Any] | _Stop] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="headgate-writer", daemon=True)
        self._ledger: Ledger | None = None
        self._line: dict[int, _Waiter] = {}
        self._reloaded_at = float("-inf")
        self._swept_at = float("-inf")
        self._stopwatch = Stopwatch()
        self._is_open = False
        self._submitting = threading.Lock()  # nothing is submitted after the stop that `close` waits for

    def open(self) -> None:
        """Take ownership of the store, load the ledger and start the thread.

        Raises:
            StoreInUseError: another process serves this queue.
            StoreFailedError: the store cannot be read.
        """
        self._store.own(self._owner)
        self._ledger = Ledger(self._store, self._now())
        self._is_open = True
        self._thread.start()

    def close(self) -> None:
        """Finish what has arrived, fail the waiters, and release the store; may be called twice."""
        with self._submitting:
            was_open, self._is_open = self._is_open, False
            if was_open:
                self._inbox.put(_Stop())
        if was_open:
            self._thread.join()
        self._store.close()

    @property
    def depth(self) -> int:
        """Operations that have arrived and not started."""
        return self._inbox.qsize()

    def submit(self, operation: Operation[T]) -> Future[T]:
        """Submit an operation; the future gets its outcome, or the error that it raised, once that is committed."""
        request: _Request[T] = _Request(operation, Future())
        with self._submitting:
            if self._is_open:
                self._inbox.put(request)
                return request.future
        request.future.set_exception(_closing())
        return request.future

    def hearing(self) -> None:
        """Note that requests can be received now; the event loop that reads them must call this every half second.

        Leases that expired between calls too far apart are extended: their heartbeats could not be received.
        """
        if self._stopwatch.is_cut_off():
            self.submit(lambda ledger, at: ledger.extend_all(at))
        self._stopwatch.received_at = time.monotonic()

    async def do(self, operation: Operation[T]) -> T:
        """Run an operation and return its outcome once it is committed; cancelling the caller does not undo it."""
        return await asyncio.shield(asyncio.wrap_future(self.submit(operation)))

    async def wait_for(
        self, operation: Operation[T | Waiting], wait_s: float
    ) -> T | tuple[Job, ...] | Reserved | NoneFree | Stale | None:
        """Run an operation that may have to wait, and wait for its turn.

        Args:
            operation: answers something, or `Waiting`.
            wait_s: longest wait in seconds.

        Returns:
            its immediate answer or what it waited for; None when its turn did not come in time. A cancelled caller
            leaves the line; jobs or a server that it was given just then are given back.
        """
        asked = self.submit(operation)
        try:
            return await self._turn(asked, wait_s)  # type: ignore[no-any-return]  # `Waiting` is never returned
        except asyncio.CancelledError:
            asked.add_done_callback(self._abandon)
            raise

    async def _turn(self, asked: Future[Any], wait_s: float) -> Any:
        first = await asyncio.shield(asyncio.wrap_future(asked))
        if not isinstance(first, _Waiter):
            return first
        try:
            async with asyncio.timeout(wait_s):
                return await asyncio.shield(asyncio.wrap_future(first.future))
        except TimeoutError:
            has_left = await self.do(lambda ledger, _: self._left(ledger, first))
            return None if has_left else await asyncio.shield(asyncio.wrap_future(first.future))

    def _now(self) -> Instant:
        return Instant(self._clock.monotonic(), self._clock.wall())

    # The thread.

    def _run(self) -> None:
        stop = False
        while not stop:
            group, stop = self._gather()
            if self._ledger is None and not self._is_reloaded():
                _refuse(group, StoreFailedError("the job queue's database cannot be used at the moment"))
                continue
            try:
                self._work(group)
            except Exception as error:  # noqa: BLE001 - the boundary of the thread: reported, the ledger is rebuilt
                self._recover(group, error)
        self._dismiss(_closing())

    def _gather(self) -> tuple[list[_Request[Any]], bool]:
        """Return what has arrived, after waiting for it or for the next deadline; and whether to stop after it."""
        group: list[_Request[Any]] = []
        deadline = self._ledger.next_deadline() if self._ledger is not None else None
        try:
            one = self._inbox.get(timeout=self._stopwatch.wait_s(deadline, self._clock.monotonic()))
            while not isinstance(one, _Stop):
                group.append(one)
                if len(group) >= _GROUP:
                    return group, False
                one = self._inbox.get_nowait()
        except queue.Empty:
            return group, False
        return group, True

    def _work(self, group: list[_Request[Any]]) -> None:
        ledger = self._ledger
        assert ledger is not None
        at = self._now()
        if self._stopwatch.has_stalled(ledger.next_deadline(), at.now):
            ledger.extend_all(at)
        for request in group:
            try:
                request.outcome = self._waiter_of(request.operation(ledger, at))
            except StoreFailedError:
                raise
            except HeadgateError as error:
                request.error = error
        # Renewals that had arrived count, so expiry comes after them.
        expired = ledger.expire(at)
        settled = ledger.settle(at)
        if at.now - self._swept_at > _SWEPT_EVERY_S:
            self._swept_at = at.now
            wall = at.wall
            ledger.forget(replies_before=wall - _REPLIES_KEPT_S, late_results_before=wall - LATE_RESULTS_KEPT_S)
        died: list[JobDied] = []
        if ledger.changes:
            self._store.commit(ledger.changes)
            self.failed_at = float("-inf")
            died = _died(ledger.changes) if self._emit else died
            ledger.committed()
            self.figures.commits += 1
        self.figures.operations += len(group)
        self.figures.expired += len(expired)
        self._answer(group, settled)
        if self._emit is not None:
            for event in died:
                self._emit(event)
        for job in expired:
            _log.warning("Job %s reclaimed after heartbeat timeout (worker=%s)", job.job_id, job.worker)

    def _waiter_of(self, outcome: Any) -> Any:
        if not isinstance(outcome, Waiting):
            return outcome
        waiter = self._line[outcome.ticket] = _Waiter(outcome.ticket, Future())
        waiter.future.set_running_or_notify_cancel()
        return waiter

    def _answer(self, group: list[_Request[Any]], settled: list[Settled]) -> None:
        for request in group:
            if request.error is not None:
                request.future.set_exception(request.error)
            else:
                request.future.set_result(request.outcome)
        for ticket, outcome in ((one.ticket, one.outcome) for one in settled):
            self._line.pop(ticket).future.set_result(outcome)

    def _left(self, ledger: Ledger, waiter: _Waiter) -> bool:
        """Take a waiter out of line; False when its turn has come, or when it was dismissed."""
        if self._line.get(waiter.ticket) is not waiter:
            return False  # a rebuilt ledger has given its ticket to another waiter
        has_left = ledger.leave(waiter.ticket)
        if has_left:
            self._line.pop(waiter.ticket, None)
        return has_left

    def _abandon(self, answered: Future[Any]) -> None:
        """Take a waiter whose caller is gone out of line, or give back what it was given."""
        if answered.exception() is not None:
            return
        outcome = answered.result()
        if isinstance(outcome, _Waiter):
            self.submit(lambda ledger, _: self._left(ledger, outcome))
            outcome.future.add_done_callback(self._abandon)
        elif isinstance(outcome, Reserved):
            self.submit(lambda ledger, at: ledger.servers.take_back(outcome.resource, at))
        elif isinstance(outcome, tuple):
            self.submit(lambda ledger, at: _give_back(ledger, outcome, at))

    # After a failure.

    def _recover(self, group: list[_Request[Any]], error: Exception) -> None:
        if isinstance(error, StoreFailedError):
            _log.error("The job queue's database failed: %s", error)
            self.failed_at = self._clock.monotonic()
        else:
            _log.exception("The ledger failed at an operation; it is rebuilt from its database")
        self._ledger = None
        self._reloaded_at = float("-inf")
        _refuse(group, _unanswered(error))
        self._dismiss(_unanswered(error))
        self._is_reloaded()

    def _dismiss(self, error: HeadgateError) -> None:
        for waiter in self._line.values():
            waiter.future.set_exception(error)
        self._line.clear()

    def _is_reloaded(self) -> bool:
        """Rebuild the ledger, at most once a second; return whether it succeeded."""
        now = self._clock.monotonic()
        if now - self._reloaded_at < _RELOAD_EVERY_S:
            return False
        self._reloaded_at = now
        try:
            self._store.close()
            self._store.own(self._owner)
            self._ledger = Ledger(self._store, self._now())
        except HeadgateError as error:
            _log.error("The job queue's database cannot be opened again: %s", error)
            return False
        except Exception:  # noqa: BLE001 - the boundary of the thread, which must go on: reported
            _log.exception("The job queue cannot be loaded again from its database")
            return False
        self.figures.reloads += 1
        return True


def _refuse(group: list[_Request[Any]], error: HeadgateError) -> None:
    for request in group:
        if not request.future.done():
            request.future.set_exception(error)


def _give_back(ledger: Ledger, outcome: tuple[Any, ...], at: Instant) -> None:
    for job in outcome:
        if isinstance(job, Job):
            ledger.claims.take_back(job, at, "the worker had hung up")


def _died(changes: Changes) -> list[JobDied]:
    ids = [entry.job_id for entry in changes.history if entry.what is Happening.DIED]
    jobs = [changes.changed_jobs.get(job_id) or changes.new_jobs[job_id] for job_id in ids]
    return [JobDied(job.job_id, job.spec.team, job.spec.task, job.failures, job.last_error) for job in jobs]


def _closing() -> HeadgateError:
    return StoreFailedError("the job queue is closing", next_step="Send the request again later.")


def _unanswered(error: Exception) -> HeadgateError:
    if isinstance(error, StoreFailedError):
        return error
    return StoreFailedError(f"the ledger failed ({type(error).__name__}) and was rebuilt", next_step="Send it again.")
