"""The heartbeat of a worker: renews everything that it holds in one request, and stops what it holds no more.

Its leases are what it believes of them: when to renew them, and when to believe in them no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.core import Clock
from headgate.core.errors import HeadgateError
from headgate.jobqueue.wire import JobLeaseIn, RenewalOut, ReservationOut
from headgate.jobqueue.worker.client import JobQueueClient
from headgate.jobqueue.worker.requests import RetryPolicy

if TYPE_CHECKING:
    from headgate.jobqueue.worker.held_job import HeldJob

_log = logging.getLogger("headgate.jobqueue.worker")

_ONCE: Final = RetryPolicy(patience_s=0)
"""The heartbeat is its own retry: a renewal that failed is asked for again with what is held by then."""

_LONGEST_RENEWAL_S: Final = 15.0


FENCE_MARGIN_S: Final = 5.0
"""A lease that could not be renewed counts as lost so long before the server's deadline: the work has stopped when the
job goes to somebody else."""

RENEWALS_IN_A_LEASE: Final = 3
_RETRY_SHARE: Final = 30
"""A renewal that failed is tried again after this fraction of the lease: every 3 s with the default of 90 s."""


@dataclass(slots=True)
class Tenure:
    """One lease.

    Attributes:
        ref: as the server knows it.
        lease_s: its period.
        confirmed_at: when the renewal was sent, or the claim answered, that the server confirmed last; it ends
            `lease_s` after that at the earliest.
        renew_at: when to renew it.
        moved_at: when the work went on last.
        stall_after_s: seconds without going on after which it is stalled, or None.
        stop_s: seconds that stopping the work may take.
        is_ending: whether its holder is telling the server how it ends; then only the answer to that counts.
    """

    ref: JobLeaseIn
    lease_s: float
    confirmed_at: float
    renew_at: float
    moved_at: float
    stall_after_s: float | None = None
    stop_s: float = 0.0
    is_ending: bool = False

    @property
    def fenced_at(self) -> float:
        """When it counts as lost unless it is renewed."""
        return self.confirmed_at + self.lease_s - min(FENCE_MARGIN_S + self.stop_s, self.lease_s / 2)

    @property
    def stalled_at(self) -> float:
        """When its work counts as stalled unless it goes on."""
        return float("inf") if self.stall_after_s is None else self.moved_at + self.stall_after_s


class Leases:
    """The leases of one worker, which owns it. Pure: the time comes in.

    Invariant: every lease is renewed before it is fenced, `confirmed_at <= renew_at`.
    """

    def __init__(self) -> None:
        self._held: dict[str, Tenure] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(
        self,
        ref: JobLeaseIn,
        lease_s: float,
        *,
        asked_at: float,
        now: float,
        stall_after_s: float | None = None,
        stop_s: float = 0.0,
    ) -> Tenure:
        """Note a claim.

        Args:
            ref: the lease.
            lease_s: its period.
            asked_at: when the claim was first sent. The server may have granted it at any time since, and the answer
                may have been lost on its first way: a claim that took long is renewed at once.
            now: when it was answered.
            stall_after_s: as of `Tenure`.
            stop_s: as of `Tenure`.
        """
        renew_at = max(now, asked_at + lease_s / RENEWALS_IN_A_LEASE)
        tenure = self._held[ref.lease_id] = Tenure(ref, lease_s, now, renew_at, now, stall_after_s, stop_s)
        return tenure

    def drop(self, lease_id: str) -> None:
        """Forget a lease; legal twice."""
        self._held.pop(lease_id, None)

    def get(self, lease_id: str) -> Tenure | None:
        """Return what is known of a lease."""
        return self._held.get(lease_id)

    def due(self, now: float) -> list[JobLeaseIn]:
        """Return the leases to renew in one request: all of them as soon as one is due, none otherwise."""
        if any(tenure.renew_at <= now for tenure in self._held.values()):
            return [tenure.ref for tenure in self._held.values()]
        return []

    def confirmed(self, lease_id: str, sent_at: float) -> None:
        """Note that a renewal sent then was granted."""
        tenure = self._held.get(lease_id)
        if tenure is not None:
            tenure.confirmed_at = max(tenure.confirmed_at, sent_at)
            tenure.renew_at = sent_at + tenure.lease_s / RENEWALS_IN_A_LEASE

    def unconfirmed(self, refs: Iterable[JobLeaseIn], now: float) -> None:
        """Note that a renewal was not answered."""
        for ref in refs:
            tenure = self._held.get(ref.lease_id)
            if tenure is not None:
                tenure.renew_at = now + tenure.lease_s / _RETRY_SHARE

    def fenced(self, now: float) -> list[Tenure]:
        """Return the leases that count as lost by now; not those whose end the server is being told."""
        return [tenure for tenure in self._held.values() if tenure.fenced_at <= now and not tenure.is_ending]

    def stalled(self, now: float) -> list[Tenure]:
        """Return the leases whose work does not go on."""
        return [tenure for tenure in self._held.values() if tenure.stalled_at <= now and not tenure.is_ending]

    def next_renewal(self) -> float | None:
        """Return when to renew next."""
        return min((tenure.renew_at for tenure in self._held.values()), default=None)

    def next_deadline(self) -> float | None:
        """Return when the next lease is fenced or its work stalled."""
        ends = (min(t.fenced_at, t.stalled_at) for t in self._held.values() if not t.is_ending)
        return min(ends, default=None)

    def validate(self) -> None:
        """Assert the invariants."""
        for tenure in self._held.values():
            assert tenure.confirmed_at <= tenure.renew_at, tenure
            assert tenure.lease_s >= 2 * FENCE_MARGIN_S, tenure


class Heartbeat:
    """Beats for as long as its worker lives; see `Leases` for what it decides by.

    Args:
        client: asks the server.
        clock: gives the time.
        jobs: lease id -> job, kept by the worker.
    """

    def __init__(self, client: JobQueueClient, clock: Clock, jobs: Mapping[str, HeldJob]) -> None:
        self.leases = Leases()
        self._client = client
        self._clock = clock
        self._jobs = jobs
        self._changed = (asyncio.Event(), asyncio.Event())

    def wake(self) -> None:
        """Look at the leases again: one has come, gone or changed."""
        for event in self._changed:
            event.set()

    async def renew_for_ever(self) -> None:
        """Renew what is due, until cancelled."""
        while True:
            refs = self.leases.due(self._clock.monotonic())
            if refs:
                await self.renew(refs)
            await self._until(self.leases.next_renewal(), self._changed[0])

    async def watch_for_ever(self) -> None:
        """Stop the work on leases that could not be renewed, and work that does not go on, until cancelled."""
        while True:
            now = self._clock.monotonic()
            for tenure in self.leases.fenced(now):
                self.leases.drop(tenure.ref.lease_id)
                silence_s = now - tenure.confirmed_at
                self._jobs[tenure.ref.lease_id].fence(f"it could not be renewed for {silence_s:.0f} s")
            for tenure in self.leases.stalled(now):
                self.leases.drop(tenure.ref.lease_id)
                self._jobs[tenure.ref.lease_id].stall(tenure.stall_after_s or 0.0)
            await self._until(self.leases.next_deadline(), self._changed[1])

    async def renew(self, refs: list[JobLeaseIn]) -> None:
        """Renew leases now, and act on what the server says of each."""
        sent_at = self._clock.monotonic()
        used = {ref.lease_id: self._jobs[ref.lease_id].reservation_key for ref in refs}
        try:
            answer = await self._client.renew(refs, _ONCE, longest_s=_LONGEST_RENEWAL_S)
        except HeadgateError as error:
            _log.warning("The leases of %d jobs could not be renewed: %s", len(refs), error.message)
            self.leases.unconfirmed(refs, self._clock.monotonic())
            return
        # What is not granted below is asked for again after a while, not at once.
        self.leases.unconfirmed(refs, self._clock.monotonic())
        for ref, renewal in zip(refs, answer.renewals, strict=False):
            tenure = self.leases.get(ref.lease_id)
            if tenure is None:
                continue  # it ended meanwhile
            if renewal.status == "renewed":
                self.leases.confirmed(ref.lease_id, sent_at)
                self._check_server(self._jobs[ref.lease_id], used[ref.lease_id], renewal)
            elif not tenure.is_ending:
                self.leases.drop(ref.lease_id)
                self._jobs[ref.lease_id].lose(renewal.reason or f"the server answers {renewal.status!r}")

    def _check_server(self, job: HeldJob, used: tuple[str, int] | None, renewal: RenewalOut) -> None:
        """Stop a job whose policy server was taken away; one that came or went meanwhile says nothing."""
        if used is not None and job.reservation_key == used and _key(renewal.reservation) != used:
            job.lose_server("its policy server was taken away")

    async def _until(self, at: float | None, changed: asyncio.Event) -> None:
        """Return at a time, or as soon as the leases change."""
        changed.clear()
        waiting: list[asyncio.Task[object]] = [asyncio.create_task(changed.wait())]
        if at is not None:
            waiting.append(asyncio.create_task(self._clock.sleep(max(0.0, at - self._clock.monotonic()))))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()


def _key(reservation: ReservationOut | None) -> tuple[str, int] | None:
    return None if reservation is None else (reservation.lease_id, reservation.epoch)


class JobLease:
    """One claim's lease. Owned by its `HeldJob`.

    Invariant: once lost or over it stays so; the work is interrupted once at most.

    Attributes:
        ref: as the server knows it.
        lost: set when the work must stop.
        loss: why, in a sentence.
        is_over: whether the server has been told how the job ends.
        interrupt: stops the work; None while there is nothing to stop.
        was_interrupted: whether that was called.
    """

    def __init__(self, tenure: Tenure, heartbeat: Heartbeat, clock: Clock) -> None:
        self.ref = tenure.ref
        self.lost = asyncio.Event()
        self.loss = ""
        self.is_over = False
        self.interrupt: Callable[[], object] | None = None
        self.was_interrupted = False
        self._tenure = tenure
        self._heartbeat = heartbeat
        self._clock = clock

    @property
    def fields(self) -> dict[str, Any]:
        """What names it in a request whose path names the job."""
        return {"lease_id": self.ref.lease_id, "epoch": self.ref.epoch}

    @property
    def is_lost(self) -> bool:
        """True when the work must stop."""
        return self.lost.is_set()

    @property
    def left_s(self) -> float:
        """Seconds for which it certainly runs; 0 when it is lost or over."""
        is_certain = not (self.is_lost or self.is_over)
        return max(0.0, self._tenure.fenced_at - self._clock.monotonic()) if is_certain else 0.0

    def moved(self) -> None:
        """Note that the work goes on; legal in every thread."""
        self._tenure.moved_at = self._clock.monotonic()

    def set_ending(self, is_ending: bool) -> None:
        """While the server is told of the end, its answer counts, and no renewal that crosses it on the way."""
        self._tenure.is_ending = is_ending
        self._heartbeat.wake()

    def stop(self, reason: str, *, renew_on: bool = False) -> bool:
        """Stop the work; return False when it was stopped before or is over.

        Args:
            reason: why, in a sentence.
            renew_on: keep the lease until the work has stopped.
        """
        if self.is_lost or self.is_over:
            return False
        self.note_loss(reason, renew_on=renew_on)
        self.interrupt_now()
        return True

    def note_loss(self, reason: str, *, renew_on: bool = False) -> None:
        """Note that the work must stop, where it is the work itself that has found out."""
        if self.is_lost:
            return
        self.loss = reason
        self.lost.set()
        if not renew_on:
            self._heartbeat.leases.drop(self.ref.lease_id)
        _log.warning("Job %s (epoch %d) must stop: %s", self.ref.job_id, self.ref.epoch, reason)

    def interrupt_now(self) -> None:
        """Interrupt the work, if there is any."""
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            self.was_interrupted = True
            interrupt()

    def drop(self) -> None:
        """Renew it no more."""
        self._heartbeat.leases.drop(self.ref.lease_id)
        self._heartbeat.wake()
