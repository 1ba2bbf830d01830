"""The minimum worker-seconds of a load, and the workers that a site without elasticity needs."""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headgate_replay.elastic.load import Load


@dataclass(frozen=True, slots=True)
class Stretch:
    """A period in which `count` calls are certain to be running, or `count` workers are needed."""

    from_s: float
    to_s: float
    count: int


@dataclass(frozen=True, slots=True)
class Bound:
    """The minimum cost under any policy, as a multiple of the work divided by the capacity.

    `cost`, with starts, is valid if no call waits longer than `wait_s`; `p99_cost`, without starts, if at most one
    call in a hundred does.
    """

    wait_s: float
    cost: float
    p99_cost: float


def bounds(load: Load, *, start_s: float, lowest: int) -> tuple[Bound, ...]:
    """Return the bounds of a load for several waiting times."""
    return tuple(
        Bound(
            wait_s,
            least_worker_s(load, start_s=start_s, wait_s=wait_s, lowest=lowest) / load.work_s,
            least_worker_s_but(load, share=0.01, wait_s=wait_s, lowest=lowest) / load.work_s,
        )
        for wait_s in (0.0, 0.5, 1.5)
    )


def least_worker_s(load: Load, *, start_s: float, wait_s: float = 0.0, lowest: int = 1) -> float:
    """Return the minimum worker-seconds under any policy if no call waits longer than `wait_s`.

    A call that arrives at a and takes at least s must be running from a + `wait_s` to a + s: it has begun by then, and
    cannot be done before. While n such calls run, n / slots workers (rounded up) are awake, and never fewer than
    `lowest`. A worker that is not needed for longer than a start takes sleeps; it is awake during its start, too. The
    bound assumes that moving running calls to other workers is free and that drains and sleeps take no time, so it is
    below what can be reached. It is never below the work divided by the capacity.
    """
    needs = needed(certain(load, wait_s), load.slots)
    until_s = max([load.window_s, *(stretch.to_s for stretch in needs)])
    floor_s = lowest * until_s
    return max(load.work_s, floor_s + sum(_level_s(needs, level, start_s) for level in levels(needs, lowest)))


def least_worker_s_but(load: Load, *, share: float, wait_s: float = 0.0, lowest: int = 1) -> float:
    """Return the minimum worker-seconds under any policy if at most a share of calls waits longer than `wait_s`.

    Calls that wait longer no longer count as certain to run; they reduce the certain time by at most the sum of the
    longest calls. It is subtracted where sparing a worker takes the fewest slots. Starts are free here, so the
    result can be below `least_worker_s` by more than that sum.
    """
    needs = needed(certain(load, wait_s), load.slots)
    certain_s = sorted((max(0.0, load.alone_s(call) - wait_s) for call in load.calls), reverse=True)
    spared_s = sum(certain_s[: math.floor(share * len(certain_s))])
    worker_s = lowest * max([load.window_s, *(stretch.to_s for stretch in needs)])
    worker_s += sum((max(lowest, need.count) - lowest) * (need.to_s - need.from_s) for need in needs)
    for slots, seconds in _sparable(certain(load, wait_s), load.slots, lowest):
        can_s = min(seconds, spared_s / slots)
        worker_s -= can_s
        spared_s -= can_s * slots
        if spared_s <= 0:
            break
    return max(load.work_s, worker_s)


def certain(load: Load, wait_s: float) -> list[Stretch]:
    """Return how many calls are certain to be running over time if none waits longer than `wait_s`."""
    return stretches(
        (call.arrived_s + wait_s, call.arrived_s + load.alone_s(call))
        for call in load.calls
        if load.alone_s(call) > wait_s
    )


def stretches(spans: Iterable[tuple[float, float]]) -> list[Stretch]:
    """Return how many of these time spans overlap, from the first moment to the last."""
    edges: list[tuple[float, int]] = []
    for begins, ends in spans:
        edges.append((begins, 1))
        edges.append((ends, -1))
    edges.sort()
    found, count = [], 0
    for (at, change), (until, _) in pairwise(edges):
        count += change
        if until > at:
            found.append(Stretch(at, until, count))
    return found


def needed(running: Sequence[Stretch], slots: int) -> list[Stretch]:
    """Return how many workers of `slots` slots that takes; adjacent stretches with the same number are merged."""
    found: list[Stretch] = []
    for stretch in running:
        count, from_s = math.ceil(stretch.count / slots), stretch.from_s
        if found and found[-1].count == count and found[-1].to_s == from_s:
            from_s = found.pop().from_s
        found.append(Stretch(from_s, stretch.to_s, count))
    return found


def levels(needs: Sequence[Stretch], lowest: int) -> range:
    """Return the numbers of the workers that are not always awake: worker k is needed while k or more are needed."""
    return range(lowest + 1, max((stretch.count for stretch in needs), default=0) + 1)


def on_stretches(needs: Sequence[Stretch], level: int, hold_s: float) -> list[tuple[float, float]]:
    """Return when the worker of a level is awake if it stays awake through gaps of up to `hold_s`."""
    found: list[tuple[float, float]] = []
    for stretch in needs:
        if stretch.count < level:
            continue
        from_s = stretch.from_s
        if found and from_s - found[-1][1] <= hold_s:
            from_s = found.pop()[0]
        found.append((from_s, stretch.to_s))
    return found


def _level_s(needs: Sequence[Stretch], level: int, start_s: float) -> float:
    awake = on_stretches(needs, level, start_s)
    return sum(until - since for since, until in awake) + start_s * len(awake)


def _sparable(running: Sequence[Stretch], slots: int, lowest: int) -> list[tuple[int, float]]:
    """Return how many slots must be freed to spare a worker, and for how many seconds; the cheapest first.

    The last worker of a stretch has the calls that do not fill the others; all others are full.
    """
    seconds: dict[int, float] = {}
    for stretch in running:
        workers = math.ceil(stretch.count / slots)
        length = stretch.to_s - stretch.from_s
        if workers > lowest:
            last = stretch.count - (workers - 1) * slots
            seconds[last] = seconds.get(last, 0.0) + length
            seconds[slots] = seconds.get(slots, 0.0) + length * (workers - 1 - lowest)
    return sorted(seconds.items())


def fewest_fixed(load: Load, *, wait_s: float, share: float = 0.99) -> int:
    """Return the minimum number of always awake workers with which a share of the calls waits at most `wait_s`.

    Calls are served in order of arrival, and each takes as long as on a full worker.
    """
    may_be_late = math.floor((1 - share) * len(load.calls))

    def is_enough(workers: int) -> bool:
        free_at = [0.0] * (workers * load.slots)
        late = 0
        for call in load.calls:
            begins = max(free_at[0], call.arrived_s)
            heapq.heapreplace(free_at, begins + load.crowded_s(call))
            late += begins - call.arrived_s > wait_s
        return late <= may_be_late

    high = 1
    while not is_enough(high):
        high *= 2
    return bisect.bisect_left(range(high), True, lo=high // 2 + 1, key=is_enough)
