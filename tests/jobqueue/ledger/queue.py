"""A ledger on a store in memory, with a clock that stands still until it is told to go on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from headgate.jobqueue import (
    ClaimRequest,
    Ended,
    Happening,
    HistoryEntry,
    Instant,
    Job,
    JobSpec,
    JobState,
    LeaseRef,
    Ledger,
    Reserved,
    ResourceSpec,
    Store,
)
from headgate.jobqueue.outcomes import ReservationRef, Settled, Waiting
from headgate.jobqueue.resource import Resource
from headgate.jobqueue.stores.sqlite import MemoryStore

WALL = 1_700_000_000.0
POOL = "robots"


def spec(
    job_id: str, team: str = "team", task: str = "task", pool: str = "", priority: int = 0, max_attempts: int = 3
) -> JobSpec:
    return JobSpec(job_id, team, task, pool=pool, priority=priority, max_attempts=max_attempts)


def server(port: int, *tasks: str, pool: str = POOL, refused: Sequence[str] = ()) -> ResourceSpec:
    return ResourceSpec(pool, f"{pool}.example.com", port, frozenset(tasks), frozenset(refused))


def ref(job: Job) -> LeaseRef:
    return LeaseRef(job.job_id, job.lease_id, job.epoch)


def reservation(resource: Resource) -> ReservationRef:
    return ReservationRef(resource.resource_id, resource.lease_id, resource.epoch)


class Queue:
    """A ledger as a test uses it; everything is committed by `commit` and `restart` alone."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = (store or MemoryStore()).own("test")
        self.at = Instant(1_000.0, WALL)
        self._leases = count(1)
        self.ledger = self._loaded()

    def _loaded(self) -> Ledger:
        return Ledger(self.store, self.at, lambda: f"lease-{next(self._leases)}")

    def submit(self, *specs: JobSpec) -> None:
        self.ledger.submit(specs, self.at)

    def add(self, *specs: ResourceSpec) -> list[Resource]:
        return self.ledger.add_resources(specs, self.at)

    def claim(self, worker: str = "worker", count: int = 1, **filters: frozenset[str]) -> list[Job]:
        return list(self.ledger.claims.claim(ClaimRequest(worker, count, **filters), self.at))

    def ids(self, worker: str = "worker", count: int = 1) -> list[str]:
        """Claim, and say only which jobs."""
        return [job.job_id for job in self.claim(worker, count)]

    def one(self, worker: str = "worker") -> Job:
        (job,) = self.claim(worker)
        return job

    def fail(self, job: Job, *, retry: bool = True) -> Job:
        ended = self.ledger.claims.fail(ref(job), "it broke", self.at, retry=retry)
        assert isinstance(ended, Ended)
        return ended.job

    def reserved(self, job: Job) -> Resource:
        outcome = self.ledger.reserve(ref(job), self.at)
        assert isinstance(outcome, Reserved), outcome
        return outcome.resource

    def waits(self, job: Job) -> int:
        """Reserve in vain, and stand in line."""
        outcome = self.ledger.reserve(ref(job), self.at, wait=True)
        assert isinstance(outcome, Waiting), outcome
        return outcome.ticket

    def settle(self) -> dict[int, object]:
        settled: list[Settled] = self.ledger.settle(self.at)
        self.ledger.validate()
        return {one.ticket: one.outcome for one in settled}

    def passes(self, seconds: float, wall: float | None = None) -> list[str]:
        """Let time go on, end what is due, and return the jobs that came back."""
        self.at = Instant(self.at.now + seconds, self.at.wall + (seconds if wall is None else wall))
        return [job.job_id for job in self.ledger.expire(self.at)]

    def commit(self) -> None:
        self.store.commit(self.ledger.changes)
        self.ledger.committed()

    def restart(self) -> None:
        """Forget what is not committed, as a crash does."""
        self.ledger = self._loaded()
        self.ledger.validate()

    def job(self, job_id: str) -> Job:
        job = self.ledger.job(job_id)
        assert job is not None
        return job

    def state(self, job_id: str) -> JobState:
        return self.job(job_id).state

    def entries(self, *what: Happening) -> list[HistoryEntry]:
        """The history, after a commit of everything."""
        self.commit()
        return self.store.reader().history(-1, 100_000, what=what)
