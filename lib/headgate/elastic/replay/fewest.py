"""How many workers a site without elasticity needs."""

from __future__ import annotations

import heapq
import math

from headgate.elastic.replay.load import Load


def fewest_fixed(load: Load, *, wait_s: float, share: float = 0.99) -> int:
    """Return the fewest workers, always awake, with which a share of the calls waits `wait_s` at most.

    First come, first served, each call as long as on a full worker.
    """
    late = math.floor((1 - share) * len(load.calls))
    high = 1
    while _late(load, high, wait_s) > late:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if _late(load, middle, wait_s) > late:
            low = middle
        else:
            high = middle
    return high


def _late(load: Load, workers: int, wait_s: float) -> int:
    """Return how many calls wait longer than `wait_s`."""
    free_at = [0.0] * (workers * load.slots)
    late = 0
    for call in load.calls:
        begins = max(free_at[0], call.arrived_s)
        heapq.heapreplace(free_at, begins + load.crowded_s(call))
        late += begins - call.arrived_s > wait_s
    return late
