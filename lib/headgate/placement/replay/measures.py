"""The figures of a replay: waiting, use, lost work, preemptions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.placement.amounts import GPU, MILLI
from headgate.placement.replay.cluster import Cluster
from headgate.placement.replay.job import HIGH_FROM, Job, Trace
from headgate.placement.replay.outcome import Decision, Outcome

QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Seconds that jobs took beyond their own work, by quantile; None where no job of the kind was done.

    In line, being started, restarts, and doing again what was lost: all time from arrival to end but the duration.
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
        policy: whose.
        high: waiting of high-priority work.
        bands: waiting by band, highest first.
        utilisation: share of the cluster's GPUs that ran work, from the first arrival to the last.
        useful: the same without work that was lost.
        lost_gpu_s: GPU-seconds of work that was done twice, and of restarts.
        lost_share_s: the same in seconds of the whole cluster by dominant share, which counts CPUs, too.
        preemptions: stops of running work for other work.
        victims: jobs that were stopped at least once.
        victims_done: victims that were done in the end.
        never_done: jobs that never were.
        makespan_s: from the first arrival to the last end.
        decisions: preemptions that were compared with the least that could have been lost.
        lost_over_least: lost work of those decisions together over the least; None where that is 0 and theirs is not.
        lost_over_least_in_band: the same beside the least among victims of no higher band.
        exact_share: share of those decisions whose least was found by complete search.
        took_s: real seconds of the replay.
    """

    policy: str
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

    def document(self) -> dict[str, object]:
        """Return it as JSON values."""
        return dataclasses.asdict(self)


def measured(trace: Trace, cluster: Cluster, outcome: Outcome, *, high_from: float = HIGH_FROM) -> Measures:
    """Return the figures of an outcome."""
    stops: dict[int, int] = {}
    for attempt in outcome.attempts:
        if not attempt.is_last:
            stops[attempt.job] = stops.get(attempt.job, 0) + 1
    done = outcome.finished_s
    first = trace.jobs[0].arrived_s
    return Measures(
        policy=outcome.policy,
        high=_waiting(trace, outcome, lambda job: job.priority >= high_from),
        bands={band: _of_band(trace, outcome, band) for band in sorted({j.band for j in trace.jobs}, reverse=True)},
        utilisation=_use(trace, cluster, outcome, is_useful=False),
        useful=_use(trace, cluster, outcome, is_useful=True),
        lost_gpu_s=sum(attempt.lost_s * trace.jobs[attempt.job].gpus for attempt in outcome.attempts),
        lost_share_s=sum(
            attempt.lost_s * trace.jobs[attempt.job].size.share_of(cluster.total)
            for attempt in outcome.attempts
            if attempt.lost_s
        ),
        preemptions=sum(stops.values()),
        victims=len(stops),
        victims_done=sum(done[job] is not None for job in stops),
        never_done=sum(at is None for at in done),
        makespan_s=max((at for at in done if at is not None), default=first) - first,
        decisions=len(outcome.decisions),
        lost_over_least=_ratio(outcome.decisions, lambda decision: decision.least_share_s),
        lost_over_least_in_band=_ratio(outcome.decisions, lambda decision: decision.least_in_band_share_s),
        exact_share=sum(each.is_exact for each in outcome.decisions) / max(1, len(outcome.decisions)),
        took_s=outcome.took_s,
    )


def waited_s(trace: Trace, outcome: Outcome) -> list[float | None]:
    """Return what each job took beyond its own work; None for those that were never done."""
    return [
        None if at is None else max(0.0, at - job.arrived_s - job.duration_s)
        for job, at in zip(trace.jobs, outcome.finished_s, strict=True)
    ]


def _of_band(trace: Trace, outcome: Outcome, band: int) -> Waiting:
    return _waiting(trace, outcome, lambda job: job.band == band)


def _waiting(trace: Trace, outcome: Outcome, is_asked: Callable[[Job], bool]) -> Waiting:
    waits = [
        wait
        for job, wait in zip(trace.jobs, waited_s(trace, outcome), strict=True)
        if wait is not None and is_asked(job)
    ]
    if not waits:
        return Waiting(0, None, None, None, None)
    middle, most, nearly_all = (float(value) for value in np.quantile(waits, QUANTILES, method="inverted_cdf"))
    return Waiting(len(waits), float(np.mean(waits)), middle, most, nearly_all)


def _use(trace: Trace, cluster: Cluster, outcome: Outcome, *, is_useful: bool) -> float:
    """Return the share of GPUs that worked while jobs arrived; of the scarcest resource where there are no GPUs."""
    name = GPU if cluster.total.get(GPU) else cluster.total.names()[0]
    start, end = trace.jobs[0].arrived_s, trace.jobs[-1].arrived_s
    if end <= start:
        end = max((at for at in outcome.finished_s if at is not None), default=start + 1.0)
    busy = 0.0
    for attempt in outcome.attempts:
        # What was lost counts at the end of its stay: that is the part that no checkpoint holds.
        ended = attempt.ended_s - (attempt.lost_s if is_useful else 0.0)
        seconds = min(ended, end) - max(attempt.began_s, start)
        if seconds > 0:
            busy += seconds * trace.jobs[attempt.job].size.get(name) / MILLI
    return busy / (cluster.total.get(name) / MILLI * (end - start))


def _ratio(decisions: Sequence[Decision], least_of: Callable[[Decision], float]) -> float | None:
    lost = sum(decision.lost_share_s for decision in decisions)
    least = sum(least_of(decision) for decision in decisions)
    if least <= 0:
        return 1.0 if lost <= 0 else None
    return lost / least
