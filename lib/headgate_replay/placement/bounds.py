"""Bounds for any policy: for high-priority waiting, and for the work that a preemption loses."""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate_replay.placement.engine import Decision, Free, Shape, Units, place_in
from headgate_replay.placement.jobs import Cluster, Trace

_PRECISION_S: Final = 0.5
_LONGEST_S: Final = 1e8
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class _Demand:
    """The demand of one job for one resource: `units_s` between its arrival and a deadline."""

    arrived_s: float
    duration_s: float
    units_s: float

    def due_s(self, waiting_s: float) -> float:
        """Return the latest moment at which it is done if it waits no longer than `waiting_s`."""
        return self.arrived_s + self.duration_s + waiting_s


def least_waiting_s(trace: Trace, cluster: Cluster, quantile: float, high_from: float) -> float:
    """Return a lower bound of this quantile of high-priority waiting under any policy.

    Waiting is defined as in `Waiting`: all time from arrival to end beyond the job's own duration. Suppose that at most
    a share of 1 - `quantile` of the jobs with a priority from `high_from` waits longer than w. Then all others end at
    most w later than they could have, so in every interval the work of the jobs that arrive and must end in it is at
    most the capacity times its length. If it is more, some of these jobs must wait longer; the largest ones give the
    smallest count. Intervals that do not overlap have different jobs, so their counts add up. The answer is the largest
    w (to half a second) at which more jobs must wait longer than may.

    This ignores nodes, gangs, and how many units a job can use at a time, gives lower priorities nothing, and charges
    nothing for stops and starts. So it is a lower bound, and often a loose one: it is 0 if high-priority work never
    asks for more than the capacity.
    """
    jobs = [job for job in trace.jobs if job.priority >= high_from]
    may_wait = len(jobs) - math.ceil(quantile * len(jobs) - _ROUNDING)
    found = [0.0]
    for name, capacity in cluster.total.units:
        asked = [(job, units) for job in jobs if (units := job.size.get(name))]
        demands = [_Demand(job.arrived_s, job.duration_s, units * job.duration_s) for job, units in asked]
        found.append(_least(demands, capacity, may_wait))
    return max(found)


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
    """Return the minimum number of jobs that wait longer than `waiting_s`.

    All units together serve the work, earliest deadline first. If a deadline is missed, there is an interval that needs
    more than the capacity: it ends at the deadline and begins when work with a later deadline, or nothing, was last
    served. The search leaves out what arrives before the interval's end and continues after it.
    """
    late, first = 0, 0
    while first < len(demands):
        found = _overloaded(demands, first, capacity, waiting_s)
        if found is None:
            return late
        begins, ends = found
        after = bisect.bisect_left(demands, ends, lo=first, key=lambda each: each.arrived_s)
        due = [each for each in demands[first:after] if each.arrived_s >= begins and each.due_s(waiting_s) <= ends]
        inside = sorted((each.units_s for each in due), reverse=True)
        excess = sum(inside) - capacity * (ends - begins)
        for units_s in inside:
            if excess <= capacity * ends * _ROUNDING:
                break
            excess -= units_s
            late += 1
        first = after
    return late


def _overloaded(
    demands: Sequence[_Demand], first: int, capacity: float, waiting_s: float
) -> tuple[float, float] | None:
    """Return the first interval that is too short for its work."""
    waiting: list[tuple[float, int, float]] = []
    served: list[tuple[float, float]] = []  # since the queue was last empty: (end of service, deadline)
    now, since, upcoming = 0.0, 0.0, first
    while waiting or upcoming < len(demands):
        if not waiting:
            now = since = max(now, demands[upcoming].arrived_s)
            served.clear()
        while upcoming < len(demands) and demands[upcoming].arrived_s <= now:
            each = demands[upcoming]
            heapq.heappush(waiting, (each.due_s(waiting_s), upcoming, each.units_s))
            upcoming += 1
        deadline, number, units_s = heapq.heappop(waiting)
        until = now + units_s / capacity
        next_arrival = demands[upcoming].arrived_s if upcoming < len(demands) else math.inf
        if until > next_arrival:
            heapq.heappush(waiting, (deadline, number, units_s - (next_arrival - now) * capacity))
            until = next_arrival
        elif until > deadline * (1 + _ROUNDING):
            return next((end for end, due in reversed(served) if due > deadline), since), deadline
        now = until
        served.append((now, deadline))
    return None


_MAX_STEPS: Final = 5_000
"""Maximum number of sets to search for one question; beyond it, the answer is a lower bound."""


@dataclass(frozen=True, slots=True)
class Stoppable:
    """Work that the rules allow to be stopped.

    `frees` holds what becomes free on each node when it is gone, `cost` what stopping it loses.
    """

    frees: tuple[tuple[int, Units], ...]
    cost: float
    band: int


@dataclass(frozen=True, slots=True)
class Least:
    """The minimum `cost`, and whether it was found by complete search or is a lower bound."""

    cost: float
    is_exact: bool


def least_lost(free: Free, shape: Shape, stoppable: Iterable[Stoppable]) -> Least | None:
    """Return the minimum total cost of stopping work until `shape` fits, or None if stopping everything is not enough.

    A depth-first search: each candidate, cheapest first, is stopped or kept; a branch ends when it cannot be better.
    More free room never makes a shape unfit, so a branch also ends if even all remaining candidates are not enough.
    """
    candidates = sorted(stoppable, key=lambda each: each.cost)
    if place_in(_freed(free, candidates), shape) is None:
        return None
    best, steps = math.inf, 0

    def descend(room: Free, rest: Sequence[Stoppable], cost: float) -> None:
        nonlocal best, steps
        steps += 1
        if cost >= best or steps > _MAX_STEPS:
            return
        if place_in(room, shape) is not None:
            best = cost
            return
        if not rest or cost + rest[0].cost >= best or place_in(_freed(room, rest), shape) is None:
            return
        descend(_freed(room, rest[:1]), rest[1:], cost + rest[0].cost)
        descend(room, rest[1:], cost)

    separate = [candidates]
    if shape.is_on_one_node:
        separate = [
            [each for each in candidates if any(at == node for at, _ in each.frees)] for node in range(len(free))
        ]
    for each in separate:
        descend(free, each, 0.0)
    if steps <= _MAX_STEPS:
        return Least(best, is_exact=True)
    return Least(min(best, fractional_bound(free, shape, candidates)), is_exact=False)


def fractional_bound(free: Free, shape: Shape, candidates: Sequence[Stoppable]) -> float:
    """Return a lower bound: all nodes count as one, work can be stopped in part, and each resource counts alone."""
    bound = 0.0
    for place, units in enumerate(shape.whole):
        # A shape for one node needs at least what the emptiest node lacks.
        have = (max if shape.is_on_one_node else sum)(node[place] for node in free)
        freeing = [(each.cost, sum(units[place] for _, units in each.frees)) for each in candidates]
        lacking, cost = units - have, 0.0
        for _, freed, price in sorted((price / freed, freed, price) for price, freed in freeing if freed > 0):
            if lacking <= 0:
                break
            cost += price * min(1.0, lacking / freed)
            lacking -= freed
        bound = max(bound, cost)
    return bound


def _freed(free: Free, candidates: Iterable[Stoppable]) -> Free:
    room = [list(units) for units in free]
    for each in candidates:
        for node, units in each.frees:
            have = room[node]
            for place, more in enumerate(units):
                have[place] += more
    return room


def judged(shape: Shape, free: Free, victims: Mapping[int, Stoppable], others: Sequence[Stoppable]) -> Decision | None:
    """Return a decision and the least that it could have lost; None if stopping everything makes no room.

    `free` is what no work held, including idle groups that can be removed; `others` is the other work that the rules
    allowed to be stopped.
    """
    everybody = (*victims.values(), *others)
    least = least_lost(free, shape, everybody)
    band = max((each.band for each in victims.values()), default=0)
    within = least_lost(free, shape, [each for each in everybody if each.band <= band])
    if least is None or within is None:
        return None
    lost = sum(each.cost for each in victims.values())
    return Decision(tuple(victims), lost, least.cost, within.cost, least.is_exact and within.is_exact)
