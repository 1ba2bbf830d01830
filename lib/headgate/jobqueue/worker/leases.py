"""What a worker believes of the leases that it holds: when to renew them, and when to believe in them no more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headgate.jobqueue.wire import JobLeaseIn

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

    def add(self, ref: JobLeaseIn, lease_s: float, *, asked_at: float, now: float) -> Tenure:
        """Note a claim.

        Args:
            ref: the lease.
            lease_s: its period.
            asked_at: when the claim was first sent. The server may have granted it at any time since, and the answer
                may have been lost on its first way: a claim that took long is renewed at once.
            now: when it was answered.
        """
        tenure = Tenure(ref, lease_s, confirmed_at=now, renew_at=now, moved_at=now)
        tenure.renew_at = max(now, asked_at + lease_s / RENEWALS_IN_A_LEASE)
        self._held[ref.lease_id] = tenure
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
