"""Who may use a policy server: one client at a time, and none whose reservation is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.jobqueue.policy.lease import PolicyLease


@dataclass(frozen=True, slots=True)
class Free:
    """The server is free: come in."""


@dataclass(frozen=True, slots=True)
class TakesOver:
    """A client is in there whose time is over: end its episode and come in."""

    visit: int


@dataclass(frozen=True, slots=True)
class Busy:
    """Another client's episode runs, and nothing says that it is over."""

    why: str = "another episode is running"


@dataclass(frozen=True, slots=True)
class Stale:
    """The lease is older than one that was here before."""

    why: str


FREE: Final = Free()
BUSY: Final = Busy()


class Seat:
    """The one place at a policy server. Owned by the server; lives as long as its process.

    A job queue counts the reservations of a server: the higher the epoch, the newer. So the newest one that ever came
    takes the place from whoever sits there, older ones stay out for good, and the same one may come back on a new
    connection. Clients that name no lease take turns: such a one comes in when the place is free, and gives way to a
    lease.

    Invariant: whoever sits there under a lease has the newest one.
    """

    def __init__(self) -> None:
        self._visit: int | None = None
        self._lease: PolicyLease | None = None
        self._newest: PolicyLease | None = None

    @property
    def visit(self) -> int | None:
        """Who sits there, None when it is free."""
        return self._visit

    def ask(self, lease: PolicyLease | None) -> Free | TakesOver | Busy | Stale:
        """Return whether a client may come in; changes nothing."""
        if (
            lease is not None
            and self._newest is not None
            and lease != self._newest
            and lease.epoch <= self._newest.epoch
        ):
            return Stale(
                f"epoch {lease.epoch} of lease {lease.lease_id} is not newer than epoch {self._newest.epoch}, which "
                "was here before; reserve again, or restart this server if the job queue was set up anew"
            )
        if self._visit is None:
            return FREE
        return BUSY if lease is None else TakesOver(self._visit)

    def take(self, visit: int, lease: PolicyLease | None) -> None:
        """Let a client in that `ask` did not refuse."""
        self._visit, self._lease = visit, lease
        if lease is not None:
            self._newest = lease

    def leave(self, visit: int) -> None:
        """Free the place if it is still this client's."""
        if self._visit == visit:
            self._visit, self._lease = None, None

    def validate(self) -> None:
        """Raise AssertionError when the invariant does not hold."""
        assert self._lease is None or (self._visit is not None and self._lease == self._newest)
