"""The default rule of Ray Serve."""

from __future__ import annotations

import math
from typing import Final

from headgate.elastic.demand import Demand, Desired
from headgate.elastic.policies.history import Total

_ROUNDING: Final = 1e-6


class Serve:
    """Replicas in proportion to requests, once that has been asked for without a break for a delay.

    Requests run or wait, averaged over the look-back period. The arguments are those of `AutoscalingConfig`, with its
    defaults; `target_requests` is its `target_ongoing_requests`.

    Source: Ray 2.60, `serve/autoscaling_policy.py`, `replica_queue_length_autoscaling_policy` with its scaling factors,
    bounds and delays, in that order.
    """

    TICK_S: Final = 0.1

    def __init__(
        self,
        *,
        target_requests: float = 2.0,
        look_back_period_s: float = 30.0,
        upscale_delay_s: float = 30.0,
        downscale_delay_s: float = 600.0,
        upscaling_factor: float = 1.0,
        downscaling_factor: float = 1.0,
    ) -> None:
        self._target_requests = target_requests
        self._look_back_s = look_back_period_s
        self._up_delay_s, self._down_delay_s = upscale_delay_s, downscale_delay_s
        self._up_factor, self._down_factor = upscaling_factor, downscaling_factor
        self._area = Total(look_back_period_s)
        self._replicas: int | None = None
        self._is_up = False
        self._since = math.inf

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return the number of replicas that has been asked for for long enough."""
        self._area.note(demand.area * demand.slots, now)
        if self._replicas is None:
            self._replicas = demand.awake
        requests = self._area.rate(self._look_back_s) if self._area.age_s else demand.worth * demand.slots
        if not demand.active:
            self._replicas = max(self._replicas, math.ceil(self._up_factor)) if requests else self._replicas
        else:
            asked = min(demand.highest, max(demand.lowest, self._scaled(requests, demand.active)))
            self._replicas = self._delayed(asked, self._replicas, now)
        return Desired(self._replicas, f"{requests:.1f} requests at {self._target_requests:g} each")

    def validate(self) -> None:
        """Assert the invariants of what it keeps."""
        self._area.validate()

    def _scaled(self, requests: float, current: int) -> int:
        asked = current * (requests / (self._target_requests * current))
        factor = self._up_factor if asked > current else self._down_factor
        scaled = math.ceil(current + factor * (asked - current))
        return scaled - 1 if math.ceil(asked) < current == scaled else scaled

    def _delayed(self, asked: int, replicas: int, now: float) -> int:
        if asked == replicas:
            self._since = math.inf
            return replicas
        is_up = asked > replicas
        if is_up != self._is_up or math.isinf(self._since):
            self._is_up, self._since = is_up, now
        if now - self._since + _ROUNDING < (self._up_delay_s if is_up else self._down_delay_s):
            return replicas
        self._since = math.inf
        return max(1, asked)
