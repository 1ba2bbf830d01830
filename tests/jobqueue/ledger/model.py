"""What a job queue should do, said as simply as possible: plain tables, searched from end to end at every question."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

from headgate.jobqueue import ClaimRequest, Completion, Job, JobSpec, JobState, LeaseRef, ResourceSpec
from headgate.jobqueue.job import Lane
from headgate.jobqueue.resource import ResourceState

STALE = ("stale",)


@dataclass
class ModelJob:
    spec: JobSpec
    seq: int
    state: JobState = JobState.PENDING
    epoch: int = 0
    failures: int = 0
    lease: str = ""
    worker: str = ""
    lease_s: float = 0.0
    deadline: float = 0.0
    completion: Completion | None = None

    @property
    def place(self) -> tuple[int, int, int]:
        return -self.spec.priority, self.failures, self.seq


@dataclass
class ModelServer:
    specs: dict[str, ResourceSpec]
    home: str
    index: int
    state: ResourceState = ResourceState.OPEN
    epoch: int = 0
    job: str = ""
    lease: str | None = ""
    lease_s: float = 0.0
    deadline: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.home}/{self.index}"

    def serves(self, pool: str, task: str) -> bool:
        return pool in self.specs and self.specs[pool].serves(task)

    def is_for(self, pool: str, task: str) -> bool:
        return self.state is ResourceState.OPEN and self.serves(pool, task)


@dataclass
class Wait:
    since: float
    ticket: int
    job: str
    lease_s: float


@dataclass
class Model:
    """Tables of jobs and servers; `stored` is what a crash leaves of them."""

    jobs: dict[str, ModelJob] = field(default_factory=dict)
    servers: dict[str, ModelServer] = field(default_factory=dict)
    next_seq: int = 0
    next_index: dict[str, int] = field(default_factory=dict)
    line: list[Wait] = field(default_factory=list)
    first_asked: dict[str, float] = field(default_factory=dict)
    claims: dict[int, ClaimRequest] = field(default_factory=dict)
    leases: set[LeaseRef] = field(default_factory=set)
    late: list[LeaseRef] = field(default_factory=list)
    told: dict[int, tuple[object, ...]] = field(default_factory=dict)
    stored: Model | None = None

    # Durability.

    def commit(self) -> None:
        self.stored = None
        self.stored = deepcopy(self)

    def crash(self, now: float) -> Model:
        """What a new process finds: nobody waits, and every lease has a full period."""
        left = deepcopy(self.stored) if self.stored is not None else Model()
        left.line, left.first_asked, left.claims, left.told = [], {}, {}, {}
        for job in left.jobs.values():
            job.deadline = now + job.lease_s
        for server in left.servers.values():
            server.deadline = now + server.lease_s
        left.commit()
        return left

    # Questions.

    def running(self, ref: LeaseRef) -> ModelJob | None:
        job = self.jobs.get(ref.job_id)
        is_running = job is not None and job.state is JobState.IN_PROGRESS
        return job if is_running and (job.lease, job.epoch) == (ref.lease_id, ref.epoch) else None

    def held_by(self, job_id: str) -> ModelServer | None:
        held = [server for server in self.servers.values() if server.job == job_id]
        assert len(held) <= 1, held
        return held[0] if held else None

    def eligible(self, request: ClaimRequest) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.state is JobState.PENDING and self._admits(request, job.spec)]

    def _admits(self, request: ClaimRequest, spec: JobSpec) -> bool:
        return (
            (request.teams is None or spec.team in request.teams)
            and (request.tasks is None or spec.task in request.tasks)
            and (request.pools is None or spec.pool in request.pools)
            and (not spec.pool or any(one.is_for(spec.pool, spec.task) for one in self.servers.values()))
        )

    def keeps_late(self, ref: LeaseRef) -> bool:
        """Note a late result, where it is one to be kept."""
        of_job = [other for other in self.late if other.job_id == ref.job_id]
        is_kept = ref in self.leases and ref not in of_job and len(of_job) < 3
        if is_kept:
            self.late.append(ref)
        return is_kept

    def counts(self) -> dict[Lane, dict[JobState, int]]:
        counts: dict[Lane, dict[JobState, int]] = {}
        for job in self.jobs.values():
            counts.setdefault(job.spec.lane, dict.fromkeys(JobState, 0))[job.state] += 1
        return counts

    def next_deadline(self) -> float | None:
        deadlines = [job.deadline for job in self.jobs.values() if job.state is JobState.IN_PROGRESS]
        deadlines += [server.deadline for server in self.servers.values() if server.job]
        return min(deadlines, default=None)

    # Jobs.

    def submit(self, spec: JobSpec) -> None:
        self.jobs[spec.job_id] = ModelJob(spec, self.next_seq)
        self.next_seq += 1

    def claimed(self, request: ClaimRequest, jobs: tuple[Job, ...], now: float) -> None:
        """Follow a claim, as far as it chose among the jobs that it may choose from."""
        for job in jobs:
            own = self.jobs[job.job_id]
            eligible = self.eligible(request)
            assert own in eligible, job
            assert own.place == min(one.place for one in eligible if one.spec.lane == own.spec.lane)
            assert job.epoch == own.epoch + 1
            own.state, own.epoch, own.lease, own.worker = JobState.IN_PROGRESS, job.epoch, job.lease_id, request.worker
            self.leases.add(LeaseRef(job.job_id, job.lease_id, job.epoch))
            own.lease_s, own.deadline = request.lease_s, now + request.lease_s
        assert len(jobs) == request.count or not self.eligible(request)

    def fail(self, job: ModelJob, *, retry: bool) -> None:
        job.failures += 1
        is_dead = not retry or job.failures == job.spec.max_attempts
        self.end(job, JobState.DEAD if is_dead else JobState.PENDING)

    def end(self, job: ModelJob, state: JobState, *, keep_server: bool = False) -> None:
        job_id = job.spec.job_id
        job.state = state
        if state is not JobState.DONE:
            job.lease, job.lease_s = "", 0.0
        if state is JobState.PENDING:
            job.worker = ""
        self.first_asked.pop(job_id, None)
        for wait in [wait for wait in self.line if wait.job == job_id]:
            self.line.remove(wait)
            self.told[wait.ticket] = STALE
        held = self.held_by(job_id)
        if held is not None and not keep_server:
            self.free(held)

    def expire(self, now: float) -> list[str]:
        for server in self.servers.values():
            if server.job and server.deadline < now:
                self.free(server)
        over = [job for job in self.jobs.values() if job.state is JobState.IN_PROGRESS and job.deadline < now]
        for job in over:
            self.fail(job, retry=True)
        return [job.spec.job_id for job in over]

    def extend_all(self, now: float) -> None:
        for one in (*self.jobs.values(), *self.servers.values()):
            one.deadline = now + one.lease_s

    # Servers.

    def free(self, server: ModelServer) -> None:
        self.first_asked.pop(server.job, None)
        server.job, server.lease, server.lease_s = "", "", 0.0

    def reserve(self, job: ModelJob, now: float, lease_s: float, *, wait: bool, ticket: int) -> tuple[object, ...]:
        """Say what asking for a server comes to; `ticket` is the number of the wait, if it comes to one."""
        pool, task = job.spec.pool, job.spec.task
        self.serve(now)
        held = self.held_by(job.spec.job_id)
        if held is not None:
            held.deadline = now + held.lease_s
            return "reserved", held.name
        since = self.first_asked.setdefault(job.spec.job_id, now)
        waiters = [waiter for waiter in self._waiters() if self.jobs[waiter.job].spec.pool == pool]
        pending = {(one.spec.pool, one.spec.task) for one in self.jobs.values() if one.state is JobState.PENDING}
        kinds = {
            (one[0], frozenset(server.name for server in self.servers.values() if server.is_for(*one))): one
            for one in self._wanted() | pending
        }
        server = self._best(pool, task, set(kinds.values()))
        if server is not None:
            self._assign(server, job, now, lease_s)
            return "reserved", server.name
        ahead = sum(waiter.since < since for waiter in waiters)
        none_free = "none", ahead, sum(one.is_for(pool, task) for one in self.servers.values())
        if not wait:
            return none_free
        for waiter in waiters:
            if waiter.job == job.spec.job_id:
                self.line.remove(waiter)
                self.told[waiter.ticket] = none_free
        self.line.append(Wait(since, ticket, job.spec.job_id, lease_s))
        return "waiting", ticket

    def serve(self, now: float) -> None:
        """Give the free servers to those who wait for them."""
        wanted = self._wanted()
        for waiter in self._waiters():
            job = self.jobs[waiter.job]
            server = self._best(job.spec.pool, job.spec.task, wanted)
            if server is not None:
                self.line.remove(waiter)
                self._assign(server, job, now, waiter.lease_s)
                self.told[waiter.ticket] = ("reserved", server.name)

    def settle(self, now: float) -> dict[int, tuple[object, ...]]:
        """Serve who waits for a server, and say everything that anyone who waited for one has to be told."""
        self.serve(now)
        told, self.told = self.told, {}
        return told

    def register(self, spec: ResourceSpec) -> None:
        for server in self.servers.values():
            if _address(next(iter(server.specs.values()))) == _address(spec):
                server.specs[spec.pool] = spec
                return
        index = self.next_index.get(spec.pool, 0)
        self.next_index[spec.pool] = index + 1
        server = ModelServer({spec.pool: spec}, spec.pool, index)
        self.servers[server.name] = server

    def _waiters(self) -> list[Wait]:
        return sorted(self.line, key=lambda wait: (wait.since, wait.ticket))

    def _wanted(self) -> set[tuple[str, str]]:
        return {(self.jobs[wait.job].spec.pool, self.jobs[wait.job].spec.task) for wait in self.line}

    def _best(self, pool: str, task: str, wanted: set[tuple[str, str]]) -> ModelServer | None:
        fitting = [one for one in self.servers.values() if not one.job and one.is_for(pool, task)]
        key = lambda one: (sum(one.serves(*other) for other in wanted), one.index, one.name)  # noqa: E731
        return min(fitting, key=key, default=None)

    def _assign(self, server: ModelServer, job: ModelJob, now: float, lease_s: float) -> None:
        server.job, server.lease, server.epoch = job.spec.job_id, None, server.epoch + 1
        server.lease_s, server.deadline = lease_s, now + lease_s


def _address(spec: ResourceSpec) -> tuple[str, int]:
    return spec.host.lower().rstrip("."), spec.port
