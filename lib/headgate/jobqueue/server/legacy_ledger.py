"""The legacy protocol on the ledger: workers are known by name alone, servers by resource type and number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

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
    worker: str
    job_id: str
    index: int


def take(ledger: Ledger, worker: str, teams: frozenset[str] | None, lease_s: float, at: Instant) -> Job | None:
    """Hand out a job that needs a server, as every job of the legacy protocol does."""
    pools = frozenset(pool for pool in ledger.servers.loads.pools() if pool)
    jobs = ledger.claims.claim(ClaimRequest(worker, 1, lease_s, teams, None, pools), at)
    return jobs[0] if jobs else None


def held(ledger: Ledger, worker: str, job_id: str) -> Job | None:
    """Return the job if the worker has it."""
    return next((job for job in ledger.claims.of_worker(worker) if job.job_id == job_id), None)


def ref_of(job: Job) -> LeaseRef:
    """Return the running claim of a job."""
    return LeaseRef(job.job_id, job.lease_id, job.epoch)


def type_of(job: Job) -> str:
    """Return the resource type by which the legacy protocol knows the job's servers."""
    return job.spec.resource_type or job.spec.pool


def done(ledger: Ledger, worker: str, job_id: str, at: Instant) -> bool:
    """Complete a job; its server stays reserved, since the worker releases it afterwards."""
    job = held(ledger, worker, job_id)
    if job is None:
        return False
    return isinstance(ledger.claims.complete(ref_of(job), Completion(), at, keep_server=True), Ended)


def beat(ledger: Ledger, worker: str, job_id: str, at: Instant) -> bool:
    """Renew a job, without its server."""
    job = held(ledger, worker, job_id)
    if job is None:
        return False
    ledger.claims.renew(ref_of(job), at, with_server=False)
    return True


def beat_all(ledger: Ledger, worker: str, teams: frozenset[str] | None, at: Instant) -> tuple[int, dict[str, int]]:
    """Renew everything that a worker has; return how many jobs, and how many servers of each type."""
    jobs = [job for job in ledger.claims.of_worker(worker) if teams is None or job.spec.team in teams]
    for job in jobs:
        ledger.claims.renew(ref_of(job), at, with_server=False)
    by_type: dict[str, int] = {}
    for resource in list(ledger.resources().values()):
        if resource.worker != worker:
            continue
        job_of = ledger.job(resource.job_id)
        if job_of is None or (teams is not None and job_of.spec.team not in teams):
            continue
        ledger.servers.renew(resource.resource_id, at)
        by_type[type_of(job_of)] = by_type.get(type_of(job_of), 0) + 1
    return len(jobs), by_type


def acquire(
    ledger: Ledger, resource_type: str, worker: str, job_id: str, lease_s: float, at: Instant, *, wait: bool
) -> Acquired:
    """Give a worker's job a server; the same one when it asks again."""
    job = held(ledger, worker, job_id)
    if job is None:
        return NotHeld()
    if not job.spec.pool or resource_type not in {type_of(job), job.spec.pool}:
        return UnknownType()
    return ledger.reserve(ref_of(job), at, lease_s=lease_s, wait=wait)


def leased(ledger: Ledger, lease: LegacyLease) -> Resource | None:
    """Return the server that a worker's job has, also after the job is done, or None if it is not that one."""
    resource = ledger.servers.held_by(lease.job_id)
    if resource is None or (resource.worker, resource.index) != (lease.worker, lease.index):
        return None
    job = ledger.job(lease.job_id)
    return resource if job is not None and lease.resource_type in {type_of(job), job.spec.pool} else None


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
