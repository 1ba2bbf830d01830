"""Rivals that stop nobody: Ray by itself, first come first served, and backfill."""

from __future__ import annotations

import bisect
import math
from typing import Final

from headgate.placement.replay.engine import Engine
from headgate.placement.replay.room import Free, Shape, place_in

_BACKFILL_DEPTH: Final = 500
"""Waiting jobs that backfill looks at; Slurm's default for the same."""


class PlainRay:
    """Ray's own handling of placement groups that wait.

    As measured with Ray 2.60: groups that wait are tried newest first, since older ones have backed off longer; each
    that fits is made, so that a gang waits while smaller groups keep coming. What becomes free is noticed at the next
    tick of a second; a new group makes Ray try all of them at once. Priorities are unknown to it.
    """

    name = "plain Ray"
    says = "Ray by itself: groups that wait are tried newest first, priorities are unknown, nobody is stopped."

    def open(self, engine: Engine) -> None:
        """Begin."""
        self._engine = engine
        self._waiting: dict[Shape, list[int]] = {}
        self._tick_s = math.inf
        self._is_asked = False

    def arrived(self, job: int) -> None:
        """Take a new job in."""
        self._waiting.setdefault(self._engine.shapes[job], []).append(job)
        self._is_asked = True

    def freed(self, job: int) -> None:  # noqa: ARG002 - a policy's signature
        """Notice at the next tick."""
        if self._tick_s == math.inf:
            self._tick_s = self._engine.now + self._engine.cluster.latencies.untuned_s
            self._engine.ask_at(self._tick_s)

    def decide(self) -> None:
        """Make the newest groups that fit."""
        if not self._is_asked and self._engine.now < self._tick_s:
            return
        if self._engine.now >= self._tick_s:
            self._tick_s = math.inf
        self._is_asked = False
        engine = self._engine
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


class StrictFifo:
    """First come, first served: nobody is placed before the first in line."""

    name = "strict FIFO"
    says = "First come, first served: nobody overtakes, priorities are unknown, nobody is stopped."

    def open(self, engine: Engine) -> None:
        """Begin."""
        self._engine = engine
        self._waiting: list[int] = []
        self._next = 0

    def arrived(self, job: int) -> None:
        """Take a new job in."""
        self._waiting.append(job)

    def freed(self, job: int) -> None:
        """Nothing to note: room is looked for at every decision."""

    def decide(self) -> None:
        """Start from the head of the line until one does not fit."""
        engine = self._engine
        while self._next < len(self._waiting):
            job = self._waiting[self._next]
            nodes = engine.room.place(engine.shapes[job])
            if nodes is None:
                return
            engine.start(job, nodes, delay_s=engine.cluster.latencies.create_s)
            self._next += 1


class Easy:
    """EASY backfill (Lifka 1995): the first in line has a reservation, others may overtake if they do not delay it.

    Durations are those that the trace tells the scheduler; work of unknown duration overtakes only where it takes
    nothing of what the reservation needs.
    """

    def __init__(self, *, by_priority: bool) -> None:
        self._by_priority = by_priority
        self.name = "priority + EASY" if by_priority else "FIFO + EASY"
        order = "Highest priority first" if by_priority else "First come, first served"
        self.says = f"{order}, with EASY backfill behind the first in line; nobody is stopped."

    def open(self, engine: Engine) -> None:
        """Begin."""
        self._engine = engine
        self._waiting: list[tuple[float, int]] = []
        self._ends: dict[int, float] = {}

    def arrived(self, job: int) -> None:
        """Take a new job in, at its place in line."""
        priority = self._engine.trace.jobs[job].priority if self._by_priority else 0.0
        bisect.insort(self._waiting, (-priority, job))

    def freed(self, job: int) -> None:
        """Forget when it was expected to end."""
        del self._ends[job]

    def decide(self) -> None:
        """Start from the head of the line, then whatever does not delay the head."""
        while self._waiting and self._start(self._waiting[0][1], self._engine.room.free):
            self._waiting.pop(0)
        if len(self._waiting) > 1:
            self._backfill(self._waiting[0][1])

    def _backfill(self, head: int) -> None:
        engine = self._engine
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
        """Return when the head is expected to fit, and what is left over beside it then."""
        engine = self._engine
        room = [list(units) for units in engine.room.free]
        for ends, job in sorted((max(engine.now, ends), job) for job, ends in self._ends.items()):
            _take(room, engine.shapes[job], engine.works[job].nodes, sign=-1)
            nodes = place_in(room, head)
            if nodes is not None:
                _take(room, head, nodes)
                return ends, room
        return math.inf, room

    def _expected_s(self, job: int) -> float:
        return self._engine.trace.jobs[job].estimated_s or math.inf

    def _start(self, job: int, free: Free) -> bool:
        engine = self._engine
        nodes = place_in(free, engine.shapes[job])
        if nodes is None:
            return False
        engine.start(job, nodes, delay_s=engine.cluster.latencies.create_s)
        self._ends[job] = engine.now + self._expected_s(job)
        return True


def _both(one: Free, other: Free) -> Free:
    return [[min(pair) for pair in zip(a, b, strict=True)] for a, b in zip(one, other, strict=True)]


def _take(room: Free, shape: Shape, nodes: tuple[int, ...], *, sign: int = 1) -> None:
    for node, bundle in zip(nodes, shape.bundles, strict=True):
        have = room[node]
        for place, units in enumerate(bundle):
            have[place] -= sign * units
