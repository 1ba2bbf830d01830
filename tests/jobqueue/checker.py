"""An independent judge of a job queue: reads its history and its jobs, and says everything that must not have happened.

It shares no code with the ledger, only the shapes of what is written down. Whoever tests a queue from outside collects
what clients were told (`Told`), kills what he likes, and holds `violations_in(store.reader(), …)` to an empty list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headgate.jobqueue import Happening, HistoryEntry, Job, JobQuery, JobState, Reader
from headgate.jobqueue.resource import Resource

_PAGE = 5_000
_ENDS = {Happening.COMPLETED, Happening.FAILED, Happening.GIVEN_BACK, Happening.EXPIRED, Happening.WITHDRAWN}
_BLAMES = {Happening.FAILED, Happening.EXPIRED}


@dataclass(frozen=True, slots=True)
class Told:
    """What a client was told, and may rely on ever after.

    Attributes:
        what: submitted, claimed, completed, failed, given back, reserved, released, requeued or withdrawn.
        job_id: which job.
        lease_id: of the claim or reservation; empty when the client has none (submission).
        epoch: of the same; not looked at without a lease.
        worker: who was told; two workers must not be given one claim.
        resource_id: which server, or empty.
        result: that was accepted, as text; None when it was none.
    """

    what: Happening
    job_id: str
    lease_id: str = ""
    epoch: int = 0
    worker: str = ""
    resource_id: str = ""
    result: str | None = None


@dataclass(slots=True)
class _JobTrail:
    """What the history says of one job so far."""

    state: JobState
    epoch: int
    lease_id: str = ""
    worker: str = ""
    failures: int = 0
    accepted: int = 0
    last: Happening = Happening.SUBMITTED


@dataclass(slots=True)
class _ServerTrail:
    """What the history says of one server so far."""

    epoch: int = 0
    lease_id: str = ""
    job_id: str = ""
    is_removed: bool = False


@dataclass(slots=True)
class _Checker:
    max_attempts: dict[str, int]
    found: list[str] = field(default_factory=list)
    jobs: dict[str, _JobTrail] = field(default_factory=dict)
    servers: dict[str, _ServerTrail] = field(default_factory=dict)
    leases: set[str] = field(default_factory=set)

    def follow(self, entries: Iterable[HistoryEntry]) -> None:
        before: HistoryEntry | None = None
        for entry in entries:
            if before is not None and entry.entry != before.entry + 1:
                self._blame(entry, f"follows entry {before.entry}")
            before = entry
            if entry.what in {Happening.RESERVED, Happening.RELEASED, Happening.RESERVATION_EXPIRED}:
                self._reservation(entry)
            elif entry.what in {Happening.RESOURCE_ADDED, Happening.RESOURCE_CHANGED, Happening.RESOURCE_REMOVED}:
                self._server(entry)
            else:
                self._job(entry)

    # Jobs.

    def _job(self, entry: HistoryEntry) -> None:
        job = self.jobs.get(entry.job_id)
        if entry.what is Happening.SUBMITTED:
            if job is not None:
                self._blame(entry, "the job had been submitted")
            state = JobState.DONE if entry.note == "already done" else JobState.PENDING
            self.jobs[entry.job_id] = _JobTrail(state, entry.epoch)
        elif job is None:
            self._blame(entry, "nobody had submitted the job")
        elif entry.what is Happening.LATE_RESULT:
            if _is_running(job, entry):
                self._blame(entry, "the result came from the running claim")
        else:
            self._moved(entry, job)
            job.last = entry.what

    def _moved(self, entry: HistoryEntry, job: _JobTrail) -> None:
        if entry.what is Happening.CLAIMED:
            self._claimed(entry, job)
        elif entry.what in _ENDS:
            self._ended(entry, job)
        elif entry.what is Happening.DIED:
            if job.last not in _BLAMES or job.state is not JobState.PENDING:
                self._blame(entry, f"the job was {job.state} after {job.last}")
            job.state, job.worker = JobState.DEAD, entry.worker
        else:
            if job.state is not JobState.DEAD:
                self._blame(entry, f"the job was {job.state}")
            job.state, job.failures, job.worker = JobState.PENDING, 0, ""

    def _claimed(self, entry: HistoryEntry, job: _JobTrail) -> None:
        if job.state is not JobState.PENDING:
            self._blame(entry, f"the job was {job.state} (epoch {job.epoch}, lease {job.lease_id!r})")
        if entry.epoch != job.epoch + 1:
            self._blame(entry, f"epoch {entry.epoch} follows {job.epoch}")
        if job.failures >= self.max_attempts.get(entry.job_id, job.failures + 1):
            self._blame(entry, f"the job had failed {job.failures} times")
        self._new_lease(entry)
        if held := [name for name, one in self.servers.items() if one.lease_id and one.job_id == entry.job_id]:
            self._blame(entry, f"an earlier claim still holds server {held[0]}")
        job.state, job.epoch, job.lease_id, job.worker = (
            JobState.IN_PROGRESS,
            entry.epoch,
            entry.lease_id,
            entry.worker,
        )

    def _ended(self, entry: HistoryEntry, job: _JobTrail) -> None:
        if entry.what is Happening.WITHDRAWN:
            if job.state in {JobState.DONE, JobState.DEAD}:
                self._blame(entry, f"the job was {job.state}")
        elif not _is_running(job, entry):
            self._blame(entry, f"the job was {job.state} (epoch {job.epoch}, lease {job.lease_id!r})")
        if entry.what is Happening.COMPLETED:
            job.accepted += 1
            if job.accepted > 1:
                self._blame(entry, f"{job.accepted} results were accepted")
        job.failures += entry.what in _BLAMES
        job.state = {Happening.COMPLETED: JobState.DONE, Happening.WITHDRAWN: JobState.DEAD}.get(
            entry.what, JobState.PENDING
        )
        if job.state is not JobState.DONE:
            job.lease_id = ""
        if job.state is JobState.PENDING:
            job.worker = ""

    # Servers.

    def _reservation(self, entry: HistoryEntry) -> None:
        server = self.servers.get(entry.resource_id)
        if server is None or server.is_removed:
            self._blame(entry, "there was no such server")
            return
        if entry.what is Happening.RESERVED:
            self._reserved(entry, server)
            server.epoch, server.lease_id, server.job_id = entry.epoch, entry.lease_id, entry.job_id
            return
        if not server.lease_id or (server.lease_id, server.epoch, server.job_id) != (
            entry.lease_id,
            entry.epoch,
            entry.job_id,
        ):
            self._blame(entry, f"the server was held by {server.job_id or 'nobody'!r} (epoch {server.epoch})")
        server.lease_id = server.job_id = ""

    def _reserved(self, entry: HistoryEntry, server: _ServerTrail) -> None:
        if server.lease_id:
            self._blame(entry, f"the server was held by {server.job_id!r}")
        if entry.epoch != server.epoch + 1:
            self._blame(entry, f"epoch {entry.epoch} follows {server.epoch}")
        self._new_lease(entry)
        job = self.jobs.get(entry.job_id)
        if job is None or job.state is not JobState.IN_PROGRESS:
            self._blame(entry, f"the job was {job.state if job else 'unknown'}")
        elif job.worker != entry.worker:
            self._blame(entry, f"the job was held by {job.worker!r}")
        for name, other in self.servers.items():
            if other.lease_id and other.job_id == entry.job_id:
                self._blame(entry, f"the job held server {name}")

    def _server(self, entry: HistoryEntry) -> None:
        server = self.servers.get(entry.resource_id)
        if entry.what is Happening.RESOURCE_ADDED:
            if server is not None:
                self._blame(entry, "this number had been given to a server")
            self.servers[entry.resource_id] = _ServerTrail()
        elif server is None or server.is_removed:
            self._blame(entry, "there was no such server")
        elif entry.what is Happening.RESOURCE_REMOVED:
            if server.lease_id:
                self._blame(entry, f"the server was held by {server.job_id!r}")
            server.is_removed = True

    # The end of the history, against what is stored.

    def compare_jobs(self, jobs: Sequence[Job]) -> None:
        for job_id, number in Counter(job.job_id for job in jobs).items():
            if number > 1:
                self.found.append(f"job {job_id!r} is stored {number} times")
        stored = {job.job_id: job for job in jobs}
        self.found += [f"job {job_id!r} was submitted and is lost" for job_id in self.jobs.keys() - stored.keys()]
        self.found += [
            f"job {job_id!r} is stored and was never submitted" for job_id in stored.keys() - self.jobs.keys()
        ]
        for job_id in self.jobs.keys() & stored.keys():
            trail, job = self.jobs[job_id], stored[job_id]
            said = (trail.state, trail.epoch, trail.failures, trail.lease_id, trail.worker)
            kept = (job.state, job.epoch, job.failures, job.lease_id, job.worker)
            if said != kept:
                self.found.append(f"job {job_id!r} is {_shown(kept)}, and by its history {_shown(said)}")
            if trail.state is not JobState.DEAD and trail.failures >= job.spec.max_attempts:
                self.found.append(f"job {job_id!r} failed {trail.failures} times and is {trail.state}")

    def compare_servers(self, resources: Sequence[Resource]) -> None:
        stored = {one.resource_id: (one.epoch, one.lease_id, one.job_id) for one in resources}
        followed = {
            name: (one.epoch, one.lease_id, one.job_id) for name, one in self.servers.items() if not one.is_removed
        }
        for name in stored.keys() | followed.keys():
            if stored.get(name) != followed.get(name):
                self.found.append(
                    f"server {name} is {_shown(stored.get(name))}, and by its history {_shown(followed.get(name))}"
                )

    def check_holders(self) -> None:
        for name, server in self.servers.items():
            job = self.jobs.get(server.job_id)
            # A worker of the seed completes its job first and releases its server afterwards.
            if server.lease_id and (job is None or job.state not in {JobState.IN_PROGRESS, JobState.DONE}):
                self.found.append(
                    f"server {name} is held by job {server.job_id!r}, which is {job.state if job else 'unknown'}"
                )

    def _new_lease(self, entry: HistoryEntry) -> None:
        if not entry.lease_id:
            self._blame(entry, "there is no lease id")
        elif entry.lease_id in self.leases:
            self._blame(entry, f"lease {entry.lease_id!r} was used before")
        self.leases.add(entry.lease_id)

    def _blame(self, entry: HistoryEntry, why: str) -> None:
        about = " ".join(filter(None, (entry.job_id, entry.resource_id)))
        self.found.append(f"entry {entry.entry}, {entry.what} {about}: {why}")


def violations(
    entries: Iterable[HistoryEntry],
    jobs: Sequence[Job],
    resources: Sequence[Resource] | None = None,
    told: Sequence[Told] = (),
) -> list[str]:
    """Return a sentence for everything that must not have happened; none for a queue that kept its promises.

    Args:
        entries: the whole history, in order.
        jobs: every job as stored after the last entry.
        resources: every server as stored then; None when they are not known.
        told: what clients were told.
    """
    entries = list(entries)
    checker = _Checker({job.job_id: job.spec.max_attempts for job in jobs})
    checker.follow(entries)
    checker.compare_jobs(jobs)
    checker.check_holders()
    if resources is not None:
        checker.compare_servers(resources)
    return checker.found + _untrue(entries, jobs, told)


def violations_in(reader: Reader, resources: Sequence[Resource] | None = None, told: Sequence[Told] = ()) -> list[str]:
    """As `violations`, of what a reader of the store finds; nobody may be writing."""
    return violations(all_entries(reader), all_jobs(reader), resources, told)


def all_entries(reader: Reader) -> list[HistoryEntry]:
    """Return the whole history."""
    entries: list[HistoryEntry] = []
    while page := reader.history(entries[-1].entry if entries else -1, _PAGE):
        entries += page
    return entries


def all_jobs(reader: Reader) -> list[Job]:
    """Return every job."""
    jobs: list[Job] = []
    while page := reader.jobs(JobQuery(after=jobs[-1].seq if jobs else -1, limit=_PAGE)):
        jobs += page
    return jobs


def _untrue(entries: Sequence[HistoryEntry], jobs: Sequence[Job], told: Sequence[Told]) -> list[str]:
    """Return which of the things that clients were told are not in the books."""
    happened: set[tuple[object, ...]] = set()
    for one in entries:
        happened.add((one.what, one.job_id))
        happened.add((one.what, one.job_id, one.lease_id, one.epoch))
        happened.add((one.what, one.job_id, one.lease_id, one.epoch, one.resource_id))
    results = {job.job_id: job.result for job in jobs}
    found: list[str] = []
    holders: dict[tuple[str, int], tuple[str, str]] = {}
    for fact in told:
        key: tuple[object, ...] = (fact.what, fact.job_id)
        if fact.lease_id:
            key += (fact.lease_id, fact.epoch)
            if fact.resource_id:
                key += (fact.resource_id,)
        if key not in happened:
            found.append(
                f"{fact.worker or 'a client'} was told {fact.what} of {_shown(key[1:])}, which is not recorded"
            )
        if fact.what is Happening.COMPLETED and fact.result is not None and results.get(fact.job_id) != fact.result:
            found.append(f"the accepted result of job {fact.job_id!r} is not the one that is stored")
        if fact.what is Happening.CLAIMED:
            holder = holders.setdefault((fact.job_id, fact.epoch), (fact.worker, fact.lease_id))
            if holder != (fact.worker, fact.lease_id):
                found.append(
                    f"epoch {fact.epoch} of job {fact.job_id!r} was given to {holder[0]!r} and to {fact.worker!r}"
                )
    return found


def _is_running(job: _JobTrail, entry: HistoryEntry) -> bool:
    return job.state is JobState.IN_PROGRESS and (job.lease_id, job.epoch) == (entry.lease_id, entry.epoch)


def _shown(values: tuple[object, ...] | None) -> str:
    return "not there" if values is None else " ".join(str(value) or "-" for value in values)
