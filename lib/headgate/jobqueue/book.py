"""The ledger's book: what is in motion, what has changed since the last commit, and where to look the rest up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headgate.jobqueue.job import Job, JobState, Lane, Place
from headgate.jobqueue.lanes import Fetched, Lanes, corrected
from headgate.jobqueue.port import Changes, Happening, HistoryEntry, Snapshot, Store
from headgate.jobqueue.resource import Resource


class Book:
    """Jobs and servers as they are now, committed or not; owned by one ledger.

    Args:
        store: holds what was committed.
        snapshot: its contents at the start.
    """

    def __init__(self, store: Store, snapshot: Snapshot) -> None:
        self.running = {job.job_id: job for job in snapshot.in_progress}
        self.resources = {resource.resource_id: resource for resource in snapshot.resources}
        self.lanes = Lanes(snapshot.counts, self._fetch)
        self._store = store
        self._changes = Changes()
        self._lined_up: dict[Lane, dict[str, Job]] = {}
        self._seq = snapshot.next_seq
        self._entry = snapshot.next_entry
        self._next_index = dict(snapshot.next_index)
        self.last_claims = dict(snapshot.last_claims)

    @property
    def changes(self) -> Changes:
        """What has changed since the last commit."""
        return self._changes

    def committed(self) -> None:
        """Begin anew: everything up to now is in the store."""
        self._changes = Changes()
        self._lined_up.clear()
        self.lanes.committed()

    def next_seq(self) -> int:
        """Return the place of the next job in the order of submission."""
        self._seq += 1
        return self._seq - 1

    def next_index(self, pool: str) -> int:
        """Return the next server's number in its pool."""
        index = self._next_index.get(pool, 0)
        self._next_index[pool] = index + 1
        return index

    def job(self, job_id: str) -> Job | None:
        """Return a job, or None."""
        job = self.running.get(job_id)
        return job if job is not None else self.jobs((job_id,)).get(job_id)

    def jobs(self, job_ids: Sequence[str]) -> dict[str, Job]:
        """Return those of the jobs that exist, by id."""
        new, changed, running = self._changes.new_jobs, self._changes.changed_jobs, self.running
        found: dict[str, Job] = {}
        stored: list[str] = []
        for job_id in job_ids:
            job = new.get(job_id) or changed.get(job_id) or running.get(job_id)
            if job is None:
                stored.append(job_id)
            else:
                found[job_id] = job
        if stored:
            found.update(self._store.jobs(stored))
        return found

    def entries(self, job_id: str, what: Happening, limit: int, *, lease_id: str | None = None) -> list[HistoryEntry]:
        """Return the first entries of a kind about a job, or about one lease on it, committed or not."""
        new = (
            one
            for one in self._changes.history
            if (one.job_id, one.what) == (job_id, what) and lease_id in {None, one.lease_id}
        )
        return [*self._store.entries(job_id, what, limit, lease_id=lease_id), *new][:limit]

    def add(self, job: Job) -> None:
        """Take in a new job."""
        self._changes.new_jobs[job.job_id] = job
        self._line_up(job)
        self.lanes.moved(job, None)

    def put(self, job: Job, before: JobState) -> None:
        """Take in a job that has changed; `before` is the state that it had."""
        if job.job_id in self._changes.new_jobs:
            self._changes.new_jobs[job.job_id] = job
        else:
            self._changes.changed_jobs[job.job_id] = job
        if job.state is JobState.IN_PROGRESS:
            self.running[job.job_id] = job
        else:
            self.running.pop(job.job_id, None)
        self._line_up(job)
        self.lanes.moved(job, before)

    def put_resource(self, resource: Resource) -> None:
        """Take in a new or changed server."""
        self.resources[resource.resource_id] = resource
        self._changes.resources[resource.resource_id] = resource
        self._changes.removed_resources.discard(resource.resource_id)

    def remove_resource(self, resource: Resource) -> None:
        """Take a server out."""
        del self.resources[resource.resource_id]
        self._changes.resources.pop(resource.resource_id, None)
        self._changes.removed_resources.add(resource.resource_id)

    def note_job(self, what: Happening, job: Job, wall: float, note: str = "", *, resource_id: str = "") -> int:
        """Write an entry about a job into the history; return its number."""
        self._note(
            HistoryEntry(self._entry, wall, what, job.job_id, job.epoch, job.lease_id, job.worker, resource_id, note)
        )
        return self._entry - 1

    def note_resource(self, what: Happening, resource: Resource, wall: float, note: str = "") -> None:
        """Write an entry about a server into the history."""
        self._note(
            HistoryEntry(
                self._entry,
                wall,
                what,
                resource.job_id,
                resource.epoch,
                resource.lease_id,
                resource.worker,
                resource.resource_id,
                note,
            )
        )

    def _note(self, entry: HistoryEntry) -> None:
        self._changes.history.append(entry)
        self._entry += 1

    def _fetch(self, lane: Lane, after: Place | None, limit: int) -> Fetched:
        return corrected(
            self._store.pending(lane, after, limit), self._uncommitted(lane), self._is_changed, after, limit
        )

    def _uncommitted(self, lane: Lane) -> Iterable[Job]:
        return self._lined_up.get(lane, {}).values()

    def _line_up(self, job: Job) -> None:
        if job.state is JobState.PENDING:
            self._lined_up.setdefault(job.spec.lane, {})[job.job_id] = job
        elif (jobs := self._lined_up.get(job.spec.lane)) is not None:
            jobs.pop(job.job_id, None)

    def _is_changed(self, job_id: str) -> bool:
        return job_id in self._changes.new_jobs or job_id in self._changes.changed_jobs
