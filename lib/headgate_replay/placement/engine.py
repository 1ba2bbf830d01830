"""The virtual cluster: the free room on its nodes, the progress of each job, and one policy that decides."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from headgate.core.errors import HeadgateError
from headgate.placement.amounts import Amounts
from headgate.placement.pool import NodeView
from headgate.placement.request import Strategy
from headgate_replay.agenda import Agenda
from headgate_replay.placement.jobs import Cluster, Job, Trace


class OvercommittedError(HeadgateError):
    """Raised if a policy gave out more than a simulated node has, or left work behind: a bug of the policy."""

    code = "overcommitted"
    next_step = "This is an error of Headgate: report it with the command that you ran and its seed."


Units = tuple[int, ...]
Free = list[list[int]]


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Bundles as integers, one per resource of the cluster. A `Room` has one object for equal shapes.

    `whole` is the sum of the bundles; a shape is not possible if a bundle asks for a resource that no node has.
    """

    bundles: tuple[Units, ...]
    whole: Units
    strategy: Strategy
    is_possible: bool = True

    @property
    def is_on_one_node(self) -> bool:
        """Whether one node must hold the whole shape."""
        return len(self.bundles) == 1 or self.strategy == "STRICT_PACK"


class Room:
    """The free units of every node. Owned by one replay and lives as long as it."""

    def __init__(self, nodes: Sequence[NodeView]) -> None:
        self.names = tuple(sorted({name for node in nodes for name in node.total.names()}))
        self.capacity = [self.units_of(node.total) for node in nodes]
        self.free: Free = [list(units) for units in self.capacity]
        self._places = {node.node_id: place for place, node in enumerate(nodes)}
        self._shapes: dict[tuple[tuple[Amounts, ...], Strategy], Shape] = {}

    def units_of(self, amounts: Amounts) -> Units:
        """Return units in the order of the cluster's resources."""
        have = dict(amounts.units)
        return tuple(have.get(name, 0) for name in self.names)

    def shape_of(self, bundles: tuple[Amounts, ...], strategy: Strategy) -> Shape:
        """Return the shape of these bundles; equal bundles are compiled once."""
        key = (bundles, strategy)
        shape = self._shapes.get(key)
        if shape is None:
            units = [self.units_of(bundle) for bundle in bundles]
            possible = all(set(bundle.names()) <= set(self.names) for bundle in bundles)
            whole = tuple(sum(each) for each in zip(*units, strict=True))
            shape = self._shapes[key] = Shape(tuple(units), whole, strategy, possible)
        return shape

    def places(self, node_ids: Iterable[str]) -> tuple[int, ...]:
        """Return the positions of nodes by their ids."""
        return tuple(self._places[node_id] for node_id in node_ids)

    def place(self, shape: Shape) -> tuple[int, ...] | None:
        """Return a node for each bundle by best fit, or None if there is no room."""
        return place_in(self.free, shape)

    def take(self, shape: Shape, nodes: Sequence[int]) -> None:
        """Take the room of a shape; raise OvercommittedError if a node has less."""
        for node, bundle in zip(nodes, shape.bundles, strict=True):
            free = self.free[node]
            for position, units in enumerate(bundle):
                free[position] -= units
                if free[position] < 0:
                    raise OvercommittedError(
                        f"node {node} was given out beyond its {self.names[position]}: {free[position]} units are left"
                    )

    def give(self, shape: Shape, nodes: Sequence[int]) -> None:
        """Give the room of a shape back."""
        for node, bundle in zip(nodes, shape.bundles, strict=True):
            free = self.free[node]
            for position, units in enumerate(bundle):
                free[position] += units


def place_in(free: Free, shape: Shape) -> tuple[int, ...] | None:
    """Return a node for each bundle, or None.

    A single bundle, or bundles that must share a node, go to the node that is left with the least. Several bundles are
    placed one by one, the largest first, each on the best remaining node; SPREAD prefers nodes without a bundle.
    """
    if not shape.is_possible:
        return None
    if shape.is_on_one_node:
        node = _best(free, shape.whole, ())
        return None if node is None else (node,) * len(shape.bundles)
    left = [list(units) for units in free]
    found: dict[int, int] = {}
    for place in sorted(range(len(shape.bundles)), key=lambda place: shape.bundles[place], reverse=True):
        bundle = shape.bundles[place]
        taken = tuple(found.values()) if "SPREAD" in shape.strategy else ()
        node = _best(left, bundle, taken)
        if node is None and shape.strategy == "SPREAD":
            node = _best(left, bundle, ())
        if node is None:
            return None
        found[place] = node
        left[node] = [have - units for have, units in zip(left[node], bundle, strict=True)]
    return tuple(found[place] for place in range(len(shape.bundles)))


def _best(free: Free, bundle: Units, without: tuple[int, ...]) -> int | None:
    best, least = None, None
    for node, have in enumerate(free):
        if node in without:
            continue
        for units, room in zip(bundle, have, strict=True):
            if units > room:
                break
        else:
            if least is None or have < least:
                best, least = node, have
    return best


@dataclass(frozen=True, slots=True)
class Attempt:
    """One stay of a job on nodes.

    It held its nodes (one for each bundle) from `held_s` on and worked from `began_s` to `ended_s`; the two are equal
    if it was stopped before it began. `lost_s` is the work that must be repeated, and the restart that began this stay.
    """

    job: int
    nodes: tuple[int, ...]
    held_s: float
    began_s: float
    ended_s: float
    lost_s: float
    is_last: bool


class Work:
    """The progress of one job; owned by one replay.

    Invariant: `saved_s` never decreases, and is never more than the job's duration.
    """

    __slots__ = ("began_s", "held_s", "job", "nodes", "position", "saved_s", "stops")

    def __init__(self, position: int, job: Job) -> None:
        self.position = position
        self.job = job
        self.saved_s = 0.0
        self.stops = 0
        self.nodes: tuple[int, ...] = ()
        self.held_s = 0.0
        self.began_s: float | None = None

    @property
    def restart_s(self) -> float:
        """Seconds that this start takes before work continues."""
        return self.job.restart_s if self.stops else 0.0

    @property
    def left_s(self) -> float:
        """Seconds that a stay takes if it begins now."""
        return self.restart_s + self.job.duration_s - self.saved_s

    def hold(self, nodes: tuple[int, ...], now: float) -> None:
        """Take nodes; the work does not run yet."""
        self.nodes, self.held_s, self.began_s = nodes, now, None

    def begin(self, now: float) -> float:
        """Begin to work and return when the work will be done."""
        self.began_s = now
        return now + self.left_s

    def checkpoint_s(self, now: float) -> float:
        """Return when this stay last saved its progress, or its beginning if it has not."""
        began = now if self.began_s is None else self.began_s
        saved = self._saved_here(now)
        return began + self.restart_s + saved if saved else began

    def unsaved_s(self, now: float) -> float:
        """Return how many seconds of this stay a stop now would lose, including its restart."""
        if self.began_s is None or now <= self.began_s:
            return 0.0
        return now - self.began_s - self._saved_here(now)

    def stop(self, now: float) -> Attempt:
        """Stop the work: unsaved progress is lost. Work that had not begun does not count as stopped."""
        lost = self.unsaved_s(now)
        began = now if self.began_s is None else min(now, self.began_s)
        self.saved_s += self._saved_here(now)
        self.stops += began < now
        self.began_s = None
        return Attempt(self.position, self.nodes, self.held_s, began, now, lost, is_last=False)

    def end(self, now: float) -> Attempt:
        """End the stay: the job is done."""
        began = now if self.began_s is None else self.began_s
        return Attempt(self.position, self.nodes, self.held_s, began, now, self.restart_s, is_last=True)

    def _saved_here(self, now: float) -> float:
        every = self.job.checkpoint_every_s
        if every is None or self.began_s is None:
            return 0.0
        progress = min(now - self.began_s - self.restart_s, self.job.duration_s - self.saved_s)
        return max(0.0, progress // every * every)


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision to stop work for a job, and the least that it could have lost.

    Shares are seconds of the whole cluster: the victim's dominant share times the seconds lost.

    Attributes:
        victims: positions of the stopped jobs in the trace.
        lost_share_s: what the chosen victims lose.
        least_share_s: the least that any feasible set of victims under the same rules would have lost.
        least_in_band_share_s: the same among sets with no victim of a higher band than the chosen ones.
        is_exact: whether both were found by complete search; otherwise they are lower bounds.
    """

    victims: tuple[int, ...]
    lost_share_s: float
    least_share_s: float
    least_in_band_share_s: float
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one policy on one trace.

    Attributes:
        attempts: every stay of every job, in the order of their ends.
        finished_s: when each job was done; None if it never was.
        decisions: the planned preemptions.
        took_s: real seconds that the replay took.
        cpu_s: CPU seconds that the replay took.
    """

    policy: str
    says: str
    attempts: tuple[Attempt, ...]
    finished_s: tuple[float | None, ...]
    decisions: tuple[Decision, ...] = ()
    took_s: float = 0.0
    cpu_s: float = 0.0


class Policy(ABC):
    """Decides which jobs run next, where, and which are stopped for them; jobs are positions in the trace."""

    name: str
    says: str

    def open(self, engine: Engine) -> None:
        """Begin with an engine; called once, before the first arrival."""
        self.engine = engine

    @abstractmethod
    def arrived(self, job: int) -> None:
        """Take a new job in."""

    def freed(self, job: int) -> None:  # noqa: B027 - only some policies need it
        """React to a job that gave its room back because it is done or was stopped."""

    @abstractmethod
    def decide(self) -> None:
        """Start all jobs that can start now."""


class Engine:
    """Runs one trace under one policy. Owned by `replayed`.

    Jobs are known by their position in the trace.

    Attributes:
        agenda: planned events; a policy that must decide at a certain moment plans an event for it.
        running: jobs that hold nodes and are not being stopped, with the end of their work.
        attempts: every stay that has ended.
        judgements: functions that compare a preemption with the least that it could have lost; called after the replay.
    """

    def __init__(self, trace: Trace, cluster: Cluster) -> None:
        self.trace = trace
        self.cluster = cluster
        self.now = 0.0
        self.agenda = Agenda()
        self.room = Room(cluster.nodes)
        self.works = [Work(position, job) for position, job in enumerate(trace.jobs)]
        self.shapes: list[Shape] = [self.room.shape_of(job.bundles, job.strategy) for job in trace.jobs]
        self.running: dict[int, float] = {}
        self.stopping: set[int] = set()
        self.attempts: list[Attempt] = []
        self.finished_s: list[float | None] = [None] * len(trace.jobs)
        self.judgements: list[Callable[[], Decision | None]] = []
        self._left = len(trace.jobs)
        self._held: dict[int, Shape] = {}

    def start(self, job: int, nodes: tuple[int, ...], *, delay_s: float, takes_room: bool = True) -> None:
        """Start a job on nodes; its work begins `delay_s` and the start latency later.

        Without `takes_room` it runs in a group whose room was taken earlier; the group remains when the job is gone.
        """
        if takes_room:
            self.room.take(self.shapes[job], nodes)
            self._held[job] = self.shapes[job]
        work = self.works[job]
        work.hold(nodes, self.now)
        ends = work.begin(self.now + delay_s + self.cluster.latencies.start_s)
        self.running[job] = ends
        self.agenda.plan(ends, partial(self._end, job))

    def stop(self, job: int) -> None:
        """Stop a running job, which does no more work; the policy's `freed` is called when it is dead."""
        del self.running[job]
        self.stopping.add(job)
        self.attempts.append(self.works[job].stop(self.now))
        self.agenda.plan(self.now + self.cluster.latencies.stop_s, partial(self._give, job))

    def play(self, policy: Policy) -> None:
        """Run until every job is done or no more events are planned."""
        self._policy = policy
        for position, job in enumerate(self.trace.jobs):
            self.agenda.plan(job.arrived_s, partial(self._arrive, position))
        policy.open(self)
        while self._left and self.agenda:
            self.now = self.agenda.next_s
            self.agenda.happen(self.now)
            policy.decide()

    def _arrive(self, job: int, _now: float) -> None:
        self._policy.arrived(job)

    def _end(self, job: int, now: float) -> None:
        if self.running.get(job) != now:  # it was stopped in the meantime and has another end
            return
        del self.running[job]
        self.attempts.append(self.works[job].end(now))
        self.finished_s[job] = now
        self._left -= 1
        self._give(job, now)

    def _give(self, job: int, _now: float) -> None:
        self.stopping.discard(job)
        shape = self._held.pop(job, None)
        if shape is not None:
            self.room.give(shape, self.works[job].nodes)
        self._policy.freed(job)


def replayed(trace: Trace, cluster: Cluster, policy: Policy) -> Outcome:
    """Replay a trace under a policy and return the outcome; judging its preemptions does not count in its times."""
    began, cpu_began = time.perf_counter(), time.process_time()
    engine = Engine(trace, cluster)
    engine.play(policy)
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    decisions = tuple(found for judge in engine.judgements if (found := judge()) is not None)
    return Outcome(policy.name, policy.says, tuple(engine.attempts), tuple(engine.finished_s), decisions, took_s, cpu_s)
