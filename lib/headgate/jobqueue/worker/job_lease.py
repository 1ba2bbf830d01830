"""The lease on a job, as the work on it sees it: how long it runs, and that it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from headgate.core import Clock
from headgate.jobqueue.wire import ClaimedJob, JobLeaseIn
from headgate.jobqueue.worker.heart import Heart

_log = logging.getLogger("headgate.jobqueue.worker")


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

    def __init__(self, claimed: ClaimedJob, heart: Heart, clock: Clock) -> None:
        self.ref = JobLeaseIn(job_id=claimed.job.id, lease_id=claimed.lease.lease_id, epoch=claimed.lease.epoch)
        self.lost = asyncio.Event()
        self.loss = ""
        self.is_over = False
        self.interrupt: Callable[[], object] | None = None
        self.was_interrupted = False
        self._heart = heart
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
        tenure = None if self.is_lost else self._heart.leases.get(self.ref.lease_id)
        return 0.0 if tenure is None else max(0.0, tenure.fenced_at - self._clock.monotonic())

    def moved(self) -> None:
        """Note that the work goes on."""
        tenure = self._heart.leases.get(self.ref.lease_id)
        if tenure is not None:
            tenure.moved_at = self._clock.monotonic()

    def set_ending(self, is_ending: bool) -> None:
        """While the server is told of the end, its answer counts, and no renewal that crosses it on the way."""
        tenure = self._heart.leases.get(self.ref.lease_id)
        if tenure is not None:
            tenure.is_ending = is_ending
            self._heart.wake()

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
            self._heart.leases.drop(self.ref.lease_id)
        _log.warning("Job %s (epoch %d) must stop: %s", self.ref.job_id, self.ref.epoch, reason)

    def interrupt_now(self) -> None:
        """Interrupt the work, if there is any."""
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            self.was_interrupted = True
            interrupt()

    def drop(self) -> None:
        """Renew it no more."""
        self._heart.leases.drop(self.ref.lease_id)
        self._heart.wake()
