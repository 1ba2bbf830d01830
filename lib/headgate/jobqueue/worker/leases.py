"""The leases of a worker: when each is renewed, and when it counts as lost. Pure: the time comes in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from headgate.jobqueue.wire import JobLeaseIn

FENCE_MARGIN_S: Final = 5.0
"""A lease that could not be renewed counts as lost this long before the server's deadline, so that the work has stopped
when the job is reassigned."""

_RENEWALS_IN_A_LEASE: Final = 3
_RETRY_SHARE: Final = 30
"""A failed renewal is retried after this fraction of the lease: every 3 s with the default of 90 s."""


@dataclass(slots=True, eq=False)
class JobLease:
    """The right to work on a job, as its worker knows it. Once lost or over, it stays so.

    Attributes:
        ref: the server's reference to it.
        lease_s: its period.
        confirmed_at: when the last renewal that the server confirmed was sent, or the claim was answered; the lease
            ends `lease_s` after that at the earliest.
        moved_at: when the work last made progress.
        stall_after_s: seconds without progress after which the work is stalled, or None.
        stop_s: seconds that stopping the work may take.
        is_ending: whether its holder is reporting to the server how it ends; then only the answer to that counts.
        loss: why the work must stop, in a sentence; empty while it may continue.
        is_over: whether the server has been told how the job ends.
    """

    ref: JobLeaseIn
    lease_s: float
    confirmed_at: float
    renew_at: float
    moved_at: float
    stall_after_s: float | None = None
    stop_s: float = 0.0
    is_ending: bool = False
    loss: str = ""
    is_over: bool = False

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that identify it in a request whose path names the job."""
        return {"lease_id": self.ref.lease_id, "epoch": self.ref.epoch}

    @property
    def fenced_at(self) -> float:
        """When it counts as lost unless it is renewed."""
        return self.confirmed_at + self.lease_s - min(FENCE_MARGIN_S + self.stop_s, self.lease_s / 2)

    @property
    def stalled_at(self) -> float:
        """When its work counts as stalled unless it makes progress."""
        return float("inf") if self.stall_after_s is None else self.moved_at + self.stall_after_s


class Leases:
    """The leases that one worker renews. Owned by its heartbeat.

    Invariant: every lease is renewed before it is fenced, `confirmed_at <= renew_at`.
    """

    def __init__(self) -> None:
        self._held: dict[str, JobLease] = {}

    def __contains__(self, lease: JobLease) -> bool:
        return lease.ref.lease_id in self._held

    def add(
        self,
        ref: JobLeaseIn,
        lease_s: float,
        *,
        asked_at: float,
        now: float,
        stall_after_s: float | None = None,
        stop_s: float = 0.0,
    ) -> JobLease:
        """Record a claim that was first sent at `asked_at` and answered `now`.

        The server may have granted it at any time since `asked_at`, and the first answer may have been lost: a claim
        that took long is renewed at once.
        """
        renew_at = max(now, asked_at + lease_s / _RENEWALS_IN_A_LEASE)
        lease = self._held[ref.lease_id] = JobLease(ref, lease_s, now, renew_at, now, stall_after_s, stop_s)
        return lease

    def drop(self, lease: JobLease) -> None:
        """Forget a lease; may be called twice."""
        self._held.pop(lease.ref.lease_id, None)

    def due(self, now: float) -> list[JobLease]:
        """Return the leases to renew in one request: all of them as soon as one is due, none otherwise."""
        is_one_due = any(lease.renew_at <= now for lease in self._held.values())
        return list(self._held.values()) if is_one_due else []

    def confirmed(self, lease: JobLease, sent_at: float) -> None:
        """Record that a renewal sent at `sent_at` was granted."""
        lease.confirmed_at = max(lease.confirmed_at, sent_at)
        lease.renew_at = sent_at + lease.lease_s / _RENEWALS_IN_A_LEASE

    def unconfirmed(self, leases: Iterable[JobLease], now: float) -> None:
        """Record that a renewal was not confirmed."""
        for lease in leases:
            lease.renew_at = now + lease.lease_s / _RETRY_SHARE

    def fenced(self, now: float) -> list[JobLease]:
        """Return the leases that count as lost at `now`, except those whose end is being reported to the server."""
        return [lease for lease in self._held.values() if lease.fenced_at <= now and not lease.is_ending]

    def stalled(self, now: float) -> list[JobLease]:
        """Return the leases whose work makes no progress."""
        return [lease for lease in self._held.values() if lease.stalled_at <= now and not lease.is_ending]

    def next_renewal(self) -> float | None:
        """Return when to renew next."""
        return min((lease.renew_at for lease in self._held.values()), default=None)

    def next_deadline(self) -> float | None:
        """Return when the next lease is fenced or its work stalled."""
        ends = (min(one.fenced_at, one.stalled_at) for one in self._held.values() if not one.is_ending)
        return min(ends, default=None)

    def validate(self) -> None:
        """Assert the invariants."""
        for lease in self._held.values():
            assert lease.confirmed_at <= lease.renew_at, lease
            assert lease.lease_s >= 2 * FENCE_MARGIN_S, lease
