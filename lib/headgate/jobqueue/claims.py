"""Claims: which worker runs which job, until when, and what becomes of the job when the claim ends."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from headgate.core import TimerHeap
from headgate.jobqueue.job import WITHDRAWN, Job, JobState, Lane, Place
from headgate.jobqueue.outcomes import (
    ClaimRequest,
    CompleteOutcome,
    Completion,
    Ended,
    EndOutcome,
    Instant,
    LeaseRef,
    Renewed,
    RenewOutcome,
    Repeated,
    Stale,
    Unknown,
    request_mark,
)
from headgate.jobqueue.records import Happening
from headgate.jobqueue.reservations import Reservations
from headgate.jobqueue.working_set import WorkingSet

ERROR_CHARS: Final = 4_000
"""Longer error messages of workers are truncated."""

LATE_RESULTS_PER_JOB: Final = 3
LATE_RESULTS_KEPT_S: Final = 7 * 24 * 3600.0
"""Late results show why a lease was lost: a job's first few are kept, truncated like errors."""

_Turn = tuple[tuple[float | Place, ...], Lane, Lane]
"""A group's turn, smallest first: what decides it, the group, and the lane of its next job. What decides: load,
descending priority, the team's share of the pool, the history entry of the team's last claim, place in the line."""


class Claims:
    """The jobs' half of the ledger, which owns it.

    Invariants: a claim is running exactly while its job is in progress; that job's failures are below `max_attempts`.

    Claims that are running at construction get a full lease period from then.

    Attributes:
        has_returned: whether a job has become pending again since this was last set to False.
    """

    def __init__(
        self, working_set: WorkingSet, servers: Reservations, new_lease_id: Callable[[], str], now: float
    ) -> None:
        self.has_returned = False
        self._working_set = working_set
        self._servers = servers
        self._new_lease_id = new_lease_id
        self._deadlines = TimerHeap()
        self._by_worker: dict[str, set[str]] = {}
        self._by_request: dict[str, set[str]] = {}
        self._asked_again: set[str] = set()
        self._last_claims = working_set.last_claims
        for job in working_set.running.values():
            self._watch(job, now)
            servers.loads.started(job)
            held = servers.held_by(job.job_id)
            if held is not None:
                servers.loads.reserved(job.job_id, held.resource_id)

    def claim(self, request: ClaimRequest, at: Instant) -> tuple[Job, ...]:
        """Hand out up to `count` jobs, those whose servers have the fewest jobs ahead first.

        Lanes that no open server serves are skipped. Among equals a higher priority goes first, then the team that uses
        the smaller share of its pool's servers, then the one whose last claim is the oldest: teams take turns. A team's
        own jobs go by priority, failures and order of submission.
        """
        loads = {group: self._servers.loads.of(group) for group in self._servers.groups.admitted(request)}
        # An entry's real turn may be later: at first only loads are compared, so that few groups' jobs are read.
        turns: list[_Turn] = [((load,), group, group) for group, load in loads.items() if load is not None]
        heapq.heapify(turns)
        claimed: list[Job] = []
        while turns and len(claimed) < request.count:
            _, group, lane = turn = turns[0]
            current = self._turn(group, request)
            if current == turn:
                claimed.append(self._start(self._working_set.lanes.pop(lane), request, at))
                current = self._turn(group, request)
            if current is None:
                heapq.heappop(turns)
            else:
                heapq.heapreplace(turns, current)
        return tuple(claimed)

    def again(self, request: ClaimRequest, at: Instant) -> tuple[Job, ...]:
        """Return the jobs that a request with this key already got and still holds, each with its lease renewed."""
        if not request.key:
            return ()
        marked = [self._working_set.running[job_id] for job_id in self._by_request.get(request.mark, ())]
        jobs = [job for job in marked if job.worker == request.worker]
        for job in jobs:
            self._deadlines.set(job.job_id, at.now + job.lease_s)
            self._asked_again.add(job.lease_id)
        return tuple(jobs)

    def take_back(self, job: Job, at: Instant, reason: str) -> None:
        """Give back a job whose worker never got the answer, unless the worker has asked again since."""
        if job.lease_id not in self._asked_again:
            self.give_back(LeaseRef(job.job_id, job.lease_id, job.epoch), at, reason)

    def renew(self, ref: LeaseRef, at: Instant, *, with_server: bool = True) -> RenewOutcome:
        """Give a claim, and the server that it holds, a new lease period."""
        job = self.running(ref)
        if not isinstance(job, Job):
            return job
        self._deadlines.set(job.job_id, at.now + job.lease_s)
        resource = self._servers.held_by(job.job_id)
        if resource is not None and with_server:
            self._servers.renew(resource.resource_id, at)
        return Renewed(job, resource)

    def complete(
        self, ref: LeaseRef, completion: Completion, at: Instant, *, keep_server: bool = False
    ) -> CompleteOutcome:
        """Accept a result, once; with `keep_server` the worker releases its server itself, as legacy ones do."""
        job = self._working_set.job(ref.job_id)
        if job is None:
            return Unknown(ref.job_id)
        if not _is_running(job, ref):
            return self._late(job, ref, completion, at)
        # In the order of the fields: `_replace` takes three times as long, and this is done for each job.
        done = Job(
            job.spec, job.seq, job.submitted_at, JobState.DONE, job.epoch, job.failures, job.lease_id, job.worker,
            job.lease_s, job.claimed_at, at.wall, job.last_error, completion.result, completion.result_ref,
            completion.checksum,
        )  # fmt: skip
        self._end(done, Happening.COMPLETED, at, keep_server=keep_server)
        return Ended(done)

    def fail(self, ref: LeaseRef, error: str, at: Instant, *, retry: bool = True) -> EndOutcome:
        """End a claim whose work failed; with `retry`, the job is tried again until its `max_attempts` are used up."""
        job = self.running(ref)
        if not isinstance(job, Job):
            return job
        return Ended(self._failed(job, error, Happening.FAILED, at, retry=retry))

    def give_back(self, ref: LeaseRef, at: Instant, reason: str = "") -> EndOutcome:
        """End a claim without a result and without counting a failure: the job returns to its old place in line."""
        job = self.running(ref)
        if not isinstance(job, Job):
            return job
        return Ended(self._end(job._replace(state=JobState.PENDING), Happening.GIVEN_BACK, at, note=reason))

    def withdraw(self, dead: Job, reason: str, at: Instant) -> Job:
        """End the claim of a running job, given as the dead job that it becomes; return the job as stored."""
        return self._end(dead, Happening.WITHDRAWN, at, note=reason)

    def expire(self, at: Instant) -> list[Job]:
        """End the claims that were not renewed in time; return their jobs as they were while running."""
        ended: list[Job] = []
        for job_id in self._deadlines.pop_passed(at.now):
            job = self._working_set.running[job_id]
            error = f"worker {job.worker!r} sent no heartbeat for {job.lease_s:g} s"
            self._failed(job, error, Happening.EXPIRED, at)
            ended.append(job)
        return ended

    def extend_all(self, at: Instant) -> None:
        """Give every running claim a full new period."""
        for job in self._working_set.running.values():
            self._deadlines.set(job.job_id, at.now + job.lease_s)

    def next_deadline(self) -> float | None:
        """Return when the next claim expires unless it is renewed."""
        return self._deadlines.next_at()

    def of_worker(self, worker: str) -> list[Job]:
        """Return the jobs that a worker holds, by order of submission."""
        jobs = [self._working_set.running[job_id] for job_id in self._by_worker.get(worker, ())]
        return sorted(jobs, key=lambda job: job.seq)

    @property
    def workers(self) -> int:
        """Workers that hold a job."""
        return len(self._by_worker)

    def _turn(self, group: Lane, request: ClaimRequest) -> _Turn | None:
        """Return a group's turn as things are now, or a lane's if the request names tasks; None without jobs."""
        lanes, loads = self._working_set.lanes, self._servers.loads
        lane = self._servers.groups.first(group) if request.tasks is None else group
        if lane is None or not lanes.has_pending(lane) or (load := loads.of(group)) is None:
            return None
        place, share = lanes.first(lane).place, loads.share(lane.team, lane.pool)
        return (load, place[0], share, self._last_claims.get(lane.team, -1), place), group, lane

    def _start(self, job: Job, request: ClaimRequest, at: Instant) -> Job:
        epoch = job.epoch + 1
        lease_id = request.lease_id(job.job_id, epoch) if request.key else request.lease_prefix + self._new_lease_id()
        running = Job(
            job.spec, job.seq, job.submitted_at, JobState.IN_PROGRESS, epoch, job.failures, lease_id, request.worker,
            request.lease_s, at.wall, *job[10:],
        )  # fmt: skip
        self._working_set.put(running, JobState.PENDING)
        self._last_claims[job.spec.team] = self._working_set.note_job(Happening.CLAIMED, running, at.wall)
        self._watch(running, at.now)
        self._servers.loads.started(running)
        return running

    def _watch(self, job: Job, now: float) -> None:
        self._deadlines.set(job.job_id, now + job.lease_s)
        self._by_worker.setdefault(job.worker, set()).add(job.job_id)
        self._by_request.setdefault(request_mark(job.lease_id), set()).add(job.job_id)

    def running(self, ref: LeaseRef) -> Job | Stale | Unknown:
        """Return the job whose running claim `ref` names, or why there is none."""
        job = self._working_set.running.get(ref.job_id)
        if job is not None and _is_running(job, ref):
            return job
        job = job or self._working_set.job(ref.job_id)
        return Unknown(ref.job_id) if job is None else Stale(ref.job_id, _why_stale(job))

    def _failed(self, job: Job, error: str, what: Happening, at: Instant, *, retry: bool = True) -> Job:
        failures = job.failures + 1
        is_dead = not retry or failures >= job.spec.max_attempts
        ended = job._replace(
            state=JobState.DEAD if is_dead else JobState.PENDING,
            failures=failures,
            last_error=f"{'failed: ' * error.startswith(WITHDRAWN)}{error}"[:ERROR_CHARS],
            finished_at=at.wall if is_dead else 0.0,
        )
        as_it_is_now = self._end(ended, what, at, note=ended.last_error)
        if is_dead:
            self._working_set.note_job(Happening.DIED, ended, at.wall, ended.last_error)
        return as_it_is_now

    def _end(self, job: Job, what: Happening, at: Instant, *, note: str = "", keep_server: bool = False) -> Job:
        """End the running claim of a job, given in its new state; return the job as stored."""
        job_id = job.job_id
        held = self._servers.held_by(job_id)
        self._working_set.note_job(what, job, at.wall, note, resource_id=held.resource_id if held else "")
        self._deadlines.set(job_id, None)
        self._asked_again.discard(job.lease_id)
        _discard(self._by_worker, job.worker, job_id)
        _discard(self._by_request, request_mark(job.lease_id), job_id)
        self._servers.job_ended(job, at, keep_server=keep_server)
        if job.state is JobState.PENDING:
            job = job._replace(lease_id="", worker="", lease_s=0.0)
            self.has_returned = True
        elif job.state is JobState.DEAD:
            job = job._replace(lease_id="", lease_s=0.0)  # keeps `worker`, to tell on which node it died
        self._working_set.put(job, JobState.IN_PROGRESS)
        return job

    def _late(self, job: Job, ref: LeaseRef, completion: Completion, at: Instant) -> Repeated | Stale:
        is_same = (job.result, job.result_ref, job.checksum) == (
            completion.result,
            completion.result_ref,
            completion.checksum,
        )
        if job.state is JobState.DONE and (job.lease_id, job.epoch) == (ref.lease_id, ref.epoch) and is_same:
            return Repeated(job)
        if self._keeps_late_result(ref):
            late = job._replace(epoch=ref.epoch, lease_id=ref.lease_id)
            self._working_set.note_job(Happening.LATE_RESULT, late, at.wall, completion.result[:ERROR_CHARS])
        return Stale(ref.job_id, _why_stale(job))

    def _keeps_late_result(self, ref: LeaseRef) -> bool:
        """Return whether `ref` was once a lease and has no late result yet, and its job has few of them.

        Otherwise any client that may complete jobs could fill the database.
        """
        entries = self._working_set.entries
        claimed = entries(ref.job_id, Happening.CLAIMED, 1, lease_id=ref.lease_id)
        if not claimed or claimed[0].epoch != ref.epoch:
            return False
        late = entries(ref.job_id, Happening.LATE_RESULT, LATE_RESULTS_PER_JOB)
        return len(late) < LATE_RESULTS_PER_JOB and all(one.lease_id != ref.lease_id for one in late)

    def validate(self) -> None:
        """Assert the invariants."""
        self._deadlines.validate()
        running = self._working_set.running
        assert len(self._deadlines) == len(running) == self._working_set.lanes.totals[JobState.IN_PROGRESS]
        for index in (self._by_worker, self._by_request):
            assert {job_id for jobs in index.values() for job_id in jobs} == set(running)
        for job in running.values():
            assert job.state is JobState.IN_PROGRESS
            assert job.lease_id
            assert job.failures < job.spec.max_attempts, job


def _discard(index: dict[str, set[str]], key: str, job_id: str) -> None:
    found = index[key]
    found.discard(job_id)
    if not found:
        del index[key]


def _is_running(job: Job, ref: LeaseRef) -> bool:
    return job.state is JobState.IN_PROGRESS and (job.lease_id, job.epoch) == (ref.lease_id, ref.epoch)


def _why_stale(job: Job) -> str:
    match job.state:
        case JobState.IN_PROGRESS:
            return f"the job runs as epoch {job.epoch} on another lease"
        case JobState.PENDING:
            return f"the lease ended (epoch {job.epoch}) and the job waits to be claimed again"
        case JobState.DONE:
            return f"the job was done by epoch {job.epoch}"
        case JobState.DEAD:
            return f"the job is dead: {job.last_error or 'no reason was given'}"
