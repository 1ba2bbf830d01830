"""One trace under several policies: their figures and the bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from headgate.placement.amounts import MILLI
from headgate.placement.errors import CannotFitError
from headgate.placement.rules import PreemptionRules
from headgate_replay.placement.bounds import least_waiting_s
from headgate_replay.placement.engine import Decision, Outcome, Room, Shape, replayed
from headgate_replay.placement.jobs import HIGH_FROM, Cluster, InvalidTraceError, Job, Trace
from headgate_replay.placement.ledger_driver import through_ledger
from headgate_replay.placement.peers import Easy, PlainRay, StrictFifo, clairvoyant
from headgate_replay.placement.preemptive import LeastAttained, LeastRemaining
from headgate_replay.placement.single_victim import SingleVictim

QUANTILES: Final = (0.5, 0.95, 0.99)
"""Quantiles of waiting in every table."""

_SHORT_S: Final = 10.0
"""Shorter work counts as this long in the slowdown (bounded slowdown, Feitelson 1997)."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Seconds that jobs took beyond their own work, by quantile; None if no job of the kind was done.

    This is all time from arrival to end except the duration: queueing, starting, restarting, and repeating lost work.
    """

    jobs: int
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None


@dataclass(frozen=True, slots=True)
class Measures:
    """One row of the comparison.

    Attributes:
        all: waiting of all work.
        widest: waiting of the jobs that take the largest share of the cluster.
        slowdown_p95: 95th percentile of bounded slowdown; None if no job was done.
        high: waiting of high-priority work.
        bands: waiting by band, highest first.
        utilisation: share of the cluster's GPUs that ran work, from the first arrival to the last.
        useful: the same without lost work.
        lost_gpu_s: GPU-seconds of work that was done twice, and of restarts.
        lost_share_s: the same in seconds of the whole cluster by dominant share, which also counts CPUs.
        preemptions: number of stops of running work for other work; `victims` jobs were stopped at least once.
        makespan_s: seconds from the first arrival to the last end.
        decisions: number of preemptions that were compared with the least that could have been lost.
        lost_over_least: lost work of all these decisions divided by the least; None if only the least is 0.
        lost_over_least_in_band: the same with the least among victims of no higher band.
        exact_share: share of these decisions whose least was found by complete search.
        took_s: real seconds that the replay took.
        cpu_ms: CPU time of the policy and the simulated cluster per event: an arrival, a start, a stop, an end.
    """

    policy: str
    all: Waiting
    widest: Waiting
    slowdown_p95: float | None
    high: Waiting
    bands: dict[int, Waiting]
    utilisation: float
    useful: float
    lost_gpu_s: float
    lost_share_s: float
    preemptions: int
    victims: int
    victims_done: int
    never_done: int
    makespan_s: float
    decisions: int
    lost_over_least: float | None
    lost_over_least_in_band: float | None
    exact_share: float
    took_s: float
    cpu_ms: float

    @property
    def high_p95_s(self) -> float:
        """p95 waiting of the highest band; 0 if none of its jobs was done."""
        return next(iter(self.bands.values())).p95_s or 0.0


def measured(trace: Trace, cluster: Cluster, outcome: Outcome) -> Measures:
    """Return the figures of an outcome."""
    stops = Counter(attempt.job for attempt in outcome.attempts if not attempt.is_last)
    lost = [(attempt.lost_s, trace.jobs[attempt.job]) for attempt in outcome.attempts if attempt.lost_s]
    done, decisions = outcome.finished_s, outcome.decisions
    first = trace.jobs[0].arrived_s
    bands = sorted({job.band for job in trace.jobs}, reverse=True)
    waits = list(zip(trace.jobs, waited_s(trace, outcome), strict=True))
    widest = max(job.size.share_of(cluster.total) for job in trace.jobs)
    return Measures(
        policy=outcome.policy,
        all=_waiting(wait for _, wait in waits),
        widest=_waiting(wait for job, wait in waits if job.size.share_of(cluster.total) >= widest),
        slowdown_p95=_slowdown_p95(waits),
        high=_waiting(wait for job, wait in waits if job.priority >= HIGH_FROM),
        bands={band: _waiting(wait for job, wait in waits if job.band == band) for band in bands},
        utilisation=_use(trace, cluster, outcome, is_useful=False),
        useful=_use(trace, cluster, outcome, is_useful=True),
        lost_gpu_s=sum((lost_s * job.gpus for lost_s, job in lost), 0.0),
        lost_share_s=sum(lost_s * job.size.share_of(cluster.total) for lost_s, job in lost),
        preemptions=stops.total(),
        victims=len(stops),
        victims_done=sum(done[job] is not None for job in stops),
        never_done=sum(at is None for at in done),
        makespan_s=max((at for at in done if at is not None), default=first) - first,
        decisions=len(decisions),
        lost_over_least=_ratio(decisions, sum(each.least_share_s for each in decisions)),
        lost_over_least_in_band=_ratio(decisions, sum(each.least_in_band_share_s for each in decisions)),
        exact_share=sum(each.is_exact for each in decisions) / max(1, len(decisions)),
        took_s=outcome.took_s,
        cpu_ms=1_000 * outcome.cpu_s / (len(trace.jobs) + 2 * len(outcome.attempts)),
    )


def waited_s(trace: Trace, outcome: Outcome) -> list[float | None]:
    """Return how long each job took beyond its own work; None if it was never done."""
    return [
        None if at is None else max(0.0, at - job.arrived_s - job.duration_s)
        for job, at in zip(trace.jobs, outcome.finished_s, strict=True)
    ]


def _waiting(waits_s: Iterable[float | None]) -> Waiting:
    done = [wait_s for wait_s in waits_s if wait_s is not None]
    if not done:
        return Waiting(0, None, None, None, None)
    return Waiting(len(done), float(np.mean(done)), *np.quantile(done, QUANTILES, method="inverted_cdf").tolist())


def _slowdown_p95(waits: Iterable[tuple[Job, float | None]]) -> float | None:
    """Return the 95th percentile of time in the system divided by duration, which counts as at least ten seconds."""
    slowdowns = [
        max(1.0, (wait_s + job.duration_s) / max(job.duration_s, _SHORT_S))
        for job, wait_s in waits
        if wait_s is not None
    ]
    return float(np.quantile(slowdowns, 0.95, method="inverted_cdf")) if slowdowns else None


def _use(trace: Trace, cluster: Cluster, outcome: Outcome, *, is_useful: bool) -> float:
    """Return the share of GPUs (or of another resource if there are none) that worked while jobs arrived."""
    name = cluster.counted
    start, end = trace.jobs[0].arrived_s, trace.jobs[-1].arrived_s
    if end <= start:
        end = max((at for at in outcome.finished_s if at is not None), default=start + 1.0)
    busy = 0.0
    for attempt in outcome.attempts:
        # Lost work is at the end of its stay: no checkpoint holds that part.
        ended = attempt.ended_s - (attempt.lost_s if is_useful else 0.0)
        seconds = min(ended, end) - max(attempt.began_s, start)
        if seconds > 0:
            busy += seconds * trace.jobs[attempt.job].size.get(name) / MILLI
    return busy / (cluster.total.get(name) / MILLI * (end - start))


def _ratio(decisions: Sequence[Decision], least: float) -> float | None:
    lost = sum(decision.lost_share_s for decision in decisions)
    if least <= 0:
        return 1.0 if lost <= 0 else None
    return lost / least


Play = Callable[[Trace, Cluster, PreemptionRules], Outcome]

POLICIES: Final[dict[str, Play]] = {
    "headgate": through_ledger,
    "ray": lambda trace, cluster, _rules: replayed(trace, cluster, PlainRay()),
    "fifo": lambda trace, cluster, _rules: replayed(trace, cluster, StrictFifo()),
    "easy": lambda trace, cluster, _rules: replayed(trace, cluster, Easy(by_priority=False)),
    "priority-easy": lambda trace, cluster, _rules: replayed(trace, cluster, Easy(by_priority=True)),
    "single-victim": lambda trace, cluster, rules: replayed(
        trace, cluster, SingleVictim(rules.label_rules, victims_return=False)
    ),
    "single-victim-requeued": lambda trace, cluster, rules: replayed(
        trace, cluster, SingleVictim(rules.label_rules, victims_return=True)
    ),
    "least-attained": lambda trace, cluster, _rules: replayed(trace, cluster, LeastAttained()),
    "least-remaining": lambda trace, cluster, _rules: replayed(trace, cluster, LeastRemaining()),
    "clairvoyant": lambda trace, cluster, _rules: clairvoyant(trace, cluster),
}
"""Name on the command line -> function that replays a trace under the policy."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of several policies on one trace.

    `least_waiting_s` maps quantiles to lower bounds of high-priority waiting under any policy.
    """

    trace: Trace
    cluster: Cluster
    outcomes: tuple[Outcome, ...]
    measures: tuple[Measures, ...]
    least_waiting_s: dict[str, float]

    def document(self) -> dict[str, Any]:
        """Return the comparison as JSON values, without the stays of each job."""
        return {
            "trace": self.trace.name,
            "jobs": len(self.trace.jobs),
            "cluster": str(self.cluster),
            "notes": list(self.trace.notes),
            "high_from": HIGH_FROM,
            "policies": [
                {"says": outcome.says} | asdict(each)
                for outcome, each in zip(self.outcomes, self.measures, strict=True)
            ],
            "least_high_waiting_s": self.least_waiting_s,
        }


def compared(
    trace: Trace,
    cluster: Cluster,
    rules: PreemptionRules,
    policies: Sequence[str] = tuple(POLICIES),
    *,
    tell: Callable[[str], None] = lambda _name: None,
) -> Comparison:
    """Replay a trace under each policy.

    `tell` is called with the name of each policy before its replay; `single-victim` uses the label rules of `rules`.

    Raises:
        InvalidTraceError: if a policy is unknown.
        CannotFitError: if a job is too large for the empty cluster.
    """
    for name in policies:
        if name not in POLICIES:
            raise InvalidTraceError(f"there is no policy {name!r}; there are {', '.join(POLICIES)}")
    check_fits(trace, cluster)
    outcomes = []
    for name in policies:
        tell(name)
        outcomes.append(POLICIES[name](trace, cluster, rules))
    return Comparison(
        trace,
        cluster,
        tuple(outcomes),
        tuple(measured(trace, cluster, outcome) for outcome in outcomes),
        {f"p{round(q * 100)}": least_waiting_s(trace, cluster, q, HIGH_FROM) for q in QUANTILES},
    )


def check_fits(trace: Trace, cluster: Cluster) -> None:
    """Check that every job could run on the empty cluster.

    Raises:
        CannotFitError: for the first job that could not; it would wait forever.
    """
    room = Room(cluster.nodes)
    shapes: set[Shape] = set()
    for job in trace.jobs:
        shape = room.shape_of(job.bundles, job.strategy)
        if shape not in shapes and room.place(shape) is None:
            is_gang = len(job.bundles) > 1
            size = f"{len(job.bundles)} x {job.bundles[0]} ({job.strategy})" if is_gang else str(job.size)
            raise CannotFitError(
                f"{trace.name}: job {job.job_id} takes {size}, and no part of the empty cluster ({cluster}) has room "
                "for it",
                next_step="Give the simulated cluster larger nodes or more of them, or leave the job out.",
            )
        shapes.add(shape)
