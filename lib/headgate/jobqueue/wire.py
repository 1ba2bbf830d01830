"""The bodies of the HTTP interface `/v1` about jobs and claims, read and written by server and worker kit alike."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from headgate.core import MOST_PRIORITY
from headgate.jobqueue.job import DEFAULT_MAX_ATTEMPTS, Job, JobSpec, JobState
from headgate.jobqueue.names import (
    JobId,
    JsonObject,
    Name,
    NameOrEmpty,
    Reference,
    object_text,
)
from headgate.jobqueue.outcomes import LeaseRef, ReservationRef
from headgate.jobqueue.records import Happening, HistoryEntry
from headgate.jobqueue.resource import Resource, ResourceSpec

LONGEST_WAIT_S: Final = 300.0
LEAST_LEASE_S: Final = 10.0
LONGEST_LEASE_S: Final = 3600.0
DEFAULT_LEASE_S: Final = 90.0
MOST_AT_ONCE: Final = 10_000

WaitS = Annotated[float, Field(ge=0, le=LONGEST_WAIT_S, allow_inf_nan=False)]
LeaseId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", examples=["0f" * 16])]
Epoch = Annotated[int, Field(ge=1, le=2**31 - 1)]
Checksum = Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$", examples=["sha256:" + "ab" * 32])]


class Body(BaseModel):
    """A request: unknown keys are refused, values are never converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class JobIn(Body):
    """A job to submit."""

    id: JobId = Field(examples=["17"])
    team: Name = Field(examples=["team_a"])
    task: Name = Field(examples=["turning_on_radio"])
    instance: NameOrEmpty = Field("", examples=["3"])
    pool: NameOrEmpty = Field("", description="The pool whose policy servers can serve it; empty: it needs none.")
    resource_type: NameOrEmpty = Field("", description="Its pool's name in the legacy protocol; empty: the pool.")
    payload: JsonObject = Field(default_factory=dict)
    priority: int = Field(0, ge=-MOST_PRIORITY, le=MOST_PRIORITY)
    max_attempts: int = Field(DEFAULT_MAX_ATTEMPTS, ge=1, le=1000)

    @property
    def spec(self) -> JobSpec:
        """The same as a value of the ledger."""
        return JobSpec(
            self.id, self.team, self.task, self.instance, self.pool, self.resource_type or self.pool,
            object_text(self.payload), self.priority, self.max_attempts,
        )  # fmt: skip

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Return the body that submits a job."""
        return cls(
            id=spec.job_id, team=spec.team, task=spec.task, instance=spec.instance, pool=spec.pool,
            resource_type=spec.resource_type, payload=json.loads(spec.payload), priority=spec.priority,
            max_attempts=spec.max_attempts,
        )  # fmt: skip


class SubmitIn(Body):
    """Jobs to submit, all or none."""

    jobs: list[JobIn] = Field(min_length=1, max_length=MOST_AT_ONCE)


class SubmitOut(BaseModel):
    """How many of them are new, and how many existed already with the same contents."""

    added: int
    existing: int


class JobOut(BaseModel):
    """A job in its current state."""

    id: str
    seq: int
    team: str
    task: str
    instance: str
    pool: str
    resource_type: str
    payload: dict[str, Any]
    priority: int
    max_attempts: int
    state: JobState
    epoch: int
    failures: int
    worker: str
    submitted_at: float
    claimed_at: float | None
    finished_at: float | None
    last_error: str
    result: dict[str, Any] | None
    result_ref: str
    checksum: str

    @classmethod
    def of(cls, job: Job) -> JobOut:
        """Return a job of the ledger as a body, without its lease id."""
        spec = job.spec
        return cls.model_construct(
            id=spec.job_id, seq=job.seq, team=spec.team, task=spec.task, instance=spec.instance, pool=spec.pool,
            resource_type=spec.resource_type, payload=json.loads(spec.payload), priority=spec.priority,
            max_attempts=spec.max_attempts, state=job.state, epoch=job.epoch, failures=job.failures, worker=job.worker,
            submitted_at=job.submitted_at, claimed_at=job.claimed_at or None, finished_at=job.finished_at or None,
            last_error=job.last_error, result=json.loads(job.result) if job.result else None,
            result_ref=job.result_ref, checksum=job.checksum,
        )  # fmt: skip


class JobsOut(BaseModel):
    """A page of jobs by `seq`; ask again with `after=next` until `next` is null."""

    jobs: list[JobOut]
    next: int | None


class ClaimIn(Body):
    """A worker asks for jobs."""

    worker: Name
    count: int = Field(1, ge=1, le=1000)
    wait_s: WaitS = Field(0.0, description="How long to wait when there is nothing to hand out, in seconds.")
    lease_s: float = Field(DEFAULT_LEASE_S, ge=LEAST_LEASE_S, le=LONGEST_LEASE_S, allow_inf_nan=False)
    teams: list[Name] | None = None
    tasks: list[Name] | None = None
    pools: list[NameOrEmpty] | None = None


class LeaseOut(BaseModel):
    """The right to work on a job: every later request about the job names this id and epoch."""

    lease_id: str
    epoch: int
    lease_s: float
    renew_every_s: float


class ClaimedJob(BaseModel):
    """A job and the lease on it."""

    job: JobOut
    lease: LeaseOut

    @classmethod
    def of(cls, job: Job) -> ClaimedJob:
        """Return a job that was just claimed."""
        lease = LeaseOut.model_construct(
            lease_id=job.lease_id, epoch=job.epoch, lease_s=job.lease_s, renew_every_s=job.lease_s / 3
        )
        return cls.model_construct(job=JobOut.of(job), lease=lease)


class ClaimOut(BaseModel):
    """Jobs handed out; empty when there is nothing for this worker now."""

    jobs: list[ClaimedJob]


class LeaseIn(Body):
    """A lease as its holder names it."""

    lease_id: LeaseId
    epoch: Epoch


class JobLeaseIn(LeaseIn):
    """A lease and its job."""

    job_id: JobId

    @property
    def ref(self) -> LeaseRef:
        """The same as a value of the ledger."""
        return LeaseRef(self.job_id, self.lease_id, self.epoch)


class RenewIn(Body):
    """One heartbeat for everything that a worker holds."""

    leases: list[JobLeaseIn] = Field(min_length=1, max_length=MOST_AT_ONCE)


class ReservationOut(BaseModel):
    """The right to use a policy server."""

    resource_id: str
    index: int
    lease_id: str
    epoch: int
    lease_s: float
    resource: dict[str, Any]

    @classmethod
    def of(cls, resource: Resource, spec: ResourceSpec) -> ReservationOut:
        """Return a server that is reserved for a job of the pool that names it by `spec`."""
        return cls.model_construct(
            resource_id=resource.resource_id, index=resource.index, lease_id=resource.lease_id, epoch=resource.epoch,
            lease_s=resource.lease_s, resource=json.loads(spec.body),
        )  # fmt: skip


class RenewalOut(BaseModel):
    """The outcome for one lease; on `lost` or `unknown`, stop the work."""

    job_id: str
    status: Literal["renewed", "lost", "unknown"]
    reason: str = ""
    reservation: ReservationOut | None = None


class RenewOut(BaseModel):
    """The outcome for each lease named, in order."""

    renewals: list[RenewalOut]


class CompleteIn(LeaseIn):
    """A result."""

    result: JsonObject = Field(default_factory=dict, examples=[{"q_score": 0.75}])
    result_ref: Reference = Field("", description="Where the full result is stored: a path or URL.")
    checksum: Checksum = Field("", description="Checksum of the full result.")


class CompletionIn(CompleteIn):
    """A result and its job."""

    job_id: JobId


class CompletionsIn(Body):
    """Many results at once; each is accepted or refused on its own."""

    completions: list[CompletionIn] = Field(min_length=1, max_length=1000)


class CompletionOut(BaseModel):
    """The outcome of one result; `repeated`: the same completion was accepted before."""

    job_id: str
    status: Literal["done", "repeated", "stale", "unknown"]
    reason: str = ""


class CompletionsOut(BaseModel):
    """The outcome of each result, in order."""

    completions: list[CompletionOut]


class FailIn(LeaseIn):
    """The work failed."""

    error: str = Field(min_length=1, max_length=64_000)
    retry: bool = Field(True, description="False: do not try again; the job becomes dead.")


class GiveBackIn(LeaseIn):
    """The worker stops; this does not count as a failure of the job."""

    reason: str = Field("", max_length=2000)


class EndOut(BaseModel):
    """The job after its claim ended."""

    job_id: str
    state: JobState
    failures: int


class ReserveIn(JobLeaseIn):
    """A worker asks for a policy server for its job."""

    wait_s: WaitS = 0.0


class ReserveOut(BaseModel):
    """A server, or the number of jobs ahead in line; `serving` 0: no open server serves the job."""

    reservation: ReservationOut | None
    ahead: int = 0
    serving: int = 0


class ReleaseIn(LeaseIn):
    """A worker is done with a policy server."""

    resource_id: str = Field(max_length=300)

    @property
    def ref(self) -> ReservationRef:
        """The same as a value of the ledger."""
        return ReservationRef(self.resource_id, self.lease_id, self.epoch)


class FinishedOut(BaseModel):
    """A completed job, and the cursor to continue from."""

    entry: int
    job: JobOut


class ResultsOut(BaseModel):
    """Completed jobs in order of completion; ask again with `after=next`, which grows when there is more."""

    results: list[FinishedOut]
    next: int


class EntryOut(BaseModel):
    """One line of the history."""

    entry: int
    at: float
    what: Happening
    job_id: str
    epoch: int
    worker: str
    resource_id: str
    note: str

    @classmethod
    def of(cls, entry: HistoryEntry) -> EntryOut:
        """Return an entry as a body, without its lease id."""
        return cls.model_construct(**{name: getattr(entry, name) for name in cls.model_fields})


class HistoryOut(BaseModel):
    """Entries in order; ask again with `after=next`."""

    entries: list[EntryOut]
    next: int


class JobChoiceIn(Body):
    """Jobs that are named, or all that match, at most `MOST_AT_ONCE` with one request."""

    job_ids: list[JobId] | None = Field(None, max_length=MOST_AT_ONCE)
    team: Name | None = None
    task: Name | None = None


_ANY_CHOICE: Final[list[Any]] = [
    {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in JobChoiceIn.model_fields
]


class RequeueIn(JobChoiceIn):
    """Which dead jobs to try again."""

    withdrawn: bool = Field(False, description="Withdrawn ones, too; jobs that are named are tried in any case.")


class RequeueOut(BaseModel):
    """The jobs that are pending again."""

    requeued: list[str]


class WithdrawIn(JobChoiceIn):
    """Which pending and running jobs to make dead."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _ANY_CHOICE})
    reason: str = Field("", max_length=2000)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.job_ids is None and self.team is None and self.task is None:
            raise ValueError("name jobs, a team or a task: without any, all jobs would be withdrawn")
        return self


class WithdrawOut(BaseModel):
    """The jobs that are dead now."""

    withdrawn: list[str]


class ReasonIn(Body):
    """The reason for an action, for the record."""

    reason: str = Field("", max_length=2000)


class FlawOut(BaseModel):
    """One value that breaks a rule."""

    field: str
    rule: str
    value: str


class ProblemOut(BaseModel):
    """An error, as RFC 9457 describes it."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    next_step: str
    errors: list[FlawOut] = []
