"""A policy that knows the future: what can be reached by planning alone, through the same pool as all others."""

from __future__ import annotations

import bisect
from typing import Final

from headgate.elastic.demand import Demand, Desired
from headgate.elastic.replay.bound import Stretch, levels, needed, on_stretches, stretches
from headgate.elastic.replay.load import Load

_DRAIN_SERVICES: Final = 3.0
"""A drained worker has its last requests for so many mean services: sleeping for less is not worth it."""


class Clairvoyant:
    """Has as many workers as the calls of the future need if nobody waits, each woken just in time.

    It is no bound: workers that it drains still have requests, and it does not try every plan.

    Args:
        load: what will come.
        start_s: how long a worker takes to start.
        every_s: how often it is asked.
        short: slots that it has less than are needed, so that at the highest moments so many requests wait.
        hold_s: a worker stays awake if it is needed again within so long; by default where sleeping does not pay.
        lowest: the fewest workers.
    """

    def __init__(
        self,
        load: Load,
        *,
        start_s: float,
        every_s: float,
        short: int = 0,
        hold_s: float | None = None,
        lowest: int = 1,
    ) -> None:
        spans = ((call.arrived_s, call.arrived_s + load.crowded_s(call)) for call in load.calls)
        running = [Stretch(one.from_s, one.to_s, max(0, one.count - short)) for one in stretches(spans)]
        needs = needed(running, load.slots)
        service_s = sum(load.crowded_s(call) for call in load.calls) / len(load.calls)
        if hold_s is None:
            hold_s = start_s + _DRAIN_SERVICES * service_s
        ahead_s = start_s + every_s
        changes: dict[float, int] = {}
        for level in levels(needs, lowest):
            for since, until in on_stretches(needs, level, hold_s + ahead_s):
                changes[since - ahead_s] = changes.get(since - ahead_s, 0) + 1
                changes[until] = changes.get(until, 0) - 1
        self._times = sorted(changes)
        self._counts = [lowest]
        for at in self._times:
            self._counts.append(self._counts[-1] + changes[at])

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return how many workers the plan has at this moment."""
        del demand
        return Desired(self._counts[bisect.bisect_right(self._times, now)], "the future needs them")

    def validate(self) -> None:
        """Assert that the plan never has fewer workers than none."""
        assert min(self._counts) >= 0, "a plan has a number of workers that is below 0"
