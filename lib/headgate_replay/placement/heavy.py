"""Random jobs with heavy tails: durations over five decades, gangs, daily waves, and owners with similar jobs."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Final

from headgate.placement.amounts import MILLI, amounts
from headgate_replay.placement.jobs import Cluster, InvalidTraceError, Job, Size, Trace, trace_of

HEAVY: Final = "heavy"
"""The name of these jobs on the command line."""

_SIZES: Final = (
    *(Size(weight, 1, gpus, 2 * gpus) for weight, gpus in ((60, 1), (15, 2), (11, 4), (8, 8))),
    *(Size(weight, members, 8, 16) for weight, members in ((4, 2), (2, 4))),
)
_PRIORITIES: Final = {9.0: 5, 8.0: 15, 5.0: 40, 2.0: 40}
"""Priority -> percentage of the jobs that have it."""

_OWNERS: Final = 24
_MEDIAN_S: Final = 300.0
_SPREAD_OF_OWNERS: Final = 1.6
_SPREAD_OF_AN_OWNER: Final = 1.5
_SHORTEST_S, _LONGEST_S = 1.0, 100_000.0
_DAY_S: Final = 86_400.0
_WAVE: Final = 0.6


def heavy_tailed(cluster: Cluster, *, jobs: int = 400, load: float = 0.9, seed: int = 0) -> Trace:
    """Return jobs that ask for `load` of the cluster's GPUs while they arrive; the same seed gives the same jobs.

    Durations are log-normal within five decades: every owner has its own median, and its jobs are spread around it.
    Sizes are one to eight GPUs, and gangs of two and four nodes with eight each. Arrivals vary with the time of day.

    Raises:
        InvalidTraceError: if a number is out of range.
    """
    gpus = cluster.total.get(cluster.counted) / MILLI
    if not (1 <= jobs <= 1_000_000 and 0 < load <= 10):
        raise InvalidTraceError(f"jobs must be in [1, 1 000 000] and load in (0, 10] (got {jobs} and {load:g})")
    chance = random.Random(f"{HEAVY}/{seed}")
    medians = [chance.lognormvariate(math.log(_MEDIAN_S), _SPREAD_OF_OWNERS) for _ in range(_OWNERS)]
    found = [_job(number, chance, medians) for number in range(jobs)]
    span_s = sum(job.gpus * job.duration_s for job in found) / (load * gpus)
    arrivals = [_arrival(chance, span_s) for _ in found]
    note = (
        f"Drawn with heavy tails: {jobs} jobs in {span_s / 3600:.1f} h, seed {seed}; work for {load:.0%} of {gpus:g} "
        f"GPUs."
    )
    arrived = (replace(job, arrived_s=at) for job, at in zip(found, arrivals, strict=True))
    return trace_of(f"heavy tails, load {load:.0%}", arrived, [note])


def by_work(trace: Trace) -> list[str]:
    """Return the owners with at least the average number of jobs, by decreasing GPU-seconds."""
    work, count = defaultdict[str, float](float), Counter[str]()
    for job in trace.jobs:
        work[job.labels["owner"]] += job.gpus * job.duration_s
        count[job.labels["owner"]] += 1
    return [
        owner for owner in sorted(work, key=lambda each: -work[each]) if count[owner] * len(count) >= len(trace.jobs)
    ]


def understated(trace: Trace, owner: str, times: float) -> Trace:
    """Return the same jobs, except that one owner states durations `times` times shorter than they are."""
    jobs = tuple(
        replace(job, estimated_s=job.estimated_s / times) if job.labels.get("owner") == owner else job
        for job in trace.jobs
    )
    return replace(trace, jobs=jobs, notes=(*trace.notes, f"{owner} states a {times:g}th of what its jobs take."))


def _job(number: int, chance: random.Random, medians: list[float]) -> Job:
    size = chance.choices(_SIZES, [each.weight for each in _SIZES])[0]
    priority = chance.choices(tuple(_PRIORITIES), tuple(_PRIORITIES.values()))[0]
    owner = chance.randrange(_OWNERS)
    drawn_s = chance.lognormvariate(math.log(medians[owner]), _SPREAD_OF_AN_OWNER)
    duration_s = round(min(_LONGEST_S, max(_SHORTEST_S, drawn_s)), 3)
    return Job(
        f"job-{number}",
        0.0,
        duration_s,
        (amounts(cpu=size.cpus, gpu=size.gpus),) * size.members,
        priority,
        {"owner": f"owner-{owner}"},
        estimated_s=duration_s,
        kind=f"priority {priority:g}",
    )


def _arrival(chance: random.Random, span_s: float) -> float:
    """Return a random moment of the span, more often by day than by night."""
    while True:
        at = chance.uniform(0.0, span_s)
        if chance.random() * (1 + _WAVE) <= 1 + _WAVE * math.sin(2 * math.pi * at / _DAY_S):
            return round(at, 3)
