"""The rule of seed 002, with its flaws."""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import Final

from headgate.elastic.demand import Demand, Desired

_HISTORY: Final = 20
_FEWEST_POINTS: Final = 3
_FEWEST_RECENT: Final = 2
_MOST_VARIANCE: Final = 0.1


class Seed:
    """One worker more above a threshold, one fewer below another, if the load has been stable.

    Load is what active workers run: what waits does not count, nor what draining workers run. A worker is woken within
    the loop, which decides nothing before it is awake.

    Source: `elastic_scheduler.py` of seed 002; the arguments are its settings with its defaults.
    """

    TICK_S: Final = 5.0

    def __init__(
        self,
        *,
        scale_down_threshold: float = 0.5,
        scale_up_threshold: float = 0.8,
        scale_down_cooldown_s: float = 60.0,
        scale_up_cooldown_s: float = 30.0,
        min_stable_period_s: float = 10.0,
        monitoring_interval_s: float = TICK_S,
    ) -> None:
        self._low, self._high = scale_down_threshold, scale_up_threshold
        self._down_cooldown_s, self._up_cooldown_s = scale_down_cooldown_s, scale_up_cooldown_s
        self._stable_s = min_stable_period_s
        self._tick_s = monitoring_interval_s
        self._history: deque[tuple[float, float]] = deque(maxlen=_HISTORY)
        self._down_at = self._up_at = self._decided_at = -math.inf
        self._is_waking = False

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return one worker more, one fewer, or as many as there are."""
        if self._is_waking and not demand.starting:
            self._is_waking, self._up_at = False, now
        if self._is_waking or now - self._decided_at < self._tick_s:
            return Desired(demand.awake, "the loop sleeps, or waits for a worker to wake")
        self._decided_at = now
        running = demand.running - demand.running_draining
        load = running / max(demand.active * demand.slots, 1)
        self._history.append((now, load))
        if not self._is_stable(now):
            return Desired(demand.awake, "the load is not stable")
        if load < self._low and demand.active > demand.lowest and now - self._down_at > self._down_cooldown_s:
            self._down_at = now
            return Desired(demand.awake - 1, f"a load of {load:.0%} is below {self._low:.0%}")
        if load > self._high and demand.active < demand.highest and now - self._up_at > self._up_cooldown_s:
            self._is_waking = True
            return Desired(demand.awake + 1, f"a load of {load:.0%} is above {self._high:.0%}")
        return Desired(demand.awake, f"the load is {load:.0%}")

    def validate(self) -> None:
        """Assert that the history is in order."""
        times = [at for at, _ in self._history]
        assert times == sorted(times), times

    def _is_stable(self, now: float) -> bool:
        recent = [load for at, load in self._history if now - at <= self._stable_s]
        if len(self._history) < _FEWEST_POINTS or len(recent) < _FEWEST_RECENT:
            return False
        return statistics.pvariance(recent) < _MOST_VARIANCE
