"""The ledger's working set: jobs in progress and servers, changes since the last commit, each lane's first jobs."""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headgate.jobqueue.job import WITHDRAWN, Job, JobState, Lane, Place
from headgate.jobqueue.records import Changes, Happening, HistoryEntry, Snapshot
from headgate.jobqueue.resource import Resource
from headgate.jobqueue.stores.sql import Store

_FETCHED: Final = 128
"""How many heads of a lane are read at once, each with its payload: a batch of claims is seldom larger."""

_KEPT: Final = 128
"""How many heads of a lane may stay in memory once they are stored."""

_BEFORE_ALL: Final = Place(-(2**63), 0, 0)


class Fetched(NamedTuple):
    """Pending jobs behind a place, by place.

    Attributes:
        jobs: all that are pending up to `horizon`.
        horizon: the last place of a full page, else where the read started (None: at the first place).
        is_all: whether nothing is pending behind them.
    """

    jobs: list[Job]
    horizon: Place | None
    is_all: bool


Fetch = Callable[[Lane, Place | None, int], Fetched]
"""Reads a lane's pending jobs behind a place: what the store holds, corrected by uncommitted changes."""


def _place(job: Job) -> Place:
    return job.place


@dataclass(slots=True)
class LaneView:
    """One lane.

    The store holds the pending jobs in order; `heads` are the first of them, fetched up to `horizon`. A new job at or
    before the horizon joins the heads; one behind it is left to the store. Invariant: heads are sorted.

    Attributes:
        earliest: a place that is not behind that of any pending job.
        heads: the first pending jobs, by place.
        horizon: the last place read from the store; None before the first read.
        is_read: whether the store holds nothing behind the heads.
    """

    counts: dict[JobState, int] = field(default_factory=lambda: dict.fromkeys(JobState, 0))
    earliest: Place = _BEFORE_ALL
    heads: list[Job] = field(default_factory=list)
    horizon: Place | None = None
    is_read: bool = False

    @property
    def pending(self) -> int:
        """Number of pending jobs."""
        return self.counts[JobState.PENDING]


class Lanes:
    """All lanes of a queue, owned by its ledger."""

    def __init__(
        self, counts: Mapping[Lane, Mapping[JobState, int]], firsts: Mapping[Lane, Place], fetch: Fetch
    ) -> None:
        self._lanes = defaultdict(LaneView, {lane: LaneView(earliest=place) for lane, place in firsts.items()})
        self._fetch = fetch
        self._grown: set[Lane] = set()
        self.arrived = {lane for lane, by_state in counts.items() if by_state.get(JobState.PENDING)}
        """Lanes that may have a new first job since `LaneGroups` last looked, which empties it."""
        self.totals = dict.fromkeys(JobState, 0)
        """Jobs of the whole queue by state."""
        for lane, by_state in counts.items():
            for state, number in by_state.items():
                self._count(lane, state, number)

    def __iter__(self) -> Iterator[tuple[Lane, LaneView]]:
        """Iterate over the lanes."""
        return iter(self._lanes.items())

    def waiting(self) -> Iterator[tuple[Lane, LaneView]]:
        """Iterate over the lanes that have pending jobs."""
        return ((lane, view) for lane, view in self._lanes.items() if view.pending)

    def moved(self, job: Job, before: JobState | None) -> None:
        """Count a job that is new (`before` None) or changed state, and line it up if it is pending."""
        lane = job.spec.lane
        if lane not in self._lanes:
            self._lanes[lane] = LaneView(is_read=True)  # the store has nothing of it
        if before is not None:
            self._count(lane, before, -1)
        self._count(lane, job.state, 1)
        if job.state is JobState.PENDING:
            self.arrived.add(lane)
            self._line_up(lane, job)

    def has_pending(self, lane: Lane) -> bool:
        """Return whether the lane has a pending job."""
        return self._lanes[lane].pending > 0

    def first(self, lane: Lane) -> Job:
        """Return the first pending job of a lane that has one."""
        view = self._lanes[lane]
        if not view.heads:
            self._read(lane, view)
        return view.heads[0]

    def earliest(self, lane: Lane) -> Place:
        """Return a place that is not behind the first pending job's; reads nothing."""
        view = self._lanes[lane]
        return view.heads[0].place if view.heads else view.earliest

    def pop(self, lane: Lane) -> Job:
        """Remove and return a lane's first pending job; it stays counted as pending until `moved`."""
        job = self.first(lane)
        del self._lanes[lane].heads[0]
        return job

    def drop(self, job: Job) -> None:
        """Remove a pending job from the heads, wherever it is; it stays counted as pending until `moved`."""
        view = self._lanes[job.spec.lane]
        view.heads = [head for head in view.heads if head.seq != job.seq]

    def committed(self) -> None:
        """Drop heads that are not needed soon: by now the store holds them."""
        for lane in self._grown:
            view = self._lanes[lane]
            if len(view.heads) > _KEPT:
                del view.heads[_KEPT // 2 :]
                view.horizon = view.heads[-1].place
                view.is_read = False
        self._grown.clear()

    def _line_up(self, lane: Lane, job: Job) -> None:
        view = self._lanes[lane]
        view.earliest = min(view.earliest, job.place)
        if view.is_read or (view.horizon is not None and job.place <= view.horizon):
            insort(view.heads, job, key=_place)
            self._grown.add(lane)

    def _read(self, lane: Lane, view: LaneView) -> None:
        while not view.heads and not view.is_read:
            fetched = self._fetch(lane, view.horizon, _FETCHED)
            view.heads = fetched.jobs
            view.is_read = fetched.is_all
            view.horizon = fetched.horizon

    def _count(self, lane: Lane, state: JobState, number: int) -> None:
        self._lanes[lane].counts[state] += number
        self.totals[state] += number

    def validate(self) -> None:
        """Assert the invariants."""
        for view in self._lanes.values():
            assert all(number >= 0 for number in view.counts.values())
            assert view.heads == sorted(view.heads, key=_place)
            assert len(view.heads) <= view.pending
            assert all(view.earliest <= head.place for head in view.heads)
            if view.is_read:
                assert len(view.heads) == view.pending


class WorkingSet:
    """Jobs and servers as they are now, committed or not; owned by one ledger."""

    def __init__(self, store: Store, snapshot: Snapshot) -> None:
        self.running = {job.job_id: job for job in snapshot.in_progress}
        self.resources = {resource.resource_id: resource for resource in snapshot.resources}
        self.lanes = Lanes(snapshot.counts, snapshot.firsts, self._fetch)
        self.withdrawn = Counter(snapshot.withdrawn)
        """Dead jobs that somebody withdrew, by team."""
        self._store = store
        self.changes = Changes()
        """What has changed since the last commit."""
        self._lined_up: dict[Lane, dict[str, Job]] = {}
        self._seq = snapshot.next_seq
        self._entry = snapshot.next_entry
        self._next_index = dict(snapshot.next_index)
        self.last_claims = dict(snapshot.last_claims)

    def committed(self) -> None:
        """Start with empty changes again: the store holds everything up to now."""
        self.changes = Changes()
        self._lined_up.clear()
        self.lanes.committed()

    def next_seq(self) -> int:
        """Return the next job's number in the order of submission."""
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
        new, changed, running = self.changes.new_jobs, self.changes.changed_jobs, self.running
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
            for one in self.changes.history
            if (one.job_id, one.what) == (job_id, what) and lease_id in {None, one.lease_id}
        )
        return [*self._store.entries(job_id, what, limit, lease_id=lease_id), *new][:limit]

    def add(self, job: Job) -> None:
        """Add a new job."""
        self.changes.new_jobs[job.job_id] = job
        self._line_up(job)
        self.lanes.moved(job, None)

    def put(self, job: Job, before: JobState) -> None:
        """Store a changed job; `before` is the state that it had."""
        job_id, changes = job.job_id, self.changes
        (changes.new_jobs if job_id in changes.new_jobs else changes.changed_jobs)[job_id] = job
        if job.state is JobState.IN_PROGRESS:
            self.running[job_id] = job
        else:
            self.running.pop(job_id, None)
        if JobState.DEAD in (before, job.state) and job.last_error.startswith(WITHDRAWN):
            self.withdrawn[job.spec.team] += 1 if job.state is JobState.DEAD else -1
        self._line_up(job)
        self.lanes.moved(job, before)

    def put_resource(self, resource: Resource) -> None:
        """Store a new or changed server."""
        self.resources[resource.resource_id] = resource
        self.changes.resources[resource.resource_id] = resource
        self.changes.removed_resources.discard(resource.resource_id)

    def remove_resource(self, resource: Resource) -> None:
        """Remove a server."""
        del self.resources[resource.resource_id]
        self.changes.resources.pop(resource.resource_id, None)
        self.changes.removed_resources.add(resource.resource_id)

    def note_job(self, what: Happening, job: Job, wall: float, note: str = "", *, resource_id: str = "") -> int:
        """Add an entry about a job to the history; return its number."""
        return self._note(
            HistoryEntry(self._entry, wall, what, job.job_id, job.epoch, job.lease_id, job.worker, resource_id, note)
        )

    def note_resource(self, what: Happening, resource: Resource, wall: float, note: str = "") -> None:
        """Add an entry about a server to the history."""
        held = (resource.job_id, resource.epoch, resource.lease_id, resource.worker)
        self._note(HistoryEntry(self._entry, wall, what, *held, resource.resource_id, note))

    def _note(self, entry: HistoryEntry) -> int:
        self.changes.history.append(entry)
        self._entry += 1
        return entry.entry

    def _fetch(self, lane: Lane, after: Place | None, limit: int) -> Fetched:
        """Return what the store would hold of a lane if every change were committed."""
        stored = self._store.pending(lane, after, limit)
        is_all = len(stored) < limit
        horizon = None if is_all else stored[-1].place
        new, changed = self.changes.new_jobs, self.changes.changed_jobs
        jobs = [job for job in stored if job.job_id not in new and job.job_id not in changed]
        jobs += [
            job
            for job in self._lined_up.get(lane, {}).values()
            if (after is None or job.place > after) and (horizon is None or job.place <= horizon)
        ]
        jobs.sort(key=_place)
        return Fetched(jobs, horizon or after, is_all)

    def _line_up(self, job: Job) -> None:
        if job.state is JobState.PENDING:
            self._lined_up.setdefault(job.spec.lane, {})[job.job_id] = job
        elif self._lined_up and (jobs := self._lined_up.get(job.spec.lane)) is not None:
            jobs.pop(job.job_id, None)
