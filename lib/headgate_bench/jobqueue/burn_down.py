"""A burn-down: jobs claimed and completed in batches until none is left, durably, through the ledger's own thread."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from headgate.core import SystemClock
from headgate.jobqueue import (
    ClaimRequest,
    Completion,
    Ended,
    Instant,
    Job,
    JobSpec,
    JobState,
    LeaseRef,
    Ledger,
    LedgerWriter,
    Store,
)
from headgate.jobqueue.stores import open_store

_SUBMITTED_AT_ONCE: Final = 5_000
_RESULT: Final = '{"q_score":0.5,"trajectory":"s3://results/team/task/0.json"}'
_PAYLOAD: Final = '{"instance_basename":"task_0_0_template-tro_state.json","seed":12345}'


@dataclass(frozen=True, slots=True)
class Burned:
    """The result of a burn-down."""

    jobs: int  # jobs claimed and completed, each counted once
    seconds: float  # from the first claim to the last completion
    cpu_s: float  # CPU time of the process that claimed
    commits: int  # number of transactions
    submitted_per_s: float  # rate at which the jobs were submitted

    @property
    def per_s(self) -> float:
        """Jobs per second."""
        return self.jobs / self.seconds


def specs(count: int, *, lanes: int = 4) -> list[JobSpec]:
    """Return jobs that need no policy server."""
    return [
        JobSpec(f"job-{n:08d}", f"team-{n % lanes}", f"task-{n % lanes}", str(n), payload=_PAYLOAD)
        for n in range(count)
    ]


def submit(writer: LedgerWriter, jobs: list[JobSpec]) -> None:
    """Submit jobs, some thousand at once."""
    for first in range(0, len(jobs), _SUBMITTED_AT_ONCE):
        some = jobs[first : first + _SUBMITTED_AT_ONCE]
        writer.submit(lambda ledger, at, some=some: ledger.submit(some, at)).result()  # type: ignore[misc]


def burn_down(database: str, count: int, *, batch: int, workers: int) -> Burned:
    """Submit jobs, let callers claim and complete them in batches, and check that all are done in the store."""
    store = open_store(database)
    writer = LedgerWriter(store, SystemClock(), "headgate bench")
    writer.open()
    try:
        begun = time.perf_counter()
        submit(writer, specs(count))
        submitted_s = time.perf_counter() - begun
        commits, cpu = writer.figures.commits, time.process_time()
        begun = time.perf_counter()
        asyncio.run(_burn(writer, batch, workers))
        seconds = time.perf_counter() - begun
        cpu, commits = time.process_time() - cpu, writer.figures.commits - commits
    finally:
        writer.close()
    return Burned(_done(store, count), seconds, cpu, commits, count / submitted_s)


async def _burn(writer: LedgerWriter, batch: int, workers: int) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            group.create_task(_work(writer, ClaimRequest(f"worker-{number}", batch)))


async def _work(writer: LedgerWriter, request: ClaimRequest) -> None:
    while jobs := await writer.do(lambda ledger, at: ledger.claims.claim(request, at)):
        completed = await writer.do(lambda ledger, at, jobs=jobs: _complete(ledger, jobs, at))  # type: ignore[misc]
        assert completed == len(jobs), "every lease is the running one"


def _complete(ledger: Ledger, jobs: tuple[Job, ...], at: Instant) -> int:
    completion = Completion(_RESULT)
    outcomes = [ledger.claims.complete(LeaseRef(job.job_id, job.lease_id, job.epoch), completion, at) for job in jobs]
    return sum(isinstance(outcome, Ended) for outcome in outcomes)


def _done(store: Store, count: int) -> int:
    store.own("headgate bench")
    try:
        done = sum(states.get(JobState.DONE, 0) for states in store.load().counts.values())
    finally:
        store.close()
    assert done == count, f"{done} of {count} jobs are done"
    return done
