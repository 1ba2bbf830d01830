"""Every request of `/v1` as a value: what the clients, which wait in their own ways, have in common."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from headgate.core.errors import InvalidInputError
from headgate.jobqueue import wire
from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.job import JobSpec, JobState
from headgate.jobqueue.names import NAME_CHARS, checked_id
from headgate.jobqueue.port import Happening
from headgate.jobqueue.resource import ResourceSpec

MOST_BYTES: Final = 4 * 1024 * 1024
"""Payloads in one submission: a request stays small enough for any proxy and any retry."""

T = TypeVar("T", bound=BaseModel)


class Anything(BaseModel):
    """An answer that nobody reads."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request.

    Attributes:
        method: of HTTP.
        path: below the address.
        answer: what a success is read as.
        body: sent as JSON, or None.
        query: parameters.
        key: idempotency key, or empty.
        can_repeat: whether sending it twice changes no more than sending it once: it reads, has a key, or names the
            lease that it ends or extends.
        wait_s: seconds for which the server may hold the answer back.
    """

    method: str
    path: str
    answer: type[T]
    body: BaseModel | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    can_repeat: bool = True
    wait_s: float = 0.0


def new_key() -> str:
    """Return an idempotency key."""
    return uuid.uuid4().hex


def submissions(specs: Iterable[JobSpec]) -> Iterator[Call[wire.SubmitOut]]:
    """Yield the submission of jobs in as many parts as it needs.

    Raises:
        InvalidJobError: a job breaks a rule.
    """
    part: list[wire.JobIn] = []
    size = 0
    for spec in specs:
        if part and (len(part) == wire.MOST_AT_ONCE or size + len(spec.payload) > MOST_BYTES):
            yield _submission(part)
            part, size = [], 0
        part.append(_job(spec))
        size += len(spec.payload)
    if part:
        yield _submission(part)


def _submission(jobs: list[wire.JobIn]) -> Call[wire.SubmitOut]:
    # Each job was checked by itself.
    return Call(
        "POST", "/v1/jobs", wire.SubmitOut, wire.SubmitIn.model_construct(jobs=jobs), key=new_key()
    )  # fmt: skip


def _job(spec: JobSpec) -> wire.JobIn:
    try:
        return wire.JobIn.of(spec)
    except ValidationError as error:
        raise InvalidJobError(f"job {spec.job_id!r:.100}: {_said(error)}") from None


def registrations(specs: Sequence[ResourceSpec]) -> Iterator[Call[wire.ResourcesOut]]:
    """Yield the registration of policy servers in as many parts as it needs.

    Raises:
        InvalidJobError: a server breaks a rule.
    """
    try:
        servers = [wire.ResourceIn.of(spec) for spec in specs]
    except ValidationError as error:
        raise InvalidJobError(f"a policy server: {_said(error)}") from None
    for start in range(0, len(servers), wire.MOST_AT_ONCE):
        body = wire.ResourcesIn(resources=servers[start : start + wire.MOST_AT_ONCE])
        yield Call("POST", "/v1/resources", wire.ResourcesOut, body)


def claim(request: wire.ClaimIn) -> Call[wire.ClaimOut]:
    """Ask for jobs."""
    return Call("POST", "/v1/claims", wire.ClaimOut, request, key=new_key(), wait_s=request.wait_s)


def renew(leases: Sequence[wire.JobLeaseIn]) -> Call[wire.RenewOut]:
    """Renew leases, and the reservations of their jobs."""
    return Call("POST", "/v1/leases/renew", wire.RenewOut, wire.RenewIn(leases=list(leases)))


def complete(job_id: str, body: wire.CompleteIn) -> Call[wire.CompletionOut]:
    """Hand a result in; the server takes it once however often it is sent."""
    return Call("POST", _of_job(job_id, "complete"), wire.CompletionOut, body)


def complete_many(completions: Sequence[wire.CompletionIn]) -> Call[wire.CompletionsOut]:
    """Hand several results in."""
    body = wire.CompletionsIn(completions=list(completions))
    return Call("POST", "/v1/completions", wire.CompletionsOut, body)


def fail(job_id: str, body: wire.FailIn) -> Call[wire.EndOut]:
    """Say that the work failed."""
    return Call("POST", _of_job(job_id, "fail"), wire.EndOut, body)


def give_back(job_id: str, body: wire.GiveBackIn) -> Call[wire.EndOut]:
    """Give a job back."""
    return Call("POST", _of_job(job_id, "give-back"), wire.EndOut, body)


def reserve(request: wire.ReserveIn) -> Call[wire.ReserveOut]:
    """Ask for a policy server; the one that the job holds is the answer to a second request."""
    return Call("POST", "/v1/reservations", wire.ReserveOut, request, wait_s=request.wait_s)


def release(request: wire.ReleaseIn) -> Call[Anything]:
    """Release a policy server."""
    return Call("POST", "/v1/reservations/release", Anything, request)


def jobs(
    *,
    state: JobState | None = None,
    team: str | None = None,
    task: str | None = None,
    pool: str | None = None,
    after: int | None = None,
    limit: int = 100,
    dead: bool = False,
) -> Call[wire.JobsOut]:
    """Ask for a page of jobs; `dead` for those that will not be tried again."""
    query = _query(state=state, team=team, task=task, pool=pool, after=after, limit=limit)
    return Call("GET", "/v1/dead-jobs" if dead else "/v1/jobs", wire.JobsOut, query=query)


def job(job_id: str) -> Call[wire.JobOut]:
    """Ask for a job."""
    return Call("GET", _of_job(job_id), wire.JobOut)


def job_history(job_id: str) -> Call[wire.HistoryOut]:
    """Ask what happened to a job."""
    return Call("GET", _of_job(job_id, "history"), wire.HistoryOut)


def history(after: int, limit: int, what: Happening | None) -> Call[wire.HistoryOut]:
    """Ask what happened in the queue."""
    return Call("GET", "/v1/history", wire.HistoryOut, query=_query(after=after, limit=limit, what=what))


def results(after: int, limit: int) -> Call[wire.ResultsOut]:
    """Ask for completed jobs."""
    return Call("GET", "/v1/results", wire.ResultsOut, query=_query(after=after, limit=limit))


def statistics() -> Call[wire.StatisticsOut]:
    """Ask for the queue at a glance."""
    return Call("GET", "/v1/statistics", wire.StatisticsOut)


def resources() -> Call[wire.ResourcesOut]:
    """Ask for the policy servers."""
    return Call("GET", "/v1/resources", wire.ResourcesOut)


def requeue(request: wire.RequeueIn) -> Call[wire.RequeueOut]:
    """Try dead jobs again."""
    return Call("POST", "/v1/dead-jobs/requeue", wire.RequeueOut, request, can_repeat=False)


def withdraw(job_id: str, reason: str) -> Call[wire.EndOut]:
    """Take a job out of the queue."""
    body = wire.ReasonIn(reason=reason)
    return Call("POST", _of_job(job_id, "withdraw"), wire.EndOut, body, can_repeat=False)


def change_resource(pool: str, index: int, change: str, reason: str) -> Call[wire.ResourceOut]:
    """Drain or open a policy server."""
    body = wire.ReasonIn(reason=reason)
    return Call("POST", f"{_of_resource(pool, index)}/{change}", wire.ResourceOut, body)


def remove_resource(pool: str, index: int, *, force: bool) -> Call[Anything]:
    """Take a policy server out."""
    query = {"force": "true"} if force else {}
    return Call("DELETE", _of_resource(pool, index), Anything, query=query, can_repeat=False)


def _of_job(job_id: str, *rest: str) -> str:
    # `..` and the like would be another path by the time that they arrive.
    if not 0 < len(job_id) <= NAME_CHARS:
        raise _no_id(f"must have 1 to {NAME_CHARS} characters (got {len(job_id)})")
    try:
        checked_id(job_id)
    except ValueError as error:
        raise _no_id(str(error)) from None
    return "/".join(("/v1/jobs", quote(job_id, safe=""), *rest))


def _no_id(rule: str) -> InvalidInputError:
    return InvalidInputError(f"a job's id {rule}", next_step="`headgate jobqueue jobs` lists the jobs.")


def _of_resource(pool: str, index: int) -> str:
    return f"/v1/resources/{quote(pool, safe='')}/{index}"


def _query(**values: Any) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}


def _said(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"[:500]
