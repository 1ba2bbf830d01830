"""Jobs of a trace: what arrived when, how large it was, and how long it ran."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.placement.amounts import GPU, MILLI, Amounts, total
from headgate.placement.replay.errors import InvalidTraceError
from headgate.placement.request import PlacementRequest, Strategy

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
