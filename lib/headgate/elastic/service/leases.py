"""What workers stand on: a lease for each that is awake, taken before it wakes and given back after it sleeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

OnLost = Callable[[float], None]
"""Called with the seconds that are left when somebody else wants what a worker stands on; from any thread."""


class WorkerLease(Protocol):
    """The right of one worker to be awake."""

    async def give_back(self) -> None:
        """Give it back; legal twice, and after it was lost.

        Raises:
            HeadgateError: it could not be given back; whoever gave it will find out by itself.
        """
        ...


class WorkerLeases(Protocol):
    """Where leases come from. A worker has one at most."""

    async def take(self, worker_id: str, on_lost: OnLost) -> WorkerLease:
        """Return a lease as soon as there is one. It is cancelled when the worker is no longer wanted awake.

        Args:
            worker_id: for whom.
            on_lost: to be called once, from any thread, when it will be taken away: within so many seconds.

        Raises:
            HeadgateError: there will be none; the worker counts as failed and is tried again later.
        """
        ...


class _FreeLease:
    async def give_back(self) -> None:
        """Nothing has to be given back."""


class FreeLeases:
    """Leases for workers whose machines are theirs alone: there is always one, and it is never lost."""

    async def take(self, worker_id: str, on_lost: OnLost) -> WorkerLease:  # noqa: ARG002 - it is the protocol's
        """Return a lease at once."""
        return _FreeLease()
