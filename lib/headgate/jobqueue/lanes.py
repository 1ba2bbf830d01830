"""Lanes: how many jobs of each kind there are, and the first pending ones of each."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headgate.jobqueue.job import Job, JobState, Lane, Place

_FETCHED: Final = 64
_KEPT: Final = 128
"""Heads of a lane that stay in memory once they are stored; each has its payload."""


class Fetched(NamedTuple):
    """Pending jobs behind a place, by place.

    Attributes:
        jobs: all that are pending up to `horizon`.
        horizon: how far was read, or None when there was nothing.
        is_all: whether nothing is pending behind them.
    """

    jobs: list[Job]
    horizon: Place | None
    is_all: bool


Fetch = Callable[[Lane, Place | None, int], Fetched]
"""Reads a lane's pending jobs behind a place: what the store holds, corrected by what is not committed yet."""


def _place(job: Job) -> Place:
    return job.place


@dataclass(slots=True)
class LaneView:
    """One lane.

    The store holds the pending jobs in order; `heads` are the first of them, fetched up to `horizon`. A job that comes
    in at or before the horizon joins the heads; one behind it is left to the store. Invariant: heads are sorted.

    Attributes:
        counts: jobs by state.
        heads: the first pending jobs, by place.
        horizon: how far the store has been read; None before the first read.
        is_read: whether the store holds nothing behind the heads.
    """

    counts: dict[JobState, int] = field(default_factory=lambda: dict.fromkeys(JobState, 0))
    heads: list[Job] = field(default_factory=list)
    horizon: Place | None = None
    is_read: bool = False

    @property
    def pending(self) -> int:
        """Jobs that wait."""
        return self.counts[JobState.PENDING]


class Lanes:
    """All lanes of a queue, owned by its ledger.

    Args:
        counts: jobs by lane and state at the start.
        fetch: reads pending jobs behind a place.
    """

    def __init__(self, counts: Mapping[Lane, Mapping[JobState, int]], fetch: Fetch) -> None:
        self._lanes: dict[Lane, LaneView] = {}
        self._fetch = fetch
        self._grown: set[Lane] = set()
        self._totals = dict.fromkeys(JobState, 0)
        for lane, by_state in counts.items():
            for state, number in by_state.items():
                self._count(lane, state, number)

    def __iter__(self) -> Iterator[tuple[Lane, LaneView]]:
        """Iterate over the lanes."""
        return iter(self._lanes.items())

    @property
    def totals(self) -> Mapping[JobState, int]:
        """Jobs of the whole queue by state."""
        return self._totals

    def waiting(self) -> Iterator[tuple[Lane, LaneView]]:
        """Iterate over the lanes that have pending jobs."""
        return ((lane, view) for lane, view in self._lanes.items() if view.counts[JobState.PENDING])

    def moved(self, job: Job, before: JobState | None) -> None:
        """Count a job that is new (`before` None) or has another state than before, and line it up if it is pending."""
        lane = job.spec.lane
        if lane not in self._lanes:
            self._lanes[lane] = LaneView(is_read=True)  # the store has nothing of it
        if before is not None:
            self._count(lane, before, -1)
        self._count(lane, job.state, 1)
        if job.state is JobState.PENDING:
            self._line_up(lane, job)

    def has_pending(self, lane: Lane) -> bool:
        """Return whether a job of the lane waits."""
        return self._lanes[lane].counts[JobState.PENDING] > 0

    def first(self, lane: Lane) -> Job:
        """Return the first pending job of a lane that has one."""
        view = self._lanes[lane]
        if not view.heads:
            self._read(lane, view)
        return view.heads[0]

    def pop(self, lane: Lane) -> Job:
        """Remove and return the first pending job from the heads of a lane; it is counted until `moved` says more."""
        job = self.first(lane)
        del self._lanes[lane].heads[0]
        return job

    def drop(self, job: Job) -> None:
        """Remove a pending job from the heads, wherever it stands; it is counted until `moved` says more."""
        view = self._lanes[job.spec.lane]
        view.heads = [head for head in view.heads if head.seq != job.seq]

    def committed(self) -> None:
        """Let go of heads beyond what is soon needed: by now the store holds them."""
        for lane in self._grown:
            view = self._lanes[lane]
            if len(view.heads) > _KEPT:
                del view.heads[_KEPT // 2 :]
                view.horizon = view.heads[-1].place
                view.is_read = False
        self._grown.clear()

    def _line_up(self, lane: Lane, job: Job) -> None:
        view = self._lanes[lane]
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
        view = self._lanes.get(lane)
        if view is None:
            view = self._lanes[lane] = LaneView()
        view.counts[state] += number
        self._totals[state] += number

    def validate(self) -> None:
        """Assert the invariants."""
        for view in self._lanes.values():
            assert all(number >= 0 for number in view.counts.values())
            assert view.heads == sorted(view.heads, key=_place)
            assert len(view.heads) <= view.pending
            if view.is_read:
                assert len(view.heads) == view.pending


def corrected(
    stored: list[Job], uncommitted: Iterable[Job], is_changed: Callable[[str], bool], after: Place | None, limit: int
) -> Fetched:
    """Return what a store's `pending` would say if everything up to now were committed.

    Args:
        stored: what it says, for the same `after` and `limit`.
        uncommitted: pending jobs of the lane that are not committed.
        is_changed: whether a job has uncommitted changes, whatever its state.
        after: the place behind which jobs were asked for.
        limit: how many were asked for.
    """
    is_all = len(stored) < limit
    horizon = None if is_all else stored[-1].place
    jobs = [job for job in stored if not is_changed(job.job_id)]
    jobs += [
        job for job in uncommitted if (after is None or job.place > after) and (horizon is None or job.place <= horizon)
    ]
    jobs.sort(key=_place)
    return Fetched(jobs, horizon or after, is_all)
