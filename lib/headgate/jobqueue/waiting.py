"""The lines of jobs that wait for a policy server: the longest waiter that a free server serves gets it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple

from headgate.jobqueue.outcomes import LeaseRef
from headgate.jobqueue.resource import Resource


@dataclass(frozen=True, slots=True)
class Waiter:
    """A job that waits for a server.

    Attributes:
        since: when the job's claim first asked (monotonic seconds); asking again keeps the place.
        ticket: names this wait.
        ref: the claim that asked.
        pool: of its job.
        task: by which servers accept or refuse it.
        lease_s: of the reservation that it is to get.
    """

    since: float
    ticket: int
    ref: LeaseRef
    pool: str
    task: str
    lease_s: float


class Match(NamedTuple):
    """A waiter and the free server that it gets."""

    waiter: Waiter
    resource: Resource


def _order(waiter: Waiter) -> tuple[float, int]:
    return waiter.since, waiter.ticket


def best(free: Iterable[Resource], pool: str, task: str, wanted: Collection[tuple[str, str]]) -> Resource | None:
    """Return the free server that a job of a pool and `task` should take, or None when none serves it.

    The one that serves the fewest of `wanted`, other jobs' pools and tasks, goes first, so that servers which serve
    many are left for the others; among equals the one with the lowest index.
    """
    fitting = [resource for resource in free if resource.serves(pool, task)]
    return min(
        fitting,
        key=lambda resource: (sum(resource.serves(*one) for one in wanted), resource.index, resource.resource_id),
        default=None,
    )


class WaitingLines:
    """One line per pool; owned by the ledger.

    Invariants: a job stands in at most one line, once; lines are sorted by how long their waiters wait.
    """

    def __init__(self) -> None:
        self._lines: dict[str, list[Waiter]] = {}
        self._places: dict[int, Waiter] = {}
        self._tickets: dict[str, int] = {}

    def __len__(self) -> int:
        """Return how many jobs wait."""
        return len(self._places)

    def line(self, pool: str) -> Sequence[Waiter]:
        """Return the waiters of a pool, the longest waiting first."""
        return self._lines.get(pool, ())

    def join(self, waiter: Waiter) -> int | None:
        """Put a waiter in line; return the ticket of the same job that it takes the place of, if there was one."""
        replaced = self.leave_job(waiter.ref.job_id)
        insort(self._lines.setdefault(waiter.pool, []), waiter, key=_order)
        self._places[waiter.ticket] = waiter
        self._tickets[waiter.ref.job_id] = waiter.ticket
        return replaced

    def leave(self, ticket: int) -> bool:
        """Take a waiter out of its line; return whether it stood in one."""
        waiter = self._places.pop(ticket, None)
        if waiter is None:
            return False
        line = self._lines[waiter.pool]
        del line[bisect_left(line, _order(waiter), key=_order)]
        del self._tickets[waiter.ref.job_id]
        return True

    def leave_job(self, job_id: str) -> int | None:
        """Take a job out of its line; return its ticket, if it stood in one."""
        ticket = self._tickets.get(job_id)
        if ticket is not None:
            self.leave(ticket)
        return ticket

    def matches(self, pools: Iterable[str], free: Iterable[Resource]) -> Iterator[Match]:
        """Yield who gets which of the free servers of pools, and take them out of line; no fitting pair is left over.

        A server that several of the pools name goes to the longest waiter of all of them.
        """
        left = {resource.resource_id: resource for resource in free}
        line = list(merge(*map(self.line, pools), key=_order))
        wanted = {(waiter.pool, waiter.task) for waiter in line} if len(left) > 1 else set()  # one is the best of all
        in_vain: set[tuple[str, str]] = set()
        for waiter in line:
            if not left:
                return
            if (waiter.pool, waiter.task) in in_vain:
                continue
            resource = best(left.values(), waiter.pool, waiter.task, wanted)
            if resource is None:
                in_vain.add((waiter.pool, waiter.task))
            else:
                del left[resource.resource_id]
                self.leave(waiter.ticket)
                yield Match(waiter, resource)

    def validate(self) -> None:
        """Assert the invariants."""
        for line in self._lines.values():
            assert line == sorted(line, key=_order)
        assert sum(map(len, self._lines.values())) == len(self._places) == len(self._tickets)
