"""The heartbeat of a worker: renews everything that it holds in one request, and stops what it holds no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, Protocol

from headgate.core import Clock
from headgate.core.errors import HeadgateError
from headgate.jobqueue.wire import JobLeaseIn, RenewalOut, ReservationOut
from headgate.jobqueue.worker.client import JobQueueClient
from headgate.jobqueue.worker.leases import Leases
from headgate.jobqueue.worker.retrying import RetryPolicy

_log = logging.getLogger("headgate.jobqueue.worker")

_ONCE: Final = RetryPolicy(patience_s=0)
"""The heart is its own retry: a renewal that failed is asked for again with what is held by then."""

_LONGEST_RENEWAL_S: Final = 15.0


class Patient(Protocol):
    """A job as its heart sees it."""

    @property
    def reservation_key(self) -> tuple[str, int] | None:
        """The lease and epoch of the policy server that it uses."""
        ...

    def lose(self, reason: str) -> None:
        """Stop the work: the job is somebody else's."""
        ...

    def fence(self, reason: str) -> None:
        """Stop the work: the job may be somebody else's soon."""
        ...

    def lose_server(self, reason: str) -> None:
        """Stop the work: its policy server is somebody else's."""
        ...

    def stall(self, seconds: float) -> None:
        """Stop the work: it did not go on for so long."""
        ...


class Heart:
    """Beats for as long as its worker lives; see `Leases` for what it decides by.

    Args:
        client: asks the server.
        clock: gives the time.
        patients: lease id -> job, kept by the worker.
    """

    def __init__(self, client: JobQueueClient, clock: Clock, patients: Mapping[str, Patient]) -> None:
        self.leases = Leases()
        self._client = client
        self._clock = clock
        self._patients = patients
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
                self._patients[tenure.ref.lease_id].fence(f"it could not be renewed for {silence_s:.0f} s")
            for tenure in self.leases.stalled(now):
                self.leases.drop(tenure.ref.lease_id)
                self._patients[tenure.ref.lease_id].stall(tenure.stall_after_s or 0.0)
            await self._until(self.leases.next_deadline(), self._changed[1])

    async def renew(self, refs: list[JobLeaseIn]) -> None:
        """Renew leases now, and act on what the server says of each."""
        sent_at = self._clock.monotonic()
        used = {ref.lease_id: self._patients[ref.lease_id].reservation_key for ref in refs}
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
                self._check_server(self._patients[ref.lease_id], used[ref.lease_id], renewal)
            elif not tenure.is_ending:
                self.leases.drop(ref.lease_id)
                self._patients[ref.lease_id].lose(renewal.reason or f"the server answers {renewal.status!r}")

    def _check_server(self, patient: Patient, used: tuple[str, int] | None, renewal: RenewalOut) -> None:
        """Stop a job whose policy server was taken away; one that came or went meanwhile says nothing."""
        if used is not None and patient.reservation_key == used and _key(renewal.reservation) != used:
            patient.lose_server("its policy server was taken away")

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
