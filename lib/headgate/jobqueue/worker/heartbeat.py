"""The heartbeat of a worker: renews all of its leases in one request, and stops work whose lease is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from headgate.core import Clock
from headgate.core.errors import HeadgateError
from headgate.core.tasks import first_ended
from headgate.jobqueue.wire import RenewalOut
from headgate.jobqueue.worker.client import JobQueueClient
from headgate.jobqueue.worker.held_job import Failed, HeldJob, Stopped
from headgate.jobqueue.worker.leases import JobLease, Leases
from headgate.jobqueue.worker.requests import RetryPolicy

_log = logging.getLogger("headgate.jobqueue.worker")

_ONCE: Final = RetryPolicy(patience_s=0)
"""The heartbeat is its own retry: after a failed renewal it asks again with the leases held by then."""

_LONGEST_RENEWAL_S: Final = 15.0


class Heartbeat:
    """Runs for as long as its worker lives and decides by `Leases`. Its `jobs` are keyed by lease id."""

    def __init__(self, client: JobQueueClient, clock: Clock, jobs: Mapping[str, HeldJob]) -> None:
        self.leases = Leases()
        self._client = client
        self._clock = clock
        self._jobs = jobs
        self._changed = (asyncio.Event(), asyncio.Event())

    def wake(self) -> None:
        """Look at the leases again: one was added, removed or changed."""
        for event in self._changed:
            event.set()

    def drop(self, lease: JobLease) -> None:
        """Stop renewing a lease; may be called twice."""
        self.leases.drop(lease)
        self.wake()

    async def renew_for_ever(self) -> None:
        """Renew leases when due, until cancelled."""
        while True:
            due = self.leases.due(self._clock.monotonic())
            if due:
                await self._renew(due)
            await self._until(self.leases.next_renewal(), self._changed[0])

    async def watch_for_ever(self) -> None:
        """Stop work whose lease could not be renewed, and work that makes no progress, until cancelled."""
        while True:
            now = self._clock.monotonic()
            for lease in self.leases.fenced(now):
                reason = f"it could not be renewed for {now - lease.confirmed_at:.0f} s"
                # The job may soon be another worker's; if it is not, it is given back.
                self._job(lease).stop(f"the lease is lost: {reason}", Stopped(reason))
            for lease in self.leases.stalled(now):
                error = f"the work stalled: no progress for {lease.stall_after_s:g} s"
                self._job(lease).stop(error, Failed(error))
            await self._until(self.leases.next_deadline(), self._changed[1])

    def _job(self, lease: JobLease) -> HeldJob:
        return self._jobs[lease.ref.lease_id]

    async def _renew(self, leases: list[JobLease]) -> None:
        """Renew leases now, and act on the server's answer for each."""
        sent_at = self._clock.monotonic()
        used = [self._job(lease).reservation_key for lease in leases]
        renewals: list[RenewalOut] = []
        try:
            refs = [lease.ref for lease in leases]
            renewals = (await self._client.renew(refs, _ONCE, longest_s=_LONGEST_RENEWAL_S)).renewals
        except HeadgateError as error:
            _log.warning("Leases could not be renewed (jobs: %d): %s", len(leases), error.message)
        # A lease not confirmed below is renewed again after a while, not at once.
        self.leases.unconfirmed(leases, self._clock.monotonic())
        for lease, server, renewal in zip(leases, used, renewals, strict=False):
            if lease not in self.leases:
                continue  # it ended meanwhile
            job = self._job(lease)
            if renewal.status == "renewed":
                self.leases.confirmed(lease, sent_at)
                told = renewal.reservation
                still = None if told is None else (told.lease_id, told.epoch)
                # If its policy server was reserved or released meanwhile, the answer says nothing about it.
                if server is not None and job.reservation_key == server != still:
                    reason = "its policy server was taken away"
                    job.stop(reason, Stopped(reason), renew_on=True)
            elif not lease.is_ending:
                job.stop(f"the lease is lost: {renewal.reason or f'the server answers {renewal.status!r}'}")

    async def _until(self, at: float | None, changed: asyncio.Event) -> None:
        """Wait until `at` (None: forever), or until the leases change."""
        changed.clear()
        until = [] if at is None else [self._clock.sleep(max(0.0, at - self._clock.monotonic()))]
        async with first_ended(changed.wait(), *until):
            return
