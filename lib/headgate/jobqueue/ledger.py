"""The job ledger: which worker may work on which job, and whose result counts.

Pure except for reads from its store: every operation takes the time, changes the state in memory, and leaves what must
be written in `changes`. Its owner commits them in one transaction, then calls `committed`; only then may clients be
answered. Leases expire by monotonic time, kept only in memory: a heartbeat writes nothing, and a new ledger gives every
running lease a full period.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count

from headgate.jobqueue.claims import ERROR_CHARS, Claims
from headgate.jobqueue.errors import InvalidJobError, JobConflictError, WrongStateError
from headgate.jobqueue.job import WITHDRAWN, Job, JobSpec, JobState, Lane
from headgate.jobqueue.outcomes import (
    ClaimRequest,
    Ended,
    EndOutcome,
    ImportedJob,
    Instant,
    LeaseRef,
    ReservationRef,
    ReserveOutcome,
    Settled,
    Submitted,
    Unknown,
    Waiting,
)
from headgate.jobqueue.records import Changes, Happening, Reply
from headgate.jobqueue.reservations import Reservations
from headgate.jobqueue.resource import Resource, ResourceSpec, ResourceState
from headgate.jobqueue.stores.sql import Store
from headgate.jobqueue.working_set import WorkingSet


def new_lease_id() -> str:
    """Return a lease id that nobody can guess: 128 random bits."""
    return secrets.token_hex(16)


class Ledger:
    """Jobs, claims, servers and reservations of one queue.

    Lives as long as its process owns the store; after a failed commit it is discarded and rebuilt.

    Invariants: one live claim per job at most; epochs only grow; a job is done by one claim; only `requeue` leads out
    of a terminal state, and never out of `done`.

    The store is owned by this process; running leases get a full period from `at`.
    """

    def __init__(self, store: Store, at: Instant, lease_ids: Callable[[], str] = new_lease_id) -> None:
        self._store = store
        self._working_set = WorkingSet(store, store.load())
        self._tickets = count(1)
        self._waiting_claims: dict[int, ClaimRequest] = {}
        self._has_news = False
        self.servers = Reservations(self._working_set, self._tickets, lease_ids, at)
        self.claims = Claims(self._working_set, self.servers, lease_ids, at.now)

    # What must be written.

    @property
    def changes(self) -> Changes:
        """What has changed since the last commit; written whole or not at all."""
        return self._working_set.changes

    def committed(self) -> None:
        """Start with empty changes again: the store has written them all."""
        self._working_set.committed()

    # Submission.

    def submit(self, specs: Sequence[JobSpec], at: Instant) -> Submitted:
        """Add jobs; those that exist with the same contents are counted and left alone.

        Raises:
            InvalidJobError: two of them share an id.
            JobConflictError: one exists with other contents; none is added.
        """
        return self.adopt([ImportedJob(spec) for spec in specs], at)

    def adopt(self, imported: Sequence[ImportedJob], at: Instant) -> Submitted:
        """Add jobs with their progress in another queue; as `submit`, with the same errors."""
        specs = [one.spec for one in imported]
        existing = self._working_set.jobs([spec.job_id for spec in specs])
        _check_new(specs, existing)
        for one in imported:
            if one.spec.job_id in existing:
                continue
            state, finished_at = (JobState.DONE, at.wall) if one.is_done else (JobState.PENDING, 0.0)
            job = Job(
                one.spec, self._working_set.next_seq(), at.wall, state, epoch=one.attempts, finished_at=finished_at,
                result="{}" if one.is_done else "",
            )  # fmt: skip
            self._working_set.add(job)
            self._working_set.note_job(Happening.SUBMITTED, job, at.wall, "already done" if one.is_done else "")
        self._has_news = True
        return Submitted(len(imported) - len(existing), len(existing))

    # Claims.

    def claim_or_wait(self, request: ClaimRequest, at: Instant) -> tuple[Job, ...] | Waiting:
        """As `Claims.claim`; with nothing to hand out, the request waits until `settle` serves it."""
        jobs = self.claims.claim(request, at)
        if jobs:
            return jobs
        ticket = next(self._tickets)
        self._waiting_claims[ticket] = request
        return Waiting(ticket)

    # Servers.

    def reserve(
        self, ref: LeaseRef, at: Instant, *, lease_s: float | None = None, wait: bool = False
    ) -> ReserveOutcome:
        """Give a claim a policy server that serves its task; see `Reservations.reserve`.

        Raises:
            WrongStateError: the job needs no server.
        """
        job = self.claims.running(ref)
        if not isinstance(job, Job):
            return job
        if not job.spec.pool:
            raise WrongStateError(f"job {ref.job_id!r} has no pool: it needs no server")
        return self.servers.reserve(job, at, lease_s=lease_s or job.lease_s, wait=wait)

    def release(self, ref: ReservationRef, at: Instant) -> bool:
        """End a reservation; return False when it is not the running one."""
        resource = self.servers.named(ref)
        if resource is None:
            return False
        self.servers.free(resource, at)
        return True

    def add_resources(self, specs: Sequence[ResourceSpec], at: Instant) -> list[Resource]:
        """Register policy servers; see `Reservations.add`."""
        self._has_news = True
        return self.servers.add(specs, at)

    def change_resource(self, resource_id: str, state: ResourceState, at: Instant, note: str = "") -> Resource:
        """Open, drain or take down a server; see `Reservations.change`."""
        self._has_news = True
        return self.servers.change(resource_id, state, note, at)

    def remove_resource(self, resource_id: str, at: Instant, *, even_if_held: bool = False) -> None:
        """Remove a server; see `Reservations.remove`."""
        self.servers.remove(resource_id, at, even_if_held=even_if_held)

    # Operator actions.

    def requeue(self, job_id: str, at: Instant) -> EndOutcome:
        """Give a dead job all its attempts again.

        Raises:
            WrongStateError: it is not dead.
        """
        job = self._working_set.job(job_id)
        if job is None:
            return Unknown(job_id)
        if job.state is not JobState.DEAD:
            raise WrongStateError(f"job {job_id!r} is {job.state}; only dead jobs can be requeued")
        again = job._replace(state=JobState.PENDING, failures=0, finished_at=0.0, worker="")
        self._working_set.put(again, JobState.DEAD)
        self._working_set.note_job(Happening.REQUEUED, again, at.wall)
        self._has_news = True
        return Ended(again)

    def withdraw(self, job_id: str, reason: str, at: Instant) -> EndOutcome:
        """Make a pending or running job dead; its worker learns of it at the next renewal.

        Raises:
            WrongStateError: it is done or dead.
        """
        job = self._working_set.job(job_id)
        if job is None:
            return Unknown(job_id)
        if job.state in (JobState.DONE, JobState.DEAD):
            raise WrongStateError(f"job {job_id!r} is {job.state}; only pending and running jobs can be withdrawn")
        error = f"{WITHDRAWN}: {reason}"[:ERROR_CHARS] if reason else WITHDRAWN
        dead = job._replace(state=JobState.DEAD, finished_at=at.wall, last_error=error)
        if job.state is JobState.IN_PROGRESS:
            return Ended(self.claims.withdraw(dead, reason, at))
        self._working_set.lanes.drop(job)
        self._working_set.put(dead, JobState.PENDING)
        self._working_set.note_job(Happening.WITHDRAWN, dead, at.wall, reason)
        return Ended(dead)

    # Time and waiters.

    def expire(self, at: Instant) -> list[Job]:
        """End the claims and reservations that were not renewed in time; return the jobs whose claims ended."""
        self.servers.expire(at)
        return self.claims.expire(at)

    def extend_all(self, at: Instant) -> None:
        """Give every running lease a full new period: no heartbeat could be received for a while."""
        self.claims.extend_all(at)
        self.servers.extend_all(at)

    def next_deadline(self) -> float | None:
        """Return when the next lease expires unless it is renewed, or None without any."""
        deadlines = (self.claims.next_deadline(), self.servers.next_deadline())
        return min((at for at in deadlines if at is not None), default=None)

    def settle(self, at: Instant) -> list[Settled]:
        """Serve waiters, the longest waiting first, as far as what changed since the last call allows."""
        settled = self.servers.settle(at)
        if self._has_news or self.claims.has_returned:
            settled += self._served_claims(at)
        self._has_news = self.claims.has_returned = False
        return settled

    def _served_claims(self, at: Instant) -> Iterator[Settled]:
        unserved: set[tuple[frozenset[str] | None, ...]] = set()
        for ticket, request in list(self._waiting_claims.items()):
            if not self._working_set.lanes.totals[JobState.PENDING]:
                return
            wish = (request.teams, request.tasks, request.pools)
            jobs = () if wish in unserved else self.claims.claim(request, at)
            if jobs:
                del self._waiting_claims[ticket]
                yield Settled(ticket, jobs)
            else:
                unserved.add(wish)

    def leave(self, ticket: int) -> bool:
        """Remove a waiter; return whether it was still waiting."""
        return self._waiting_claims.pop(ticket, None) is not None or self.servers.lines.leave(ticket)

    # Queries.

    def job(self, job_id: str) -> Job | None:
        """Return a job."""
        return self._working_set.job(job_id)

    def running(self) -> Iterable[Job]:
        """Return all jobs in progress."""
        return self._working_set.running.values()

    def resources(self) -> Mapping[str, Resource]:
        """Return all servers by id."""
        return self._working_set.resources

    def totals(self) -> dict[JobState, int]:
        """Return the jobs of the whole queue by state; takes the same time for any number of lanes."""
        return dict(self._working_set.lanes.totals)

    def lane_counts(self) -> dict[Lane, dict[JobState, int]]:
        """Return the jobs of each lane by state."""
        return {lane: dict(view.counts) for lane, view in self._working_set.lanes}

    def withdrawn(self, teams: frozenset[str] | None) -> int:
        """Return how many dead jobs of these teams (None: of all) somebody withdrew."""
        return sum(count for team, count in self._working_set.withdrawn.items() if teams is None or team in teams)

    @property
    def waiting_claims(self) -> int:
        """Claims that wait for a job."""
        return len(self._waiting_claims)

    def waiting_claims_of(self, teams: frozenset[str] | None) -> int:
        """Return how many waiting claims ask only for jobs of these teams (None: all waiting claims)."""
        waiting = self._waiting_claims.values()
        return sum(teams is None or (one.teams is not None and one.teams <= teams) for one in waiting)

    def reply(self, key: str) -> Reply | None:
        """Return the answer that a request with this idempotency key got, if any."""
        return self.changes.replies.get(key) or self._store.reply(key)

    def remember(self, reply: Reply) -> None:
        """Keep an answer for repeats of its request."""
        self.changes.replies[reply.key] = reply

    def forget(self, *, replies_before: float, late_results_before: float) -> None:
        """Drop answers older than a wall time; empty late results older than one, but keep their history entries."""
        self.changes.forget_before = (replies_before, late_results_before)

    def validate(self) -> None:
        """Assert the invariants."""
        self._working_set.lanes.validate()
        self.claims.validate()
        self.servers.validate()


def _check_new(specs: Sequence[JobSpec], existing: Mapping[str, Job]) -> None:
    seen: set[str] = set()
    for spec in specs:
        if spec.job_id in seen:
            raise InvalidJobError(f"job {spec.job_id!r} is named twice; ids must be unique")
        seen.add(spec.job_id)
        there = existing.get(spec.job_id)
        if there is not None and there.spec != spec:
            raise JobConflictError(f"job {spec.job_id!r} exists with other contents")
