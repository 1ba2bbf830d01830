"""Policies without preemption for comparison with the ledger, and one that knows the future."""

from __future__ import annotations

import bisect
import heapq
import math
import time
from typing import Final

from headgate_replay.placement.engine import Attempt, Engine, Free, Outcome, Policy, Room, Shape, Units, place_in
from headgate_replay.placement.jobs import Cluster, Trace

_BACKFILL_DEPTH: Final = 500
"""Maximum number of waiting jobs that backfill considers; Slurm has the same default."""


class PlainRay(Policy):
    """Ray's own handling of pending placement groups.

    As measured with Ray 2.60: pending groups are tried newest first, since older ones have backed off longer, and each
    that fits is created, so a gang waits while smaller groups keep coming. Freed resources are noticed at the next tick
    of a second; a new group makes Ray try all groups at once. Priorities are ignored.
    """

    name = "plain Ray"
    says = "Ray by itself: pending groups are tried newest first; no priorities, no preemption."

    def open(self, engine: Engine) -> None:
        """Begin."""
        super().open(engine)
        self._waiting: dict[Shape, list[int]] = {}
        self._tick_s = math.inf
        self._is_asked = False

    def arrived(self, job: int) -> None:
        """Take a new job in."""
        self._waiting.setdefault(self.engine.shapes[job], []).append(job)
        self._is_asked = True

    def freed(self, job: int) -> None:  # noqa: ARG002 - a policy's signature
        """Plan the next tick, which notices the free room."""
        if self._tick_s == math.inf:
            self._tick_s = self.engine.now + self.engine.cluster.latencies.untuned_s
            self.engine.agenda.plan(self._tick_s, lambda _now: None)

    def decide(self) -> None:
        """Create the newest groups that fit."""
        if not self._is_asked and self.engine.now < self._tick_s:
            return
        if self.engine.now >= self._tick_s:
            self._tick_s = math.inf
        self._is_asked = False
        engine = self.engine
        fitting = {shape for shape in self._waiting if engine.room.place(shape) is not None}
        while fitting:
            newest = max(fitting, key=lambda shape: self._waiting[shape][-1])
            nodes = engine.room.place(newest)
            if nodes is None:
                fitting.discard(newest)
                continue
            engine.start(self._waiting[newest].pop(), nodes, delay_s=engine.cluster.latencies.create_s)
            if not self._waiting[newest]:
                del self._waiting[newest]
                fitting.discard(newest)


class StrictFifo(Policy):
    """First come, first served: no job is placed before the first in the queue."""

    name = "strict FIFO"
    says = "First come, first served: no overtaking, no priorities, no preemption."

    def open(self, engine: Engine) -> None:
        """Begin."""
        super().open(engine)
        self._waiting: list[tuple[float, int]] = []

    def arrived(self, job: int) -> None:
        """Add a new job at its place in the queue."""
        bisect.insort(self._waiting, (self._rank(job), job))

    def decide(self) -> None:
        """Start jobs from the head of the queue until one does not fit."""
        while self._waiting and self._start(self._waiting[0][1], self.engine.room.free):
            self._waiting.pop(0)

    def _rank(self, _job: int) -> float:
        return 0.0

    def _start(self, job: int, free: Free) -> bool:
        nodes = place_in(free, self.engine.shapes[job])
        if nodes is not None:
            self.engine.start(job, nodes, delay_s=self.engine.cluster.latencies.create_s)
        return nodes is not None


class Easy(StrictFifo):
    """EASY backfill (Lifka 1995): the first job has a reservation, others may overtake if they do not delay it.

    Durations are those that the trace tells the scheduler; work of unknown duration overtakes only if it takes nothing
    that the reservation needs.
    """

    def __init__(self, *, by_priority: bool) -> None:
        self._by_priority = by_priority
        self.name = "priority + EASY" if by_priority else "FIFO + EASY"
        order = "Highest priority first" if by_priority else "First come, first served"
        self.says = f"{order}, with EASY backfill behind the first in the queue; no preemption."

    def decide(self) -> None:
        """Start jobs from the head of the queue, then all that do not delay the head."""
        super().decide()
        if len(self._waiting) > 1:
            self._backfill(self._waiting[0][1])

    def _rank(self, job: int) -> float:
        return -self.engine.trace.jobs[job].priority if self._by_priority else 0.0

    def _backfill(self, head: int) -> None:
        engine = self.engine
        shadow_s, spare = self._shadow(engine.shapes[head])
        full: set[Shape] = set()
        for entry in self._waiting[1 : _BACKFILL_DEPTH + 1]:
            job = entry[1]
            shape = engine.shapes[job]
            if shape in full:
                continue
            if engine.room.place(shape) is None:
                full.add(shape)
            elif engine.now + self._expected_s(job) <= shadow_s:
                self._start(job, engine.room.free)
                self._waiting.remove(entry)
            elif self._start(job, _both(engine.room.free, spare)):
                self._waiting.remove(entry)
                _take(spare, shape, engine.works[job].nodes)

    def _shadow(self, head: Shape) -> tuple[float, Free]:
        """Return when the head is expected to fit, and the room that it leaves free then."""
        engine = self.engine
        room = [list(units) for units in engine.room.free]
        ends_of = ((engine.works[job].held_s + self._expected_s(job), job) for job in engine.running)
        for ends, job in sorted((max(engine.now, ends), job) for ends, job in ends_of):
            _take(room, engine.shapes[job], engine.works[job].nodes, sign=-1)
            nodes = place_in(room, head)
            if nodes is not None:
                _take(room, head, nodes)
                return ends, room
        return math.inf, room

    def _expected_s(self, job: int) -> float:
        return self.engine.trace.jobs[job].estimated_s or math.inf


def _both(one: Free, other: Free) -> Free:
    return [[min(pair) for pair in zip(a, b, strict=True)] for a, b in zip(one, other, strict=True)]


def _take(room: Free, shape: Shape, nodes: tuple[int, ...], *, sign: int = 1) -> None:
    for node, bundle in zip(nodes, shape.bundles, strict=True):
        have = room[node]
        for place, units in enumerate(bundle):
            have[place] -= sign * units


def clairvoyant(trace: Trace, cluster: Cluster) -> Outcome:
    """Return the schedule of a scheduler that knows all durations and preempts without any cost or loss.

    At every arrival and end it chooses again which jobs run: highest band first, within a band the least remaining work
    first, each that fits. All nodes count as one, a gang needs room only in sum, and starts and stops take no time.

    It is a yardstick and not a bound: another schedule may serve one percentile better. `least_waiting_s` is a bound.
    """
    began = time.perf_counter()
    schedule = _Schedule(trace, cluster)
    schedule.play()
    says = "Knows every duration; stops and resumes work at no cost; all nodes count as one."
    finished_s, took_s = tuple(schedule.finished_s), time.perf_counter() - began
    return Outcome("clairvoyant", says, tuple(schedule.attempts), finished_s, took_s=took_s)


class _Schedule:
    """The schedule while it is built."""

    def __init__(self, trace: Trace, cluster: Cluster) -> None:
        self.attempts: list[Attempt] = []
        self.finished_s: list[float | None] = [None] * len(trace.jobs)
        room = Room(cluster.nodes)
        self._jobs = trace.jobs
        self._capacity = room.units_of(cluster.total)
        self._sizes: list[Units] = [room.units_of(job.size) for job in trace.jobs]
        self._left = [job.duration_s for job in trace.jobs]
        self._running: dict[int, float] = {}

    def play(self) -> None:
        active: list[int] = []
        upcoming, count = 0, len(self._jobs)
        while upcoming < count or active:
            next_arrival = self._jobs[upcoming].arrived_s if upcoming < count else math.inf
            next_end = min((since + self._left[job] for job, since in self._running.items()), default=math.inf)
            now = min(next_arrival, next_end)
            for job, since in list(self._running.items()):
                if since + self._left[job] <= now:
                    self._stay(job, now, is_last=True)
                    self.finished_s[job] = now
            active = [job for job in active if self.finished_s[job] is None]
            while upcoming < count and self._jobs[upcoming].arrived_s <= now:
                active.append(upcoming)
                upcoming += 1
            self._choose(active, now)

    def _choose(self, active: list[int], now: float) -> None:
        order = [(-self._jobs[job].band, self._left_at(job, now), job) for job in active]
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
            self._left[job] = self._left_at(job, now)
            self._stay(job, now, is_last=False)
        for job in chosen:
            self._running.setdefault(job, now)

    def _stay(self, job: int, now: float, *, is_last: bool) -> None:
        since = self._running.pop(job)
        self.attempts.append(Attempt(job, (), since, since, now, 0.0, is_last))

    def _left_at(self, job: int, now: float) -> float:
        since = self._running.get(job)
        return self._left[job] if since is None else self._left[job] - (now - since)
