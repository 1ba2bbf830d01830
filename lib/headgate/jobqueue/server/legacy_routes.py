"""The legacy protocol, for its workers as they are: parameters in the query, errors as `{"detail": …}`."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, Depends, HTTPException, Request
from pydantic import BaseModel

from headgate.core.errors import HeadgateError
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.names import JobId, Name
from headgate.jobqueue.outcomes import Instant, Reserved, Stale, Unknown
from headgate.jobqueue.server import legacy_ledger
from headgate.jobqueue.server.access import check_scope, check_worker, is_hidden
from headgate.jobqueue.server.endpoint import check_browser, headers_of_refusal
from headgate.jobqueue.server.errors import HungUp
from headgate.jobqueue.server.legacy_ledger import Acquired, Holder, LegacyLease, NotHeld, UnknownType
from headgate.jobqueue.server.route import AUDIT
from headgate.jobqueue.server.service import Service
from headgate.jobqueue.server.v1_reservations import kept
from headgate.net.authority import Caller, Refused
from headgate.net.refusals import token_of
from headgate.net.tokens import Scope

_log = logging.getLogger("headgate.jobqueue")

Responses: TypeAlias = dict[int | str, dict[str, Any]]

router: Final = APIRouter(tags=["legacy protocol"])

ROUTES: Final = (
    ("GET", "/job"),
    ("POST", "/job/{job_id}/heartbeat"),
    ("POST", "/done/{job_id}"),
    ("POST", "/resource/{resource_type}/acquire"),
    ("POST", "/resource/{resource_type}/heartbeat"),
    ("POST", "/resource/{resource_type}/release"),
    ("POST", "/heartbeat"),
)
"""All of them need the scope `legacy`: they tell workers by name alone, without a lease."""


class LegacyProblem(BaseModel):
    """An error of the legacy protocol."""

    detail: str


def _answering(*statuses: int) -> Responses:
    """Return the errors of a route for the documentation."""
    return {status: {"model": LegacyProblem} for status in (*statuses, 401, 403, 421, 429, 500, 503)}


def is_legacy_path(path: str) -> bool:
    """Return whether errors at this path have the legacy protocol's form."""
    return path in {"/job", "/heartbeat"} or path.startswith(("/job/", "/done/", "/resource/"))


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _let_in(request: Request) -> AsyncIterator[Caller]:
    service = _service(request)
    verdict = await service.authority.identify_async(
        token_of(request.headers.get("authorization")), service.clock.wall()
    )
    if isinstance(verdict, Refused):
        how = headers_of_refusal(service, verdict)
        if verdict.http_status == HTTPStatus.UNAUTHORIZED:
            how["WWW-Authenticate"] = "Bearer"  # only programs call these routes
        raise HTTPException(verdict.http_status, verdict.message, how)
    try:
        check_browser(service, verdict, dict(request.scope["headers"]), "POST")
        check_scope(verdict, Scope.LEGACY)
        with service.opened(verdict):
            yield verdict
    except HeadgateError as error:
        headers_of = {"Retry-After": "1"} if error.http_status in {429, 503} else None
        raise HTTPException(error.http_status, error.message, headers_of) from None


Serving = Annotated[Service, Depends(_service)]
Calling = Annotated[Caller, Depends(_let_in)]


@router.get("/job", responses=_answering())
async def get_job(service: Serving, caller: Calling, worker: Name) -> dict[str, Any]:
    """Claim the next job; this changes the queue, although the method is GET."""
    holder = _holder(caller, worker)
    lease_s = service.settings.job_heartbeat_timeout_s
    teams, pools = caller.teams, caller.pools
    job = await service.desk.do(lambda ledger, at: legacy_ledger.take(ledger, holder, teams, lease_s, at, pools))
    if job is None:
        return {"job": None}
    service.metrics.claimed(1)
    _log.info("Job %s assigned to %s (attempt %s)", job.job_id, worker, job.epoch)
    _audit(caller, f"claimed job {job.job_id!r} as worker {worker!r}")
    payload = json.loads(job.spec.payload)
    return {"job": {"id": job.job_id, "payload": payload, "resource_type": legacy_ledger.type_of(job)}}


@router.post("/job/{job_id}/heartbeat", responses=_answering(404))
async def job_heartbeat(service: Serving, caller: Calling, job_id: JobId, worker: Name) -> dict[str, str]:
    """Renew one job."""
    holder = _holder(caller, worker)
    if not await _done(service, caller, job_id, lambda ledger, at: legacy_ledger.beat(ledger, holder, job_id, at)):
        raise HTTPException(404, "Job not assigned to worker")
    return {"status": "ok"}


@router.post("/done/{job_id}", responses=_answering(400))
async def done(service: Serving, caller: Calling, job_id: JobId, worker: Name) -> dict[str, str]:
    """Complete a job; the worker keeps its server until it releases it."""
    holder = _holder(caller, worker)
    if not await _done(service, caller, job_id, lambda ledger, at: legacy_ledger.done(ledger, holder, job_id, at)):
        raise HTTPException(400, "Job not assigned to worker")
    service.metrics.ended("done")
    _log.info("Job %s finished by %s", job_id, worker)
    _audit(caller, f"completed job {job_id!r} as worker {worker!r}")
    return {"status": "ok"}


@router.post("/resource/{resource_type}/acquire", responses=_answering(404))
async def acquire(
    request: Request, service: Serving, caller: Calling, resource_type: Name, worker: Name, job_id: JobId
) -> dict[str, Any]:
    """Reserve a server, waiting for one."""
    holder = _holder(caller, worker)
    lease_s = service.settings.resource_heartbeat_timeout_s

    def ask(ledger: Ledger, at: Instant, *, wait: bool) -> Acquired:
        if is_hidden(ledger, caller, job_id):
            return NotHeld()
        return legacy_ledger.acquire(ledger, resource_type, holder, job_id, lease_s, at, wait=wait)

    match await _acquired(service, request, ask):
        case Reserved(resource, spec):
            service.metrics.reserved()
            _log.info("Resource %s[%s] allocated to %s for job %s", resource_type, resource.index, worker, job_id)
            _audit(caller, f"reserved {resource.resource_id} for job {job_id!r}")
            return {"index": resource.index, "resource": json.loads(spec.body)}
        case UnknownType():
            raise HTTPException(404, "Unknown resource type")
        case NotHeld() | Stale() | Unknown():
            raise HTTPException(404, "Job not assigned to worker")
        case _:
            raise HTTPException(429, "No resources available")


@router.post("/resource/{resource_type}/heartbeat", responses=_answering(404))
async def resource_heartbeat(
    service: Serving, caller: Calling, resource_type: Name, worker: Name, job_id: JobId, resource_idx: int
) -> dict[str, str]:
    """Renew a server."""
    holder = _holder(caller, worker)
    lease = LegacyLease(resource_type, holder, job_id, resource_idx)
    if not await _done(service, caller, job_id, lambda ledger, at: legacy_ledger.beat_server(ledger, lease, at)):
        raise HTTPException(404, "Resource lease not found")
    _log.info("Resource %s[%s] heartbeat to %s for job %s", resource_type, resource_idx, worker, job_id)
    return {"status": "ok"}


@router.post("/resource/{resource_type}/release", responses=_answering(404))
async def release(
    service: Serving, caller: Calling, resource_type: Name, worker: Name, job_id: JobId, resource_idx: int
) -> dict[str, str]:
    """Free a server."""
    holder = _holder(caller, worker)
    lease = LegacyLease(resource_type, holder, job_id, resource_idx)
    if not await _done(service, caller, job_id, lambda ledger, at: legacy_ledger.release(ledger, lease, at)):
        raise HTTPException(404, "Resource lease not found or mismatch")
    _log.warning("Resource %s[%s] freed (released by worker)", resource_type, resource_idx)
    _audit(caller, f"released {resource_type}[{resource_idx}] as worker {worker!r}")
    return {"status": "ok"}


@router.post("/heartbeat", responses=_answering())
async def heartbeat(service: Serving, caller: Calling, worker: Name) -> dict[str, Any]:
    """Renew every job and server of a worker."""
    holder = _holder(caller, worker)
    jobs, servers = await service.desk.do(lambda ledger, at: legacy_ledger.beat_all(ledger, holder, caller.teams, at))
    return {
        "status": "ok",
        "jobs_heartbeated": jobs,
        "resources_heartbeated": servers,
        "total_resources_heartbeated": sum(servers.values()),
    }


def _holder(caller: Caller, worker: str) -> Holder:
    check_worker(caller, worker)
    return Holder(worker, caller.token_id)


async def _done(service: Service, caller: Caller, job_id: str, operation: Callable[[Ledger, Instant], bool]) -> bool:
    """Return what an operation on a job answers; False when the caller may not know of the job."""
    return await service.desk.do(lambda ledger, at: not is_hidden(ledger, caller, job_id) and operation(ledger, at))


async def _acquired(service: Service, request: Request, ask: Callable[..., Acquired]) -> Any:
    wait_s = service.settings.legacy_acquire_wait_s
    if not wait_s:
        return await service.desk.do(lambda ledger, at: ask(ledger, at, wait=False))
    try:
        standing = service.desk.wait_for(lambda ledger, at: ask(ledger, at, wait=True), wait_s)
        outcome = await service.long_polls.stand(standing, request.receive)
    except HungUp:
        return None  # nobody reads the answer
    if isinstance(outcome, Reserved):
        await kept(service, outcome, token_of(request.headers.get("authorization")))
    return outcome


def _audit(caller: Caller, action: str) -> None:
    AUDIT.info("token %s: %s", caller.token_id or "none", action)
