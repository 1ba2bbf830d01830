"""What no policy can beat: a bound of high-priority waiting, and the least work that a preemption could have lost."""

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
    """What one job asks of one resource: `units_s` between its arrival and a deadline."""

    arrived_s: float
    duration_s: float
    units_s: float

    def due_s(self, waiting_s: float) -> float:
        """Return when it is done at the latest if it waits no longer than that."""
        return self.arrived_s + self.duration_s + waiting_s


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
"""Sets that are looked at for one question; beyond it a lower bound answers."""


@dataclass(frozen=True, slots=True)
class Stoppable:
    """Work that the rules allow to stop.

    `frees` has what is free on each node when it is gone, `cost` is what stopping it loses.
    """

    frees: tuple[tuple[int, Units], ...]
    cost: float
    band: int


@dataclass(frozen=True, slots=True)
class Least:
    """The answer: `cost`, and whether it was found by complete search or is a lower bound. None fits: no answer."""

    cost: float
    is_exact: bool


def least_lost(free: Free, shape: Shape, stoppable: Iterable[Stoppable]) -> Least | None:
    """Return the least total cost of stopping work until `shape` fits, or None where stopping all is not enough.

    Depth first: each candidate, cheapest first, is stopped or kept; a branch ends when it cannot be better. Fitting is
    monotone in what is free, so a branch also ends where even all that is left would not be enough.
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
    """Return a lower bound: all nodes as one, and work that can be stopped in part, each resource by itself."""
    bound = 0.0
    for place, units in enumerate(shape.whole):
        # A shape that lies on one node needs what the emptiest one lacks at least.
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
    """Return a decision beside the least that it could have lost; None where stopping all makes no room.

    `free` is what no work held, idle groups that can be removed included; `others` are what else the rules allowed to
    stop.
    """
    everybody = (*victims.values(), *others)
    least = least_lost(free, shape, everybody)
    band = max((each.band for each in victims.values()), default=0)
    within = least_lost(free, shape, [each for each in everybody if each.band <= band])
    if least is None or within is None:
        return None
    lost = sum(each.cost for each in victims.values())
    return Decision(tuple(victims), lost, least.cost, within.cost, least.is_exact and within.is_exact)
