"""The rule of verl's elastic scheduler, with fixes: up above one threshold, down below another."""

from __future__ import annotations

import math

from headgate.elastic.demand import Demand, Desired, whole
from headgate.elastic.policies.history import Highest
from headgate.elastic.settings import ElasticConfig


class Threshold:
    """Wakes workers above `scale_up_threshold` of capacity, and puts them to sleep one by one below the lower one.

    Unlike verl's: the load includes waiting requests and those on draining workers; capacity includes starting workers;
    as many workers are woken as bring the load below the threshold; the cooldown after that does not apply while a
    request waits; no worker is put to sleep if that would raise the load above the upper threshold and be undone by the
    next step. The load must be low for all of `min_stable_period`, whatever the interval of decisions.
    """

    def __init__(self, config: ElasticConfig) -> None:
        self._config = config
        self._most = Highest(config.min_stable_period)
        self._low_since = math.inf
        self._up_at = -math.inf
        self._down_at = -math.inf

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return how many workers should be awake."""
        awake = max(1, demand.awake)
        load = demand.worth / awake
        most = self._most.note(demand.peak_worth, now)
        self._note_low(demand, awake, now)
        said = f"a load of {load:.0%}"
        if load > self._config.scale_up_threshold:
            return self._up(demand, f"{said} is above {self._config.scale_up_threshold:.0%}", now)
        if self._may_shrink(demand, most, now):
            self._down_at = now
            return Desired(demand.awake - 1, f"{said} is below {self._config.scale_down_threshold:.0%}")
        return Desired(demand.awake, f"{said} is between the thresholds, or was a moment ago")

    def validate(self) -> None:
        """Assert the invariants of its state."""
        self._most.validate()

    def _note_low(self, demand: Demand, awake: int, now: float) -> None:
        if demand.peak_worth >= self._config.scale_down_threshold * awake:
            self._low_since = math.inf
        elif math.isinf(self._low_since):
            self._low_since = now

    def _up(self, demand: Demand, because: str, now: float) -> Desired:
        if not demand.waiting and now - self._up_at < self._config.scale_up_cooldown:
            return Desired(demand.awake, f"{because}, but workers were woken a moment ago")
        wanted = max(demand.awake + 1, whole(demand.worth / self._config.scale_up_threshold))
        self._up_at = now
        return Desired(wanted, because)

    def _may_shrink(self, demand: Demand, most: float, now: float) -> bool:
        return (
            not demand.waiting
            and demand.awake > max(1, demand.lowest)
            and now - self._low_since >= self._config.min_stable_period
            and now - self._down_at >= self._config.scale_down_cooldown
            and most <= self._config.scale_up_threshold * (demand.awake - 1)
        )
