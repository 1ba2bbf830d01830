"""The virtual cluster under a rival: arrivals, ends and stops in order of time, one policy that decides."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import time
from typing import Final, Protocol

from headgate.placement.replay.cluster import Cluster
from headgate.placement.replay.errors import OvercommittedError
from headgate.placement.replay.job import Trace
from headgate.placement.replay.outcome import Decision, Outcome
from headgate.placement.replay.room import Room, Shape
from headgate.placement.replay.work import Attempt, Work

_ARRIVED: Final = 0
_ENDED: Final = 1
_STOPPED: Final = 2
_ASKED: Final = 3


class Policy(Protocol):
    """Who runs next, where, and who is stopped for it."""

    name: str
    says: str

    def open(self, engine: Engine) -> None:
        """Begin; called once, before the first arrival."""

    def arrived(self, job: int) -> None:
        """Take a new job in."""

    def freed(self, job: int) -> None:
        """A job gave its room back: it is done, or it was stopped."""

    def decide(self) -> None:
        """Start what can be started now."""


class Engine:
    """Runs one trace under one policy. Owned by `replayed`.

    Attributes:
        now: virtual seconds.
        room: what is free.
        works: progress of every job, by position.
        shapes: what every job takes, by position.
        running: positions of jobs that hold nodes and are not being stopped, with when their work will end.
        stopping: positions of jobs that are being stopped.
        decisions: what the policy noted of its preemptions.
    """

    def __init__(self, trace: Trace, cluster: Cluster, policy: Policy) -> None:
        self.trace = trace
        self.cluster = cluster
        self.now = 0.0
        self.room = Room(cluster.nodes)
        self.works = [Work(position, job) for position, job in enumerate(trace.jobs)]
        self.shapes: list[Shape] = [self.room.shape_of(job.bundles, job.strategy) for job in trace.jobs]
        self.running: dict[int, float] = {}
        self.stopping: set[int] = set()
        self.decisions: list[Decision] = []
        self._policy = policy
        self._attempts: list[Attempt] = []
        self._finished: list[float | None] = [None] * len(trace.jobs)
        self._held: dict[int, Shape] = {}
        self._count = itertools.count()
        self._events: list[tuple[float, int, int, int]] = [
            (job.arrived_s, next(self._count), _ARRIVED, position) for position, job in enumerate(trace.jobs)
        ]
        heapq.heapify(self._events)

    def start(self, job: int, nodes: tuple[int, ...], *, delay_s: float, shape: Shape | None = None) -> None:
        """Start a job on nodes; its work begins `delay_s` and the start latency later.

        `shape` is what is taken where that is not what the job asks for; nothing is taken for an empty one.
        """
        held = self.shapes[job] if shape is None else shape
        if held.bundles:
            self.room.take(held, nodes)
        self._held[job] = held
        work = self.works[job]
        work.hold(nodes, self.now)
        ends = work.begin(self.now + delay_s + self.cluster.latencies.start_s)
        self.running[job] = ends
        self._at(ends, _ENDED, job)

    def stop(self, job: int) -> None:
        """Stop a running job; `freed` tells the policy when it is dead. It does no work from now on."""
        del self.running[job]
        self.stopping.add(job)
        self._attempts.append(self.works[job].stop(self.now))
        self._at(self.now + self.cluster.latencies.stop_s, _STOPPED, job)

    def ask_at(self, at_s: float) -> None:
        """Ask the policy to decide at a time."""
        self._at(at_s, _ASKED, -1)

    def play(self) -> Outcome:
        """Run to the end.

        Raises:
            OvercommittedError: work is left that the policy never ran.
        """
        self._policy.open(self)
        events = self._events
        while events:
            self.now = events[0][0]
            while events and events[0][0] <= self.now:
                _, _, kind, job = heapq.heappop(events)
                self._apply(kind, job)
            self._policy.decide()
        if self.running or self.stopping:
            raise OvercommittedError(f"policy {self._policy.name} ended with work that still ran")
        return Outcome(
            self._policy.name,
            self._policy.says,
            tuple(self._attempts),
            tuple(self._finished),
            tuple(self.decisions),
        )

    def _apply(self, kind: int, job: int) -> None:
        if kind == _ARRIVED:
            self._policy.arrived(job)
        elif kind == _ENDED:
            # A job that was stopped since has another end.
            if self.running.get(job) == self.now:
                del self.running[job]
                self._attempts.append(self.works[job].end(self.now))
                self._finished[job] = self.now
                self._give(job)
        elif kind == _STOPPED:
            self.stopping.discard(job)
            self._give(job)

    def _give(self, job: int) -> None:
        shape = self._held.pop(job)
        if shape.bundles:
            self.room.give(shape, self.works[job].nodes)
        self._policy.freed(job)

    def _at(self, at_s: float, kind: int, job: int) -> None:
        heapq.heappush(self._events, (at_s, next(self._count), kind, job))


def replayed(trace: Trace, cluster: Cluster, policy: Policy) -> Outcome:
    """Return what a rival makes of a trace."""
    began = time.perf_counter()
    outcome = Engine(trace, cluster, policy).play()
    return dataclasses.replace(outcome, took_s=time.perf_counter() - began)
