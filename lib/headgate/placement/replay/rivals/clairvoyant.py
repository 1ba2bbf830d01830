"""What nobody can build: a schedule that knows every duration and stops and resumes work at no cost."""

from __future__ import annotations

import heapq
import time

from headgate.placement.replay.cluster import Cluster
from headgate.placement.replay.job import Trace
from headgate.placement.replay.outcome import Outcome
from headgate.placement.replay.room import Room, Units
from headgate.placement.replay.work import Attempt

NAME = "clairvoyant"


def clairvoyant(trace: Trace, cluster: Cluster) -> Outcome:
    """Return the schedule of a scheduler that knows all durations, with preemption that costs and loses nothing.

    At every arrival and end it chooses anew who runs: highest band first, inside a band who has the least left, each
    who fits. All nodes count as one, a gang needs room only in sum, and nothing takes time: no start, no stop.

    It is a yardstick and no bound: some other schedule may serve one percentile better. `least_waiting_s` is a bound.
    """
    began = time.perf_counter()
    outcome = _Schedule(trace, cluster).play()
    return Outcome(NAME, outcome.says, outcome.attempts, outcome.finished_s, took_s=time.perf_counter() - began)


class _Schedule:
    """The schedule while it is made."""

    def __init__(self, trace: Trace, cluster: Cluster) -> None:
        self._jobs = trace.jobs
        room = Room(cluster.nodes)
        self._capacity = room.units_of(cluster.total)
        self._sizes: list[Units] = [room.units_of(job.size) for job in trace.jobs]
        self._left = [job.duration_s for job in trace.jobs]
        self._running: dict[int, float] = {}
        self._attempts: list[Attempt] = []
        self._finished: list[float | None] = [None] * len(trace.jobs)

    def play(self) -> Outcome:
        active: list[tuple[int, float, int]] = []
        upcoming, now, count = 0, 0.0, len(self._jobs)
        while upcoming < count or active:
            next_arrival = self._jobs[upcoming].arrived_s if upcoming < count else float("inf")
            next_end = min((since + self._left[job] for job, since in self._running.items()), default=float("inf"))
            now = min(next_arrival, next_end)
            self._advance(now)
            active = [entry for entry in active if self._finished[entry[2]] is None]
            while upcoming < count and self._jobs[upcoming].arrived_s <= now:
                active.append((-self._jobs[upcoming].band, 0.0, upcoming))
                upcoming += 1
            self._choose(active, now)
        says = "Knows every duration; stops and resumes work at no cost; all nodes count as one."
        return Outcome(NAME, says, tuple(self._attempts), tuple(self._finished))

    def _advance(self, now: float) -> None:
        """Account the time that passed; end those that are done."""
        for job, since in list(self._running.items()):
            if since + self._left[job] <= now:
                self._finish(job, since, now)

    def _finish(self, job: int, since: float, now: float) -> None:
        del self._running[job]
        self._left[job] = 0.0
        self._finished[job] = now
        self._attempts.append(Attempt(job, (), since, since, now, 0.0, is_last=True))

    def _choose(self, active: list[tuple[int, float, int]], now: float) -> None:
        order = [(band, self._left_at(job, now), job) for band, _, job in active]
        heapq.heapify(order)
        free = list(self._capacity)
        chosen: set[int] = set()
        while order and any(free):
            job = heapq.heappop(order)[2]
            size = self._sizes[job]
            if all(units <= have for units, have in zip(size, free, strict=True)):
                free = [have - units for units, have in zip(size, free, strict=True)]
                chosen.add(job)
        for job in [job for job in self._running if job not in chosen]:
            since = self._running.pop(job)
            self._left[job] -= now - since
            self._attempts.append(Attempt(job, (), since, since, now, 0.0, is_last=False))
        for job in chosen:
            self._running.setdefault(job, now)

    def _left_at(self, job: int, now: float) -> float:
        since = self._running.get(job)
        return self._left[job] if since is None else self._left[job] - (now - since)
