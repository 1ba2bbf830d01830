"""What a ledger and its store exchange: what a ledger starts from, and what a group of operations changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from headgate.jobqueue.job import Job, JobState, Lane, Place
from headgate.jobqueue.resource import Resource

CLAIMS_READ: Final = 10_000
"""How many recent claims a store reads at the start: a team with none of them goes before those with some."""


class Happening(StrEnum):
    """What an entry of the history says happened."""

    SUBMITTED = "submitted"
    CLAIMED = "claimed"
    COMPLETED = "completed"
    FAILED = "failed"
    GIVEN_BACK = "given_back"
    EXPIRED = "expired"
    DIED = "died"
    REQUEUED = "requeued"
    WITHDRAWN = "withdrawn"
    LATE_RESULT = "late_result"
    RESERVED = "reserved"
    RELEASED = "released"
    RESERVATION_EXPIRED = "reservation_expired"
    RESOURCE_ADDED = "resource_added"
    RESOURCE_CHANGED = "resource_changed"
    RESOURCE_REMOVED = "resource_removed"


class HistoryEntry(NamedTuple):
    """One line of the append-only history.

    Attributes:
        entry: position in the history, unique; committed entries have no gaps.
        at: wall time, seconds since the epoch.
        job_id: of the job, or empty.
        epoch: of the claim (entries of jobs) or of the reservation (entries of resources).
        lease_id: of that claim or reservation, or empty.
        worker: the worker that held it, or empty.
        resource_id: `pool/index`, or empty.
        note: an error, a reason or a late result, as text; may be empty.
    """

    entry: int
    at: float
    what: Happening
    job_id: str = ""
    epoch: int = 0
    lease_id: str = ""
    worker: str = ""
    resource_id: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request with an idempotency key, kept for repeats of it.

    Attributes:
        key: scope and key, as the server composes them.
        fingerprint: hash of the request; the same key with another one is refused.
        body: the answer as text.
    """

    key: str
    fingerprint: str
    status: int
    body: str
    at: float


@dataclass(slots=True)
class Changes:
    """Everything that one group of operations changed; written whole or not at all.

    Attributes:
        new_jobs: by job id, in order of submission.
        changed_jobs: by job id; disjoint from `new_jobs`.
        resources: new or changed, by resource id.
        forget_before: wall times before which replies are dropped and late results emptied, or None.
    """

    new_jobs: dict[str, Job] = field(default_factory=dict)
    changed_jobs: dict[str, Job] = field(default_factory=dict)
    resources: dict[str, Resource] = field(default_factory=dict)
    removed_resources: set[str] = field(default_factory=set)
    history: list[HistoryEntry] = field(default_factory=list)
    replies: dict[str, Reply] = field(default_factory=dict)
    forget_before: tuple[float, float] | None = None

    def __bool__(self) -> bool:
        """True when there is anything to write."""
        return bool(
            self.new_jobs or self.changed_jobs or self.resources or self.removed_resources or self.history
            or self.replies or self.forget_before is not None
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a ledger starts from.

    Attributes:
        counts: jobs of each lane by state; states without jobs may be absent.
        firsts: a place in each lane with pending jobs that is not behind that of its first one.
        withdrawn: team -> how many of its dead jobs somebody withdrew.
        in_progress: every job that a worker holds.
        next_seq: greater than every job's `seq`.
        next_entry: greater than every entry of the history.
        next_index: pool -> greater than every index ever used in it.
        last_claims: team -> entry of its last claim, for teams that made one of the last `CLAIMS_READ` claims.
    """

    counts: Mapping[Lane, Mapping[JobState, int]]
    firsts: Mapping[Lane, Place]
    withdrawn: Mapping[str, int]
    in_progress: Sequence[Job]
    resources: Sequence[Resource]
    next_seq: int
    next_entry: int
    next_index: Mapping[str, int]
    last_claims: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs a listing shows, in order of `seq`.

    Attributes:
        teams: only jobs of these; None for all, empty for none.
        after: only jobs with a greater `seq`.
    """

    state: JobState | None = None
    teams: frozenset[str] | None = None
    task: str | None = None
    pool: str | None = None
    after: int = -1
    limit: int = 100


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A completed job, with the history entry of its completion: the cursor for collecting results."""

    entry: int
    job: Job
