"""The simulated cluster: its nodes, and how long it takes to do what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.placement.amounts import CPU, GPU, MEBIBYTE, MEMORY, MILLI, Amounts, amounts, total
from headgate.placement.errors import CannotFitError
from headgate.placement.node import NodeView
from headgate.placement.pool import GroupShape
from headgate.placement.replay.errors import InvalidTraceError
from headgate.placement.replay.job import Job, Trace
from headgate.placement.replay.room import Room


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


def check_fits(trace: Trace, cluster: Cluster) -> None:
    """Check that every job could run on the empty cluster.

    Raises:
        CannotFitError: for the first job that could not; it would wait for ever.
    """
    room = Room(cluster.nodes)
    known: dict[tuple[tuple[Amounts, ...], str], bool] = {}
    for job in trace.jobs:
        key = (job.bundles, job.strategy)
        if key not in known:
            known[key] = room.place(room.shape_of(job.bundles, job.strategy)) is not None
        if not known[key]:
            raise CannotFitError(
                f"{trace.name}: job {job.job_id} takes {_said(job)}, and no part of the empty cluster "
                f"({cluster}) has room for it",
                next_step="Give the simulated cluster larger nodes or more of them, or leave the job out.",
            )


def _said(job: Job) -> str:
    if len(job.bundles) == 1:
        return str(job.size)
    return f"{len(job.bundles)} x {job.bundles[0]} ({job.strategy})"
