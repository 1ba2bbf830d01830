"""What the ledger answers: every outcome is a type of its own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from headgate.jobqueue.job import Job, JobSpec
from headgate.jobqueue.resource import Resource, ResourceSpec


class Instant(NamedTuple):
    """When an operation happens.

    Attributes:
        now: monotonic seconds, by which leases expire.
        wall: seconds since the Unix epoch, as records carry it.
    """

    now: float
    wall: float


class LeaseRef(NamedTuple):
    """A claim as its holder names it; all three must be those of the running one."""

    job_id: str
    lease_id: str
    epoch: int


class ReservationRef(NamedTuple):
    """A reservation as its holder names it."""

    resource_id: str
    lease_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ImportedJob:
    """A job with its progress in another queue: whether it was completed there, and how often it was claimed."""

    spec: JobSpec
    is_done: bool = False
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a worker asks for.

    Attributes:
        lease_s: seconds without renewal after which the jobs go to other workers.
        teams: only jobs of these; None for all.
        tasks: only jobs of these tasks; None for all.
        pools: only jobs of these pools; None for all.
        key: of the request, if it has one: a repeat is answered with the same jobs, also after a restart.
        lease_prefix: what the lease ids of its claims begin with; for requests without a key.
    """

    worker: str
    count: int = 1
    lease_s: float = 90.0
    teams: frozenset[str] | None = None
    tasks: frozenset[str] | None = None
    pools: frozenset[str] | None = None
    key: str = ""
    lease_prefix: str = ""

    def lease_id(self, job_id: str, epoch: int) -> str:
        """Return the lease id of a claim that this request leads to; as secret as the key, which must not be empty."""
        return request_mark(_digest(self.key)) + _digest(f"{self.key}\0{job_id}\0{epoch}")[:16]

    @property
    def mark(self) -> str:
        """What the lease ids of all its claims have in common."""
        return request_mark(_digest(self.key))


def request_mark(lease_id: str) -> str:
    """Return the part of a lease id that all claims of one request have in common."""
    return lease_id[:16]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Completion:
    """What a worker hands in.

    Attributes:
        result: JSON object as text.
        result_ref: where the full result is stored, or empty.
        checksum: of the full result, or empty.
    """

    result: str = "{}"
    result_ref: str = ""
    checksum: str = ""


@dataclass(frozen=True, slots=True)
class Submitted:
    """Jobs submitted: how many are new, and how many had been submitted before with the same contents."""

    added: int
    existing: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A claim has ended as requested; the job in its new state."""

    job: Job


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same completion as was accepted before; nothing was counted again."""

    job: Job


@dataclass(frozen=True, slots=True)
class Stale:
    """The lease named is not the running one; nothing changed but, perhaps, the record of a late result.

    Attributes:
        reason: one sentence: what the job's state is instead.
    """

    job_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """No job has this id."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease was renewed, along with that of the server that the job holds, if any."""

    job: Job
    resource: Resource | None


@dataclass(frozen=True, slots=True)
class Reserved:
    """A server, as the job's pool names it, is the job's until it is released, the job ends or the lease runs out."""

    resource: Resource
    spec: ResourceSpec


@dataclass(frozen=True, slots=True)
class NoneFree:
    """No server that serves the job is free.

    Attributes:
        ahead: jobs that have waited longer for the same pool.
        serving: servers that are open and would serve it; 0 means that waiting is pointless for now.
    """

    ahead: int
    serving: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """The request waits; its outcome comes with this ticket from `Ledger.settle`."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Settled:
    """What a ticket waited for: claimed jobs, a reserved server, or the end of the lease that asked for one.

    `NoneFree` answers a request whose claim asked again: the later request has taken its place in line.
    """

    ticket: int
    outcome: tuple[Job, ...] | Reserved | NoneFree | Stale


CompleteOutcome: TypeAlias = Ended | Repeated | Stale | Unknown
EndOutcome: TypeAlias = Ended | Stale | Unknown
RenewOutcome: TypeAlias = Renewed | Stale | Unknown
ReserveOutcome: TypeAlias = Reserved | NoneFree | Waiting | Stale | Unknown
