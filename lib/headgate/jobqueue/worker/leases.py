"""The leases of a worker: when each is renewed, and when it counts as lost. Pure: the time comes in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from headgate.jobqueue.wire import JobLeaseIn

FENCE_MARGIN_S: Final = 5.0
"""A lease that could not be renewed counts as lost so long before the server's deadline: the work has stopped when the
job goes to somebody else."""

_RENEWALS_IN_A_LEASE: Final = 3
_RETRY_SHARE: Final = 30
"""A renewal that failed is tried again after this fraction of the lease: every 3 s with the default of 90 s."""


@dataclass(slots=True, eq=False)
class JobLease:
    """The right to work on a job, as its worker knows it. Once lost or over it stays so.

    Attributes:
        ref: as the server knows it.
        lease_s: its period.
        confirmed_at: when the renewal was sent, or the claim answered, that the server confirmed last; it ends
            `lease_s` after that at the earliest.
        moved_at: when the work went on last.
        stall_after_s: seconds without going on after which it is stalled, or None.
        stop_s: seconds that stopping the work may take.
        is_ending: whether its holder is telling the server how it ends; then only the answer to that counts.
        loss: why the work must stop, in a sentence; empty while it need not.
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
        """What names it in a request whose path names the job."""
        return {"lease_id": self.ref.lease_id, "epoch": self.ref.epoch}

    @property
    def fenced_at(self) -> float:
        """When it counts as lost unless it is renewed."""
        return self.confirmed_at + self.lease_s - min(FENCE_MARGIN_S + self.stop_s, self.lease_s / 2)

    @property
    def stalled_at(self) -> float:
        """When its work counts as stalled unless it goes on."""
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
        """Note a claim that was sent first at `asked_at` and answered `now`.

        The server may have granted it at any time since it was sent, and the answer may have been lost on its first
        way: a claim that took long is renewed at once.
        """
        renew_at = max(now, asked_at + lease_s / _RENEWALS_IN_A_LEASE)
        lease = self._held[ref.lease_id] = JobLease(ref, lease_s, now, renew_at, now, stall_after_s, stop_s)
        return lease

    def drop(self, lease: JobLease) -> None:
        """Forget a lease; legal twice."""
        self._held.pop(lease.ref.lease_id, None)

    def due(self, now: float) -> list[JobLease]:
        """Return the leases to renew in one request: all of them as soon as one is due, none otherwise."""
        is_one_due = any(lease.renew_at <= now for lease in self._held.values())
        return list(self._held.values()) if is_one_due else []

    def confirmed(self, lease: JobLease, sent_at: float) -> None:
        """Note that a renewal sent then was granted."""
        lease.confirmed_at = max(lease.confirmed_at, sent_at)
        lease.renew_at = sent_at + lease.lease_s / _RENEWALS_IN_A_LEASE

    def unconfirmed(self, leases: Iterable[JobLease], now: float) -> None:
        """Note that a renewal was not answered."""
        for lease in leases:
            lease.renew_at = now + lease.lease_s / _RETRY_SHARE

    def fenced(self, now: float) -> list[JobLease]:
        """Return the leases that count as lost by now; not those whose end the server is being told."""
        return [lease for lease in self._held.values() if lease.fenced_at <= now and not lease.is_ending]

    def stalled(self, now: float) -> list[JobLease]:
        """Return the leases whose work does not go on."""
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
