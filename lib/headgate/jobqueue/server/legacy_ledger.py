"""The legacy protocol on the ledger: workers are known by name and token, servers by resource type and number.

Its workers know nothing of leases. The lease ids of their claims, which no body of `/v1` can name, say whose they are:
a claim that was made here is kept and ended here alone, and one that was made by `/v1` is out of reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from headgate.jobqueue.job import Job
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.outcomes import (
    ClaimRequest,
    Completion,
    Ended,
    Instant,
    LeaseRef,
    ReservationRef,
    ReserveOutcome,
)
from headgate.jobqueue.resource import Resource


class Holder(NamedTuple):
    """Who claims and ends by the legacy protocol.

    Attributes:
        worker: its name.
        token_id: of its token, or empty; another token under the same name is another worker.
    """

    worker: str
    token_id: str = ""

    @property
    def lease_prefix(self) -> str:
        """What the lease ids of its claims begin with."""
        return f"legacy:{self.token_id}:"

    def has_claimed(self, job: Job | None) -> bool:
        """Return whether a job's claim, running or completed, is its own."""
        return job is not None and job.worker == self.worker and job.lease_id.startswith(self.lease_prefix)


@dataclass(frozen=True, slots=True)
class NotHeld:
    """The worker does not have this job."""


@dataclass(frozen=True, slots=True)
class UnknownType:
    """The resource type is not the job's."""


Acquired: TypeAlias = ReserveOutcome | NotHeld | UnknownType


@dataclass(frozen=True, slots=True)
class LegacyLease:
    """A server as workers of the legacy protocol name it."""

    resource_type: str
    holder: Holder
    job_id: str
    index: int


def take(
    ledger: Ledger,
    holder: Holder,
    teams: frozenset[str] | None,
    lease_s: float,
    at: Instant,
    pools: frozenset[str] | None = None,
) -> Job | None:
    """Hand out a job that needs a server, of these pools, as every job of the legacy protocol does."""
    served = frozenset(pool for pool in ledger.servers.loads.pools() if pool and (pools is None or pool in pools))
    request = ClaimRequest(holder.worker, 1, lease_s, teams, None, served, lease_prefix=holder.lease_prefix)
    jobs = ledger.claims.claim(request, at)
    return jobs[0] if jobs else None


def held(ledger: Ledger, holder: Holder) -> list[Job]:
    """Return the jobs that a worker has claimed here and still holds."""
    return [job for job in ledger.claims.of_worker(holder.worker) if holder.has_claimed(job)]


def _held(ledger: Ledger, holder: Holder, job_id: str) -> Job | None:
    return next((job for job in held(ledger, holder) if job.job_id == job_id), None)


def ref_of(job: Job) -> LeaseRef:
    """Return the running claim of a job."""
    return LeaseRef(job.job_id, job.lease_id, job.epoch)


def type_of(job: Job) -> str:
    """Return the resource type by which the legacy protocol knows the job's servers."""
    return job.spec.resource_type or job.spec.pool


def done(ledger: Ledger, holder: Holder, job_id: str, at: Instant) -> bool:
    """Complete a job; its server stays reserved, since the worker releases it afterwards."""
    job = _held(ledger, holder, job_id)
    if job is None:
        return False
    return isinstance(ledger.claims.complete(ref_of(job), Completion(), at, keep_server=True), Ended)


def beat(ledger: Ledger, holder: Holder, job_id: str, at: Instant) -> bool:
    """Renew a job, without its server."""
    job = _held(ledger, holder, job_id)
    if job is None:
        return False
    ledger.claims.renew(ref_of(job), at, with_server=False)
    return True


def beat_all(ledger: Ledger, holder: Holder, teams: frozenset[str] | None, at: Instant) -> tuple[int, dict[str, int]]:
    """Renew everything that a worker has; return how many jobs, and how many servers of each type."""
    jobs = [job for job in held(ledger, holder) if teams is None or job.spec.team in teams]
    for job in jobs:
        ledger.claims.renew(ref_of(job), at, with_server=False)
    by_type: dict[str, int] = {}
    for resource in list(ledger.resources().values()):
        if resource.worker != holder.worker:
            continue
        job_of = ledger.job(resource.job_id)
        if job_of is None or not holder.has_claimed(job_of) or (teams is not None and job_of.spec.team not in teams):
            continue
        ledger.servers.renew(resource.resource_id, at)
        by_type[type_of(job_of)] = by_type.get(type_of(job_of), 0) + 1
    return len(jobs), by_type


def acquire(
    ledger: Ledger, resource_type: str, holder: Holder, job_id: str, lease_s: float, at: Instant, *, wait: bool
) -> Acquired:
    """Give a worker's job a server; the same one when it asks again."""
    job = _held(ledger, holder, job_id)
    if job is None:
        return NotHeld()
    if not job.spec.pool or resource_type not in {type_of(job), job.spec.pool}:
        return UnknownType()
    return ledger.reserve(ref_of(job), at, lease_s=lease_s, wait=wait)


def leased(ledger: Ledger, lease: LegacyLease) -> Resource | None:
    """Return the server that a worker's job has, also after the job is done, or None if it is not that one."""
    resource = ledger.servers.held_by(lease.job_id)
    job = ledger.job(lease.job_id)
    if resource is None or resource.index != lease.index or job is None or not lease.holder.has_claimed(job):
        return None
    return resource if lease.resource_type in {type_of(job), job.spec.pool} else None


def beat_server(ledger: Ledger, lease: LegacyLease, at: Instant) -> bool:
    """Renew a server."""
    resource = leased(ledger, lease)
    if resource is None:
        return False
    ledger.servers.renew(resource.resource_id, at)
    return True


def release(ledger: Ledger, lease: LegacyLease, at: Instant) -> bool:
    """Free a server."""
    resource = leased(ledger, lease)
    if resource is None:
        return False
    return ledger.release(ReservationRef(resource.resource_id, resource.lease_id, resource.epoch), at)
