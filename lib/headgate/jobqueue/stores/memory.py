"""A store in this process's memory: for tests, and for queues that may be forgotten."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock
from typing import Self

from headgate.jobqueue.errors import StoreFailedError, StoreInUseError
from headgate.jobqueue.job import Job, JobState, Lane, Place
from headgate.jobqueue.port import CLAIMS_READ, Changes, FinishedJob, Happening, HistoryEntry, JobQuery, Reply, Snapshot
from headgate.jobqueue.resource import Resource
from headgate.jobqueue.stores.rows import completions, flaw_of, next_indexes


class MemoryStore:
    """A `Store` whose rows live as long as this object: a ledger that owns it after another one finds its rows.

    Every method may be called by any thread; a lock keeps readers from seeing half a commit.
    """

    def __init__(self) -> None:
        self._rows = _Rows()
        self._owner: str | None = None

    def own(self, owner: str) -> Self:
        """Become the only ledger that writes here.

        Raises:
            StoreInUseError: until the one that owns it has closed it.
        """
        with self._rows.lock:
            if self._owner is not None:
                raise StoreInUseError(f"This job queue in memory is served by {self._owner!r}")
            self._owner = owner
        return self

    def load(self) -> Snapshot:
        """Return what a ledger starts from."""
        self._check_owned()
        with self._rows.lock:
            return self._rows.snapshot()

    def jobs(self, job_ids: Sequence[str]) -> dict[str, Job]:
        """Return those of the jobs that exist, by id."""
        self._check_owned()
        jobs = self._rows.jobs
        return {job_id: jobs[job_id] for job_id in job_ids if job_id in jobs}

    def pending(self, lane: Lane, after: Place | None, limit: int) -> list[Job]:
        """Return up to `limit` pending jobs of a lane behind a place (None: from the first), by place."""
        self._check_owned()
        with self._rows.lock:
            places = self._rows.lanes[lane].behind(after, limit) if lane in self._rows.lanes else []
            return [self._rows.jobs[self._rows.ids[place.seq]] for place in places]

    def reply(self, key: str) -> Reply | None:
        """Return the remembered reply of a key."""
        self._check_owned()
        return self._rows.replies.get(key)

    def entries(self, job_id: str, what: Happening, limit: int, *, lease_id: str | None = None) -> list[HistoryEntry]:
        """Return the first entries of a kind about a job, or about one lease on it."""
        self._check_owned()
        about = (one for one in self._rows.history if (one.job_id, one.what) == (job_id, what))
        return list(islice((one for one in about if lease_id in {None, one.lease_id}), limit))

    def commit(self, changes: Changes) -> None:
        """Write all changes, or none.

        Raises:
            StoreFailedError: when they contradict what is stored.
        """
        self._check_owned()
        with self._rows.lock:
            self._rows.check(changes)
            self._rows.apply(changes)

    def reader(self) -> MemoryReader:
        """Return a reader of the same rows."""
        return MemoryReader(self._rows)

    def close(self) -> None:
        """Give ownership up; the rows stay. Legal twice."""
        self._owner = None

    def _check_owned(self) -> None:
        if self._owner is None:
            raise StoreFailedError(
                "This job queue in memory is not owned", next_step="Call `own` before reading or writing it."
            )


class MemoryReader:
    """A `Reader` of the rows of a `MemoryStore`, from any thread."""

    def __init__(self, rows: _Rows) -> None:
        self._rows = rows

    def jobs(self, query: JobQuery) -> list[Job]:
        """Return the jobs of a query, by `seq`."""
        with self._rows.lock:
            fitting = [job for job in self._rows.jobs.values() if _shows(query, job)]
        return sorted(fitting, key=lambda job: job.seq)[: query.limit]

    def finished(self, after: int, limit: int, teams: frozenset[str] | None = None) -> list[FinishedJob]:
        """Return jobs completed after an entry of the history, by that entry; a job completed twice shows once."""
        with self._rows.lock:
            found = (
                FinishedJob(entry, self._rows.jobs[job_id])
                for job_id, entry in self._rows.completed.items()
                if entry > after
            )
            fitting = [one for one in found if one.job.state is JobState.DONE and _is_of(one.job, teams)]
        return sorted(fitting, key=lambda one: one.entry)[:limit]

    def history(
        self, after: int, limit: int, *, job_id: str | None = None, what: Iterable[Happening] = ()
    ) -> list[HistoryEntry]:
        """Return entries greater than `after`, in order; `what` empty means every kind."""
        kinds = frozenset(what) or frozenset(Happening)
        with self._rows.lock:
            first = bisect_right(self._rows.history, after, key=lambda entry: entry.entry)
            fitting = (
                entry
                for entry in islice(self._rows.history, first, None)
                if entry.what in kinds and job_id in {None, entry.job_id}
            )
            return list(islice(fitting, limit))

    def close(self) -> None:
        """Nothing to give up; legal twice."""


@dataclass(slots=True)
class _LanePlaces:
    """Places of the pending jobs of one lane, sorted.

    A job that leaves stays in `ordered` until it is at the head of a reading or half of them have left: taking one out
    of a long list moves all behind it.
    """

    ordered: list[Place] = field(default_factory=list)
    live: set[Place] = field(default_factory=set)

    def add(self, place: Place) -> None:
        self.live.add(place)
        at = bisect_left(self.ordered, place)
        if at == len(self.ordered) or self.ordered[at] != place:
            self.ordered.insert(at, place)

    def remove(self, place: Place) -> None:
        self.live.remove(place)
        if len(self.ordered) > 2 * len(self.live) + 64:
            self.ordered = sorted(self.live)

    def behind(self, after: Place | None, limit: int) -> list[Place]:
        if after is None:
            left = next((at for at, place in enumerate(self.ordered) if place in self.live), len(self.ordered))
            del self.ordered[:left]
        first = 0 if after is None else bisect_right(self.ordered, after)
        return list(islice((place for place in islice(self.ordered, first, None) if place in self.live), limit))


@dataclass(slots=True)
class _Rows:
    """The tables; `lock` protects all of them."""

    lock: Lock = field(default_factory=Lock)
    jobs: dict[str, Job] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    lanes: defaultdict[Lane, _LanePlaces] = field(default_factory=lambda: defaultdict(_LanePlaces))
    resources: dict[str, Resource] = field(default_factory=dict)
    history: list[HistoryEntry] = field(default_factory=list)
    completed: dict[str, int] = field(default_factory=dict)
    replies: dict[str, Reply] = field(default_factory=dict)
    next_index: dict[str, int] = field(default_factory=dict)

    def check(self, changes: Changes) -> None:
        """Refuse what a database would refuse, before anything is written."""
        last_entry = self.history[-1].entry if self.history else -1
        flaw = (
            flaw_of(changes)
            or next((f"job {job_id!r} exists" for job_id in changes.new_jobs if job_id in self.jobs), "")
            or next(
                (f"a job with seq {job.seq} exists" for job in changes.new_jobs.values() if job.seq in self.ids), ""
            )
            or next((f"job {job_id!r} is not stored" for job_id in changes.changed_jobs if job_id not in self.jobs), "")
            or next((f"entry {one.entry} comes too late" for one in changes.history if one.entry <= last_entry), "")
        )
        if flaw:
            raise StoreFailedError(f"The job queue in memory refused the changes: {flaw}")

    def apply(self, changes: Changes) -> None:
        """Write what `check` let pass."""
        for job in changes.new_jobs.values():
            self._put(job)
        for job in changes.changed_jobs.values():
            self._put(job)
        for pool, index in next_indexes(changes).items():
            self.next_index[pool] = max(index, self.next_index.get(pool, 0))
        self.resources.update(changes.resources)
        for resource_id in changes.removed_resources:
            self.resources.pop(resource_id, None)
        self.history.extend(changes.history)
        for job_id, entry in completions(changes).items():
            self.completed[job_id] = entry
        self.replies.update(changes.replies)
        if changes.forget_before is not None:
            replies_before, late_before = changes.forget_before
            self.replies = {key: reply for key, reply in self.replies.items() if reply.at >= replies_before}
            for position, one in enumerate(self.history):
                if one.what is Happening.LATE_RESULT and one.at < late_before and one.note:
                    self.history[position] = replace(one, note="")

    def snapshot(self) -> Snapshot:
        counts: defaultdict[Lane, Counter[JobState]] = defaultdict(Counter)
        for job in self.jobs.values():
            counts[job.spec.lane][job.state] += 1
        return Snapshot(
            counts=_plain(counts),
            in_progress=sorted(
                (job for job in self.jobs.values() if job.state is JobState.IN_PROGRESS), key=lambda job: job.seq
            ),
            resources=sorted(self.resources.values(), key=lambda resource: (resource.spec.pool, resource.index)),
            next_seq=max(self.ids, default=-1) + 1,
            next_entry=self.history[-1].entry + 1 if self.history else 0,
            next_index=dict(self.next_index),
            last_claims=self._last_claims(),
        )

    def _last_claims(self) -> dict[str, int]:
        claims = (entry for entry in reversed(self.history) if entry.what is Happening.CLAIMED)
        last = sorted(islice(claims, CLAIMS_READ), key=lambda entry: entry.entry)
        return {self.jobs[entry.job_id].spec.team: entry.entry for entry in last if entry.job_id in self.jobs}

    def _put(self, job: Job) -> None:
        known = self.jobs.get(job.job_id)
        if known is not None and known.state is JobState.PENDING:
            self.lanes[known.spec.lane].remove(known.place)
        if job.state is JobState.PENDING:
            self.lanes[job.spec.lane].add(job.place)
        self.jobs[job.job_id] = job
        self.ids[job.seq] = job.job_id


def _plain(counts: Mapping[Lane, Counter[JobState]]) -> dict[Lane, dict[JobState, int]]:
    return {lane: dict(states) for lane, states in counts.items()}


def _shows(query: JobQuery, job: Job) -> bool:
    return (
        job.seq > query.after
        and query.state in {None, job.state}
        and query.task in {None, job.spec.task}
        and query.pool in {None, job.spec.pool}
        and _is_of(job, query.teams)
    )


def _is_of(job: Job, teams: frozenset[str] | None) -> bool:
    return teams is None or job.spec.team in teams
