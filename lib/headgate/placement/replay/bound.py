"""A bound of high-priority waiting that holds for every policy, whatever it knows and whatever stopping costs it."""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.placement.replay.cluster import Cluster
from headgate.placement.replay.job import Job, Trace

_PRECISION_S: Final = 0.5
_LONGEST_S: Final = 1e8
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class _Demand:
    """What one job asks of one resource: `units_s` between its arrival and a deadline."""

    arrived_s: float
    duration_s: float
    units_s: float


def least_waiting_s(trace: Trace, cluster: Cluster, quantile: float, high_from: float) -> float:
    """Return waiting that this quantile of high-priority work cannot fall below under any policy.

    Waiting is what `Waiting` counts: all time from arrival to end beyond the job's own duration. Suppose that no more
    than a share of 1 - `quantile` of the jobs from `high_from` waits longer than w. The others are done w after they
    could have been, so that in every interval the work of those that arrive and must be done in it is at most the
    capacity times its length; where it is more, the largest of them must be the ones that wait longer. Intervals that
    do not overlap have different jobs, so their counts add up. The answer is the largest w (to half a second) at which
    more jobs must wait longer than may.

    That ignores nodes, gangs, and how many units a job can use at a time, gives lower priorities nothing, and charges
    nothing for stops and starts. So it is a bound, often a low one: 0 where high-priority work never asks for more
    than there is.
    """
    jobs = [job for job in trace.jobs if job.priority >= high_from]
    may_wait = len(jobs) - math.ceil(quantile * len(jobs) - _ROUNDING)
    return max(
        (_least(_demands(jobs, name), capacity, may_wait) for name, capacity in cluster.total.units), default=0.0
    )


def _demands(jobs: Sequence[Job], name: str) -> list[_Demand]:
    return [
        _Demand(job.arrived_s, job.duration_s, units * job.duration_s) for job in jobs if (units := job.size.get(name))
    ]


def _least(demands: Sequence[_Demand], capacity: float, may_wait: int) -> float:
    if must_wait(demands, capacity, 0.0) <= may_wait:
        return 0.0
    low, high = 0.0, 1.0
    while must_wait(demands, capacity, high) > may_wait and high < _LONGEST_S:
        low, high = high, high * 2
    while high - low > _PRECISION_S:
        middle = (low + high) / 2
        if must_wait(demands, capacity, middle) > may_wait:
            low = middle
        else:
            high = middle
    return low


def must_wait(demands: Sequence[_Demand], capacity: float, waiting_s: float) -> int:
    """Return how many jobs wait longer than `waiting_s` at least.

    Work is served earliest deadline first by all units at once. Where a deadline is missed, an interval that ends there
    and begins where later deadlines were last served, or nobody was, asks for more than there is. What arrives before
    its end is left out then, and the search goes on after it.
    """
    late, first = 0, 0
    while first < len(demands):
        found = _overloaded(demands, first, capacity, waiting_s)
        if found is None:
            return late
        begins, ends = found
        after = bisect.bisect_left(demands, ends, lo=first, key=lambda each: each.arrived_s)
        inside = [
            each.units_s
            for each in demands[first:after]
            if each.arrived_s >= begins and _deadline(each, waiting_s) <= ends
        ]
        excess = sum(inside) - capacity * (ends - begins)
        for units_s in sorted(inside, reverse=True):
            if excess <= capacity * ends * _ROUNDING:
                break
            excess -= units_s
            late += 1
        first = after
    return late


def _deadline(demand: _Demand, waiting_s: float) -> float:
    return demand.arrived_s + demand.duration_s + waiting_s


def _overloaded(
    demands: Sequence[_Demand], first: int, capacity: float, waiting_s: float
) -> tuple[float, float] | None:
    """Return the first interval whose work does not fit into it."""
    waiting: list[tuple[float, int, float]] = []
    served: list[tuple[float, float]] = []  # since nobody waited: until when work of which deadline was served
    now, since, upcoming = 0.0, 0.0, first
    while waiting or upcoming < len(demands):
        if not waiting:
            now = since = max(now, demands[upcoming].arrived_s)
            served.clear()
        while upcoming < len(demands) and demands[upcoming].arrived_s <= now:
            each = demands[upcoming]
            heapq.heappush(waiting, (_deadline(each, waiting_s), upcoming, each.units_s))
            upcoming += 1
        deadline, number, units_s = heapq.heappop(waiting)
        until = now + units_s / capacity
        next_arrival = demands[upcoming].arrived_s if upcoming < len(demands) else float("inf")
        if until > next_arrival:
            heapq.heappush(waiting, (deadline, number, units_s - (next_arrival - now) * capacity))
            until = next_arrival
        elif until > deadline * (1 + _ROUNDING):
            return next((end for end, due in reversed(served) if due > deadline), since), deadline
        now = until
        served.append((now, deadline))
    return None
