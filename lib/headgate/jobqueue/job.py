"""A job: one (team, task, instance) that an outside worker evaluates, and the states it passes through."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

DEFAULT_MAX_ATTEMPTS: Final = 3
"""A job that failed, or whose worker died, this often is dead: it would take down one worker after another."""

WITHDRAWN: Final = "withdrawn"
"""Begins the last error of jobs that somebody has withdrawn, and of no others."""


class JobState(StrEnum):
    """A job's state; `done` and `dead` are terminal, and only `requeue` leads out of `dead`."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    DONE = "done"
    DEAD = "dead"


class Lane(NamedTuple):
    """Jobs that scheduling treats alike: the same team, the same pool of servers, the same task."""

    team: str
    pool: str
    task: str


class Place(NamedTuple):
    """A pending job's place in its lane: higher priority first, then fewer failures, then earlier submission."""

    descending_priority: int
    failures: int
    seq: int


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job as it is submitted.

    Attributes:
        job_id: chosen by the submitter, unique in the queue.
        team: whose submission is evaluated; tokens are bound to teams.
        task: what is evaluated; policy servers accept or refuse by it.
        instance: which instance of the task.
        pool: the pool whose policy servers can serve it; empty when the job needs none.
        resource_type: the legacy protocol's name for its pool.
        payload: JSON object that the worker gets, as text.
        priority: larger ones first among the jobs of one lane.
        max_attempts: failures after which it is dead.
    """

    job_id: str
    team: str
    task: str
    instance: str = ""
    pool: str = ""
    resource_type: str = ""
    payload: str = "{}"
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS

    @property
    def lane(self) -> Lane:
        """The lane it waits in."""
        return Lane(self.team, self.pool, self.task)


class Job(NamedTuple):
    """A job in the ledger.

    A named tuple because each claim and each end makes a new one: `replace` of a frozen dataclass takes three times as
    long.

    Invariants: a lease is held exactly while `in_progress`; `epoch` grows by one with every claim and never shrinks;
    `failures < max_attempts` unless dead.

    Attributes:
        seq: order of submission, unique.
        submitted_at: wall time, seconds since the epoch.
        epoch: claims so far; the fencing token of the running one.
        failures: claims that ended by `fail` or by an expired lease since it was submitted or requeued.
        lease_id: of the running claim, or of the one whose result was accepted; else empty.
        worker: the worker that holds or held that lease.
        lease_s: seconds without a renewal after which the lease is over.
        claimed_at: wall time of the latest claim, 0 before the first.
        finished_at: wall time at which it became done or dead, else 0.
        last_error: of the latest failure, else empty.
        result: JSON that the worker sent, as text; empty unless done.
        result_ref: where the full result is stored (path or URL), or empty.
        checksum: of the full result (`sha256:…`), or empty.
    """

    spec: JobSpec
    seq: int
    submitted_at: float
    state: JobState = JobState.PENDING
    epoch: int = 0
    failures: int = 0
    lease_id: str = ""
    worker: str = ""
    lease_s: float = 0.0
    claimed_at: float = 0.0
    finished_at: float = 0.0
    last_error: str = ""
    result: str = ""
    result_ref: str = ""
    checksum: str = ""

    @property
    def job_id(self) -> str:
        """The id that its submitter chose."""
        return self.spec.job_id

    @property
    def is_withdrawn(self) -> bool:
        """Whether somebody made it dead, rather than its failures."""
        return self.state is JobState.DEAD and self.last_error.startswith(WITHDRAWN)

    @property
    def place(self) -> Place:
        """Its place among the pending jobs of its lane."""
        return Place(-self.spec.priority, self.failures, self.seq)
