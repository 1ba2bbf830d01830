"""What is replayed: jobs in order of arrival, and the simulated cluster that they run on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.placement.amounts import CPU, GPU, MEBIBYTE, MEMORY, MILLI, Amounts, amounts, total
from headgate.placement.node import NodeView
from headgate.placement.pool import GroupShape
from headgate.placement.request import PlacementRequest, Strategy
from headgate.replay.errors import InvalidTraceError

HIGH_FROM: Final = 8.0
"""Work of this priority and above is called high-priority in every table."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a trace.

    Attributes:
        job_id: unique in its trace.
        arrived_s: seconds since the trace's start.
        duration_s: seconds of work, without waiting, restarts, and what is done twice.
        bundles: what each of its members takes.
        priority: higher goes first.
        labels: what preemption rules look at.
        strategy: where its members may lie.
        checkpoint_every_s: seconds of work between checkpoints; None where a stop loses everything.
        restart_s: seconds that a new start after a stop takes before work goes on.
        preemptible: whether it may be stopped for others.
        estimated_s: the duration that schedulers are told; 0 tells them nothing.
        kind: what it is drawn and counted as.
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
        """How many GPUs it holds."""
        return self.size.get(GPU) / MILLI

    @property
    def band(self) -> int:
        """The whole part of its priority."""
        return math.floor(self.priority)

    def request(self, pool: str) -> PlacementRequest:
        """Return what the ledger is asked."""
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

    Attributes:
        name: what the tables call it.
        jobs: sorted by `arrived_s`, ids unique.
        notes: what was assumed or changed to make it; shown with every result.
    """

    name: str
    jobs: tuple[Job, ...]
    notes: tuple[str, ...] = ()

    @property
    def window_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return self.jobs[-1].arrived_s - self.jobs[0].arrived_s


def trace_of(name: str, jobs: Iterable[Job], notes: Sequence[str] = ()) -> Trace:
    """Return a trace of jobs in any order.

    Raises:
        InvalidTraceError: there is none, or two have one id.
    """
    ordered = tuple(sorted(jobs, key=lambda job: job.arrived_s))
    if not ordered:
        raise InvalidTraceError(f"{name} has no job")
    seen: set[str] = set()
    for job in ordered:
        if job.job_id in seen:
            raise InvalidTraceError(f"{name}: two jobs have the id {job.job_id!r}")
        seen.add(job.job_id)
    return Trace(name, ordered, tuple(notes))


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds that the cluster takes; the defaults are what Ray 2.60 took when measured.

    Attributes:
        create_s: to make a group on nodes that were seen free, settings tuned.
        start_s: to start work in a group.
        stop_s: to stop work and see it dead.
        remove_s: to remove a group and see its nodes free.
        untuned_s: until Ray by itself gives what became free to a group that is pending.
    """

    create_s: float = 0.012
    start_s: float = 0.15
    stop_s: float = 0.05
    remove_s: float = 0.01
    untuned_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes that are all there from the start to the end.

    Attributes:
        nodes: what the ledger is shown.
        latencies: see there.
        reserved: groups kept ready for high-priority work.
    """

    nodes: tuple[NodeView, ...]
    latencies: Latencies = field(default_factory=Latencies)
    reserved: tuple[GroupShape, ...] = ()

    @property
    def total(self) -> Amounts:
        """What all nodes have together."""
        return total(node.total for node in self.nodes)

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
        InvalidTraceError: a number that makes no cluster.
    """
    if nodes < 1:
        raise InvalidTraceError(f"A cluster has at least 1 node (got {nodes})")
    each = amounts(cpu=cpus, gpu=gpus, memory_bytes=memory_gib * 1024 * MEBIBYTE)
    if not each:
        raise InvalidTraceError("A node of a cluster has GPUs, CPUs or memory (got none of them)")
    return Cluster(
        tuple(NodeView(f"node-{number}", each) for number in range(nodes)), latencies or Latencies(), reserved
    )
