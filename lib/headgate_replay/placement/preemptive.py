"""Policies that stop work of any priority for shorter work: least attained service and least remaining time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from headgate_replay.placement.engine import Engine, Free, Policy, Shape, place_in

_THRESHOLDS_S: Final = (600.0, 6_000.0, 60_000.0)
"""GPU-seconds at which work moves to the next queue: ten GPU-minutes, and ten and a hundred times as much."""

_QUANTUM_S: Final = 60.0
"""Interval of checks whether jobs have moved to another queue."""

_MIN_RUN_S: Final = 30.0
"""Minimum run time before work is stopped, as under the ledger's rules."""


class Ranked(Policy):
    """Fills the cluster in the order of a rank that changes while work runs; running jobs left over are stopped.

    Running work stays where it is unless a job of better rank needs its room and finds no other.
    """

    def open(self, engine: Engine) -> None:
        """Begin."""
        super().open(engine)
        self._active: set[int] = set()
        self._ran_s: dict[int, float] = {}
        self._is_planned = False

    def arrived(self, job: int) -> None:
        """Take a new job in."""
        self._active.add(job)

    def freed(self, job: int) -> None:
        """Remove a job that is done."""
        if self.engine.finished_s[job] is not None:
            self._active.discard(job)

    def decide(self) -> None:
        """Start the chosen jobs where there is room, and stop those in their way."""
        engine = self.engine
        kept, planned = self._chosen()
        for job in [job for job in engine.running if job not in kept]:
            self._ran_s[job] = self._attained_s(job)
            engine.stop(job)
        for job, nodes in planned.items():
            if _holds(engine.room.free, engine.shapes[job], nodes):  # else decided again when its victims are dead
                engine.start(job, nodes, delay_s=engine.cluster.latencies.create_s)
        if not self._is_planned and len(self._active) > len(engine.running):
            self._is_planned = True
            engine.agenda.plan(engine.now + _QUANTUM_S, self._look_again)

    @abstractmethod
    def _rank(self, job: int) -> tuple[float, ...]:
        """Return the sort key of a job; the smallest goes first."""

    def _look_again(self, _now: float) -> None:
        self._is_planned = False

    def _attained_s(self, job: int) -> float:
        """Return how long a job has run in total, including lost work."""
        is_running = job in self.engine.running
        current_s = max(0.0, self.engine.now - self.engine.works[job].held_s) if is_running else 0.0
        return self._ran_s.get(job, 0.0) + current_s

    def _chosen(self) -> tuple[set[int], dict[int, tuple[int, ...]]]:
        """Return which running jobs stay, and the nodes of the other chosen jobs."""
        engine = self.engine
        kept = {job for job in engine.running if engine.now < engine.works[job].held_s + _MIN_RUN_S}
        room: Free = [list(units) for units in engine.room.capacity]  # capacity without the jobs that come before
        spare: Free = [list(units) for units in engine.room.free]  # free without stopping any job
        for job in (*kept, *engine.stopping):
            _take(room, engine.shapes[job], engine.works[job].nodes)
        planned: dict[int, tuple[int, ...]] = {}
        full: set[Shape] = set()
        for job in sorted(self._active - kept - engine.stopping, key=self._rank):
            shape, nodes = engine.shapes[job], engine.works[job].nodes
            if job in engine.running:
                if _holds(room, shape, nodes):
                    _take(room, shape, nodes)
                    kept.add(job)
                continue
            if shape in full:
                continue
            free = place_in(spare, shape)
            found = free if free is not None and _holds(room, shape, free) else place_in(room, shape)
            if found is None:
                full.add(shape)
                continue
            _take(room, shape, found)
            if found is free:
                _take(spare, shape, found)
            planned[job] = found
        return kept, planned


class LeastAttained(Ranked):
    """Least attained service in queues (Tiresias, NSDI 2019): the GPU-seconds so far decide, not the durations.

    Within a queue, jobs are served in order of arrival. Priorities are ignored.
    """

    name = "least attained service"
    says = "Least attained service in four queues, like Tiresias: work that ran long stops for work that did not."

    def _rank(self, job: int) -> tuple[float, ...]:
        asked = self.engine.trace.jobs[job]
        attained = self._attained_s(job) * asked.gpus
        return sum(attained >= each for each in _THRESHOLDS_S), asked.arrived_s


class LeastRemaining(Ranked):
    """Shortest remaining time first, with the true durations, which no scheduler knows."""

    name = "shortest remaining time"
    says = "Shortest remaining time with the true durations, even if hidden: a reference for mean waiting."

    def _rank(self, job: int) -> tuple[float, ...]:
        engine = self.engine
        ends = engine.running.get(job)
        return (engine.works[job].left_s if ends is None else ends - engine.now,)


def _holds(room: Free, shape: Shape, nodes: Sequence[int]) -> bool:
    """Return whether these nodes have room for a shape, without taking it."""
    left = {node: list(room[node]) for node in set(nodes)}
    for node, bundle in zip(nodes, shape.bundles, strict=True):
        left[node] = [have - units for have, units in zip(left[node], bundle, strict=True)]
    return all(units >= 0 for have in left.values() for units in have)


def _take(room: Free, shape: Shape, nodes: Sequence[int]) -> None:
    for node, bundle in zip(nodes, shape.bundles, strict=True):
        room[node] = [have - units for have, units in zip(room[node], bundle, strict=True)]
