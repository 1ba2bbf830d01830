"""The input of a replay: jobs in order of arrival, generated mixes, and the simulated cluster."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from headgate.placement.amounts import CPU, GPU, MEBIBYTE, MEMORY, MILLI, Amounts, amounts, total
from headgate.placement.errors import InvalidPlacementError
from headgate.placement.pool import GroupShape, NodeView
from headgate.placement.request import PlacementRequest, Strategy


class InvalidTraceError(InvalidPlacementError):
    """Raised if a file of jobs or a setting of a replay cannot be used."""

    code = "invalid_trace"
    next_step = "Correct it and run the command again; `headgate placement simulate --help` explains the options."


HIGH_FROM: Final = 8.0
"""Work of this priority and above counts as high-priority in every table."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a trace.

    Attributes:
        job_id: unique in its trace.
        arrived_s: seconds since the trace's start.
        duration_s: seconds of work, without waiting, restarts and repeated work.
        bundles: resources of each of its members.
        priority: its priority; higher goes first.
        labels: labels for preemption rules.
        strategy: how its members are placed on nodes.
        checkpoint_every_s: seconds of work between checkpoints; None if a stop loses everything.
        restart_s: seconds that a restart after a stop takes before work continues.
        preemptible: whether it may be stopped for others.
        estimated_s: duration that schedulers are told; 0 if they are not told.
        kind: the category under which it is drawn and counted.
    """

    job_id: str
    arrived_s: float
    duration_s: float
    bundles: tuple[Amounts, ...]
    priority: float = 5.0
    labels: Mapping[str, str] = field(default_factory=dict)
    strategy: Strategy = "PACK"
    checkpoint_every_s: float | None = 600.0
    restart_s: float = 30.0
    preemptible: bool = True
    estimated_s: float = 0.0
    kind: str = ""

    @property
    def size(self) -> Amounts:
        """The sum of its bundles."""
        return self.bundles[0] if len(self.bundles) == 1 else total(self.bundles)

    @property
    def gpus(self) -> float:
        """Number of GPUs that it holds."""
        return self.size.get(GPU) / MILLI

    @property
    def band(self) -> int:
        """The whole part of its priority."""
        return math.floor(self.priority)

    def request(self, pool: str) -> PlacementRequest:
        """Return the request to the ledger."""
        return PlacementRequest(
            self.job_id,
            pool,
            self.bundles,
            self.priority,
            self.labels,
            self.strategy,
            preemptible=self.preemptible,
            estimated_duration_s=self.estimated_s,
            restart_s=self.restart_s,
            checkpoints=self.checkpoint_every_s is not None,
        )


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of arrival.

    `notes` tell its assumptions and changes.
    """

    name: str
    jobs: tuple[Job, ...]
    notes: tuple[str, ...] = ()


def trace_of(name: str, jobs: Iterable[Job], notes: Sequence[str] = ()) -> Trace:
    """Return a trace of jobs given in any order.

    Raises:
        InvalidTraceError: if there is no job, or two jobs have the same id.
    """
    ordered = tuple(sorted(jobs, key=lambda job: job.arrived_s))
    if not ordered:
        raise InvalidTraceError(f"{name} has no job")
    job_id, count = Counter(job.job_id for job in ordered).most_common(1)[0]
    if count > 1:
        raise InvalidTraceError(f"{name}: two jobs have the id {job_id!r}")
    return Trace(name, ordered, tuple(notes))


def without_durations(trace: Trace) -> Trace:
    """Return the same jobs without estimated durations for schedulers."""
    notes = (*trace.notes, "No policy is told how long jobs take.")
    return replace(trace, jobs=tuple(replace(job, estimated_s=0.0) for job in trace.jobs), notes=notes)


def at_load(trace: Trace, cluster: Cluster, *, jobs: int, load: float) -> Trace:
    """Return jobs from the middle of a trace, with arrivals scaled so that they ask for `load` of the cluster's GPUs.

    Raises:
        InvalidTraceError: if they all arrive at once, or ask for no GPUs.
    """
    first = max(0, (len(trace.jobs) - jobs) // 2)
    found = trace.jobs[first : first + jobs]
    gpus = cluster.total.get(cluster.counted) / MILLI
    since_s, span_s = found[0].arrived_s, sum(job.gpus * job.duration_s for job in found) / (load * gpus)
    lasted_s = found[-1].arrived_s - since_s
    if lasted_s <= 0 or span_s <= 0:
        raise InvalidTraceError(f"{trace.name}: {len(found)} jobs of its middle have no load that could be changed")
    faster = lasted_s / span_s
    note = (
        f"{len(found)} jobs of its middle, arriving {faster:.1f} times as fast: work for {load:.0%} of {gpus:g} GPUs."
    )
    arrived = (replace(job, arrived_s=(job.arrived_s - since_s) / faster) for job in found)
    return trace_of(trace.name, arrived, [*trace.notes, note])


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds that operations of the cluster take; the defaults were measured with Ray 2.60.

    Attributes:
        create_s: creating a group on nodes that are known to be free, with tuned settings.
        start_s: starting work in a group.
        stop_s: stopping work and noticing that it is dead.
        remove_s: removing a group and noticing that its nodes are free.
        untuned_s: time until untuned Ray gives free resources to a pending group.
    """

    create_s: float = 0.012
    start_s: float = 0.15
    stop_s: float = 0.05
    remove_s: float = 0.01
    untuned_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster whose nodes are all present from start to end."""

    nodes: tuple[NodeView, ...]
    latencies: Latencies = field(default_factory=Latencies)
    reserved: tuple[GroupShape, ...] = ()

    @property
    def total(self) -> Amounts:
        """The sum of all nodes' resources."""
        return total(node.total for node in self.nodes)

    @property
    def counted(self) -> str:
        """The resource that figures count: GPUs if there are any."""
        return GPU if self.total.get(GPU) else self.total.names()[0]

    def __str__(self) -> str:
        each, count = self.nodes[0].total, len(self.nodes)
        parts = (
            f"{each.get(GPU) / MILLI:g} GPUs",
            f"{each.get(CPU) / MILLI:g} CPUs",
            f"{each.get(MEMORY) / MEBIBYTE / 1024:g} GiB",
        )
        return f"{count} {'node' if count == 1 else 'nodes'} of {', '.join(parts)}"


def cluster_of(
    nodes: int = 4,
    gpus: int = 8,
    cpus: float = 128,
    memory_gib: int = 1024,
    latencies: Latencies | None = None,
    reserved: tuple[GroupShape, ...] = (),
) -> Cluster:
    """Return a cluster of equal nodes.

    Raises:
        InvalidTraceError: if there is no node, or a node without resources.
    """
    if nodes < 1:
        raise InvalidTraceError(f"A cluster has at least 1 node (got {nodes})")
    each = amounts(cpu=cpus, gpu=gpus, memory_bytes=memory_gib * 1024 * MEBIBYTE)
    if not each:
        raise InvalidTraceError("A node of a cluster has GPUs, CPUs or memory (got none of them)")
    return Cluster(
        tuple(NodeView(f"node-{number}", each) for number in range(nodes)), latencies or Latencies(), reserved
    )


LONGEST_S: Final = 6 * 3600.0
"""Maximum duration, so that one job in ten thousand does not decide a comparison."""

_RESTART_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Size:
    """A number of members and their GPUs and CPUs; `weight` is its relative frequency within its role."""

    weight: float
    members: int
    gpus: float
    cpus: float


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of work.

    `share` is its share of the requested GPU-seconds; durations are log-normal, `spread` is the standard deviation of
    their logarithm, and `burst` jobs arrive together on average.
    """

    name: str
    priority: float
    share: float
    sizes: tuple[Size, ...]
    median_s: float
    spread: float
    checkpoint_every_s: float | None
    strategy: Strategy = "PACK"
    burst: float = 1.0

    @property
    def mean_gpu_s(self) -> float:
        """GPU-seconds of its average job, ignoring the maximum duration."""
        weights = sum(size.weight for size in self.sizes)
        gpus = sum(size.weight * size.members * size.gpus for size in self.sizes) / weights
        return gpus * self.median_s * math.exp(self.spread**2 / 2)


MIXES: Final = {
    "rlhf": (
        Role("train", 9.0, 0.25, (Size(3, 2, 2, 8), Size(1, 4, 2, 8)), 1200, 0.8, 300),
        Role("reward", 8.0, 0.15, (Size(1, 1, 1, 4),), 300, 1.0, 120, burst=4),
        Role("rollout", 3.0, 0.60, (Size(3, 1, 1, 4), Size(2, 1, 0.5, 2), Size(1, 1, 2, 8)), 900, 1.3, 300, burst=6),
    ),
    "gangs": (
        Role("train", 9.0, 0.45, (Size(2, 8, 1, 4), Size(1, 4, 4, 16), Size(1, 3, 6, 12)), 900, 1.0, 300, "SPREAD"),
        Role("reward", 8.0, 0.10, (Size(1, 2, 1, 4),), 300, 1.0, 120, burst=3),
        Role("rollout", 3.0, 0.45, (Size(1, 1, 1, 4),), 600, 1.3, 300, burst=8),
    ),
    "storm": (
        Role("urgent", 9.0, 0.25, (Size(1, 1, 1, 4), Size(1, 1, 2, 8)), 60, 1.0, None, burst=24),
        Role("batch", 2.0, 0.75, (Size(1, 1, 1, 4), Size(1, 1, 4, 16)), 3600, 0.8, 600, burst=2),
    ),
}
"""Name -> roles. `rlhf`: training gangs, rewards and rollouts; `gangs`: half of the work in gangs that fill nodes;
`storm`: bursts of short urgent work on a cluster full of long work."""


def generated(mix: str, cluster: Cluster, *, hours: float = 24.0, load: float = 0.9, seed: int = 0) -> Trace:
    """Return a mix whose work asks for `load` of the cluster's GPUs over `hours`; the same seed gives the same jobs.

    Bursts arrive as a Poisson process; their sizes are geometric and durations log-normal.

    Raises:
        InvalidTraceError: if the mix is unknown, a number is out of range, or the cluster has no GPUs.
    """
    if mix not in MIXES:
        raise InvalidTraceError(f"there is no mix {mix!r}; there are {', '.join(MIXES)}")
    if not (0 < hours <= 10_000 and 0 < load <= 10):
        raise InvalidTraceError(f"hours must be in (0, 10 000] and load in (0, 10] (got {hours:g} and {load:g})")
    gpus = cluster.total.get(GPU) / 1000
    if not gpus:
        raise InvalidTraceError("a generated mix needs a simulated cluster with GPUs (got none)")
    jobs = [
        job
        for number, role in enumerate(MIXES[mix])
        for job in _jobs(role, hours * 3600, load * gpus, random.Random(f"{mix}/{seed}/{number}"))
    ]
    note = (
        f"Generated: mix {mix}, {hours:g} h, seed {seed}; work for {load:.0%} of {gpus:g} GPUs, {len(jobs)} jobs, "
        f"durations cut at {LONGEST_S / 3600:g} h."
    )
    return trace_of(f"mix {mix}", jobs, [note])


def _jobs(role: Role, span_s: float, gpus: float, chance: random.Random) -> Iterator[Job]:
    bursts_per_s = role.share * gpus / (role.mean_gpu_s * role.burst)
    at, number = chance.expovariate(bursts_per_s), 0
    while at < span_s:
        more = math.log(1.0 - chance.random()) / math.log(1.0 - 1.0 / role.burst) if role.burst > 1 else 0
        for _ in range(1 + int(more)):
            size = chance.choices(role.sizes, [size.weight for size in role.sizes])[0]
            duration_s = min(LONGEST_S, max(1.0, chance.lognormvariate(math.log(role.median_s), role.spread)))
            yield Job(
                f"{role.name}-{number}",
                round(at, 3),
                round(duration_s, 3),
                (amounts(cpu=size.cpus, gpu=size.gpus),) * size.members,
                role.priority,
                {"role": role.name},
                role.strategy,
                checkpoint_every_s=role.checkpoint_every_s,
                restart_s=_RESTART_S,
                estimated_s=round(duration_s, 3),
                kind=role.name,
            )
            number += 1
        at += chance.expovariate(bursts_per_s)
