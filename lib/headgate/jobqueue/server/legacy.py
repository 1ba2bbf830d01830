"""The legacy protocol, for its unchanged workers: parameters in the query, errors as `{"detail": …}`.

Its workers have no leases: the ledger identifies them by name and token, and servers by resource type and number. The
lease ids of their claims, which no body of `/v1` can name, identify their holder: a claim made here can be renewed and
ended only here, and one made through `/v1` is out of reach.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from headgate.jobqueue.job import Job
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.names import JobId, Name
from headgate.jobqueue.outcomes import (
    ClaimRequest,
    Completion,
    Ended,
    Instant,
    LeaseRef,
    ReservationRef,
    Reserved,
    ReserveOutcome,
    Stale,
    Unknown,
)
from headgate.jobqueue.resource import Resource
from headgate.jobqueue.server.access import check_scope, check_worker, is_hidden
from headgate.jobqueue.server.answers import wait_headers
from headgate.jobqueue.server.route import audit
from headgate.jobqueue.server.service import Service
from headgate.jobqueue.server.v1_servers import kept
from headgate.net.authority import Caller, Refused
from headgate.net.tokens import Scope


class Holder(NamedTuple):
    """A worker that claims and ends jobs by the legacy protocol.

    Attributes:
        token_id: of its token, or empty; the same name with another token is another worker.
    """

    worker: str
    token_id: str = ""

    @property
    def lease_prefix(self) -> str:
        """What the lease ids of its claims begin with."""
        return f"legacy:{self.token_id}:"

    def has_claimed(self, job: Job | None) -> bool:
        """Return whether a job's claim, running or completed, is this worker's."""
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
    """Hand out a job that needs a server of these pools (None: of any), as every job of the legacy protocol does."""
    served = frozenset(pool for pool in ledger.servers.loads.pools() if pool and (pools is None or pool in pools))
    request = ClaimRequest(holder.worker, 1, lease_s, teams, None, served, lease_prefix=holder.lease_prefix)
    jobs = ledger.claims.claim(request, at)
    return jobs[0] if jobs else None


def _held(ledger: Ledger, holder: Holder, job_id: str | None = None) -> list[Job]:
    """Return the jobs that a worker has claimed here and still holds; with `job_id`, only that one."""
    jobs = ledger.claims.of_worker(holder.worker)
    return [job for job in jobs if holder.has_claimed(job) and job_id in {None, job.job_id}]


def _ref(job: Job) -> LeaseRef:
    return LeaseRef(job.job_id, job.lease_id, job.epoch)


def type_of(job: Job) -> str:
    """Return the legacy protocol's resource type for the job's servers."""
    return job.spec.resource_type or job.spec.pool


def complete_held(ledger: Ledger, holder: Holder, job_id: str, at: Instant) -> bool:
    """Complete a job; its server stays reserved, since the worker releases it afterwards."""
    return any(
        isinstance(ledger.claims.complete(_ref(job), Completion(), at, keep_server=True), Ended)
        for job in _held(ledger, holder, job_id)
    )


def beat(ledger: Ledger, holder: Holder, job_id: str, at: Instant) -> bool:
    """Renew a job, without its server."""
    jobs = _held(ledger, holder, job_id)
    for job in jobs:
        ledger.claims.renew(_ref(job), at, with_server=False)
    return bool(jobs)


def beat_all(ledger: Ledger, holder: Holder, teams: frozenset[str] | None, at: Instant) -> tuple[int, dict[str, int]]:
    """Renew everything that a worker holds; return how many jobs, and how many servers of each type."""

    def is_of_teams(job: Job) -> bool:
        return teams is None or job.spec.team in teams

    jobs = [job for job in _held(ledger, holder) if is_of_teams(job)]
    for job in jobs:
        ledger.claims.renew(_ref(job), at, with_server=False)
    by_type: Counter[str] = Counter()
    for resource in list(ledger.resources().values()):
        user = ledger.job(resource.job_id) if resource.worker == holder.worker else None
        if user is not None and holder.has_claimed(user) and is_of_teams(user):
            ledger.servers.renew(resource.resource_id, at)
            by_type[type_of(user)] += 1
    return len(jobs), dict(by_type)


def reserve_held(
    ledger: Ledger, resource_type: str, holder: Holder, job_id: str, lease_s: float, at: Instant, *, wait: bool
) -> Acquired:
    """Give a worker's job a server, the same one when it asks again."""
    job = next(iter(_held(ledger, holder, job_id)), None)
    if job is None:
        return NotHeld()
    if not job.spec.pool or resource_type not in {type_of(job), job.spec.pool}:
        return UnknownType()
    return ledger.reserve(_ref(job), at, lease_s=lease_s, wait=wait)


def _leased(ledger: Ledger, lease: LegacyLease) -> Resource | None:
    """Return the server that a worker's job has, also after the job is done, or None if it is not that one."""
    resource = ledger.servers.held_by(lease.job_id)
    job = ledger.job(lease.job_id)
    if resource is None or resource.index != lease.index or job is None or not lease.holder.has_claimed(job):
        return None
    return resource if lease.resource_type in {type_of(job), job.spec.pool} else None


def beat_server(ledger: Ledger, lease: LegacyLease, at: Instant) -> bool:
    """Renew a server."""
    resource = _leased(ledger, lease)
    if resource is not None:
        ledger.servers.renew(resource.resource_id, at)
    return resource is not None


def release_held(ledger: Ledger, lease: LegacyLease, at: Instant) -> bool:
    """Free a server."""
    resource = _leased(ledger, lease)
    if resource is None:
        return False
    return ledger.release(ReservationRef(resource.resource_id, resource.lease_id, resource.epoch), at)


_log = logging.getLogger("headgate.jobqueue")

router: Final = APIRouter(tags=["legacy protocol"])
"""These routes need the scope `legacy`: they identify workers by name, without a lease."""


class LegacyProblem(BaseModel):
    """An error of the legacy protocol."""

    detail: str


def _answering(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors of a route for the documentation."""
    return {status: {"model": LegacyProblem} for status in (*statuses, 401, 403, 421, 429, 500, 503)}


def is_legacy_path(path: str) -> bool:
    """Return whether errors at this path have the legacy protocol's form."""
    return path in {"/job", "/heartbeat"} or path.startswith(("/job/", "/done/", "/resource/"))


async def _authenticated(request: Request) -> AsyncIterator[Caller]:
    service: Service = request.app.state.service
    verdict = await service.let_in(request, "POST")  # all of them change the queue, even GET /job
    if isinstance(verdict, Refused):
        how = wait_headers(verdict.retry_after_s)
        if verdict.http_status == HTTPStatus.UNAUTHORIZED:
            how["WWW-Authenticate"] = "Bearer"  # only programs call these routes
        raise HTTPException(verdict.http_status, verdict.message, how)
    check_scope(verdict, Scope.LEGACY)
    with service.opened(verdict):
        yield verdict


@dataclass(frozen=True, slots=True)
class LegacyCall:
    """One accepted request of a worker that its token may act as."""

    request: Request
    service: Service
    caller: Caller
    holder: Holder

    async def done(self, job_id: str, operation: Callable[[Ledger, Instant], bool]) -> bool:
        """Return the answer of an operation on a job; False when the job is hidden from the caller."""
        return await self.service.writer.do(
            lambda ledger, at: not is_hidden(ledger, self.caller, job_id) and operation(ledger, at)
        )

    async def acquired(self, ask: Callable[..., Acquired]) -> Any:
        """Return the outcome for a job that asks for a server, after waiting for one."""
        service, wait_s = self.service, self.service.settings.legacy_acquire_wait_s
        if not wait_s:
            return await service.writer.do(lambda ledger, at: ask(ledger, at, wait=False))
        try:
            standing = service.writer.wait_for(lambda ledger, at: ask(ledger, at, wait=True), wait_s)
            outcome = await service.long_polls.stand(standing, self.request)
        except ClientDisconnect:
            return None  # no client is left to read the answer
        if isinstance(outcome, Reserved):
            await kept(service, outcome, self.request)
        return outcome


async def _call(request: Request, caller: Annotated[Caller, Depends(_authenticated)], worker: Name) -> LegacyCall:
    check_worker(caller, worker)
    return LegacyCall(request, request.app.state.service, caller, Holder(worker, caller.token_id))


Calling = Annotated[LegacyCall, Depends(_call)]


@router.get("/job", responses=_answering())
async def get_job(call: Calling) -> dict[str, Any]:
    """Claim the next job; this changes the queue, although the method is GET."""
    lease_s, caller = call.service.settings.job_heartbeat_timeout_s, call.caller
    job = await call.service.writer.do(
        lambda ledger, at: take(ledger, call.holder, caller.teams, lease_s, at, caller.pools)
    )
    if job is None:
        return {"job": None}
    call.service.metrics.claimed(1)
    _log.info("Job %s assigned to %s (attempt %s)", job.job_id, call.holder.worker, job.epoch)
    audit(caller, f"claimed job {job.job_id!r} as worker {call.holder.worker!r}")
    return {"job": {"id": job.job_id, "payload": json.loads(job.spec.payload), "resource_type": type_of(job)}}


@router.post("/job/{job_id}/heartbeat", responses=_answering(404))
async def job_heartbeat(call: Calling, job_id: JobId) -> dict[str, str]:
    """Renew one job."""
    if not await call.done(job_id, lambda ledger, at: beat(ledger, call.holder, job_id, at)):
        raise HTTPException(404, "Job not assigned to worker")
    return {"status": "ok"}


@router.post("/done/{job_id}", responses=_answering(400))
async def done(call: Calling, job_id: JobId) -> dict[str, str]:
    """Complete a job; the worker keeps its server until it releases it."""
    if not await call.done(job_id, lambda ledger, at: complete_held(ledger, call.holder, job_id, at)):
        raise HTTPException(400, "Job not assigned to worker")
    call.service.metrics.ended("done")
    _log.info("Job %s finished by %s", job_id, call.holder.worker)
    audit(call.caller, f"completed job {job_id!r} as worker {call.holder.worker!r}")
    return {"status": "ok"}


@router.post("/resource/{resource_type}/acquire", responses=_answering(404))
async def acquire(call: Calling, resource_type: Name, job_id: JobId) -> dict[str, Any]:
    """Reserve a server, waiting for one."""
    lease_s = call.service.settings.resource_heartbeat_timeout_s

    def ask(ledger: Ledger, at: Instant, *, wait: bool) -> Acquired:
        if is_hidden(ledger, call.caller, job_id):
            return NotHeld()
        return reserve_held(ledger, resource_type, call.holder, job_id, lease_s, at, wait=wait)

    match await call.acquired(ask):
        case Reserved(resource, spec):
            call.service.metrics.reserved()
            _log.info(
                "Resource %s[%s] allocated to %s for job %s", resource_type, resource.index, resource.worker, job_id
            )
            audit(call.caller, f"reserved {resource.resource_id} for job {job_id!r}")
            return {"index": resource.index, "resource": json.loads(spec.body)}
        case UnknownType():
            raise HTTPException(404, "Unknown resource type")
        case NotHeld() | Stale() | Unknown():
            raise HTTPException(404, "Job not assigned to worker")
        case _:
            raise HTTPException(429, "No resources available")


@router.post("/resource/{resource_type}/heartbeat", responses=_answering(404))
async def resource_heartbeat(call: Calling, resource_type: Name, job_id: JobId, resource_idx: int) -> dict[str, str]:
    """Renew a server."""
    lease = LegacyLease(resource_type, call.holder, job_id, resource_idx)
    if not await call.done(job_id, lambda ledger, at: beat_server(ledger, lease, at)):
        raise HTTPException(404, "Resource lease not found")
    _log.info("Resource %s[%s] heartbeat to %s for job %s", resource_type, resource_idx, call.holder.worker, job_id)
    return {"status": "ok"}


@router.post("/resource/{resource_type}/release", responses=_answering(404))
async def release(call: Calling, resource_type: Name, job_id: JobId, resource_idx: int) -> dict[str, str]:
    """Free a server."""
    lease = LegacyLease(resource_type, call.holder, job_id, resource_idx)
    if not await call.done(job_id, lambda ledger, at: release_held(ledger, lease, at)):
        raise HTTPException(404, "Resource lease not found or mismatch")
    _log.warning("Resource %s[%s] freed (released by worker)", resource_type, resource_idx)
    audit(call.caller, f"released {resource_type}[{resource_idx}] as worker {call.holder.worker!r}")
    return {"status": "ok"}


@router.post("/heartbeat", responses=_answering())
async def heartbeat(call: Calling) -> dict[str, Any]:
    """Renew every job and server of a worker."""
    jobs, servers = await call.service.writer.do(
        lambda ledger, at: beat_all(ledger, call.holder, call.caller.teams, at)
    )
    return {
        "status": "ok",
        "jobs_heartbeated": jobs,
        "resources_heartbeated": servers,
        "total_resources_heartbeated": sum(servers.values()),
    }


ROUTES: Final = tuple(
    (method, route.path) for route in router.routes if isinstance(route, APIRoute) for method in route.methods or ()
)
