"""The rule of Knative's pod autoscaler (KPA)."""

from __future__ import annotations

import math
from typing import Final

from headgate.elastic.demand import Demand, Desired
from headgate.elastic.policies.history import Highest, Total


class Knative:
    """Pods in proportion to concurrency: over a stable window, or over a short one in a panic, when none is taken away.

    Panic begins when the short window asks for `panic_threshold` times the pods that are ready, and ends a whole stable
    window after it last did. `target` is the share of a pod's concurrency; the arguments are those of
    `config-autoscaler`, with its defaults.

    Source: knative/serving, `pkg/autoscaler/scaling/autoscaler.go` and `config/core/configmaps/autoscaler.yaml`.
    """

    TICK_S: Final = 2.0

    def __init__(
        self,
        *,
        target: float = 0.7,
        stable_window_s: float = 60.0,
        panic_window_s: float = 6.0,
        panic_threshold: float = 2.0,
        max_scale_up_rate: float = 1000.0,
        max_scale_down_rate: float = 2.0,
        scale_down_delay_s: float = 0.0,
        tick_s: float = TICK_S,
    ) -> None:
        self._target = target
        self._stable_window_s, self._panic_window_s = stable_window_s, panic_window_s
        self._panic_threshold = panic_threshold
        self._up_rate, self._down_rate = max_scale_up_rate, max_scale_down_rate
        self._tick_s = tick_s
        self._area = Total(stable_window_s)
        self._delayed = Highest(scale_down_delay_s) if scale_down_delay_s else None
        self._decided: tuple[float, Desired] | None = None
        self._panic_at: float | None = None
        self._most_in_panic = 0

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return the pods that were decided for at this tick, or at the one before."""
        self._area.note(demand.area, now)
        if self._decided is None:
            self._open(demand, now)
        elif now - self._decided[0] < self._tick_s:
            return self._decided[1]
        pods = self._scale(demand, now)
        if self._delayed is not None:
            pods = int(self._delayed.note(pods, now))
        desired = Desired(pods, "in a panic" if self._panic_at is not None else "stable")
        self._decided = now, desired
        return desired

    def validate(self) -> None:
        """Assert the invariants of what it keeps."""
        self._area.validate()
        assert self._panic_at is not None or not self._most_in_panic, self._most_in_panic

    def _open(self, demand: Demand, now: float) -> None:
        if demand.active > 1:  # with history lost, at least what is there is kept for a stable window
            self._panic_at, self._most_in_panic = now, demand.active

    def _scale(self, demand: Demand, now: float) -> int:
        ready = max(1, demand.active)
        stable = math.ceil(self._area.rate(self._stable_window_s) / self._target)
        panic = math.ceil(self._area.rate(self._panic_window_s) / self._target)
        most, fewest = math.ceil(self._up_rate * ready), math.floor(ready / self._down_rate)
        self._set_panic(panic / ready >= self._panic_threshold, now)
        pods = min(max(stable, fewest), most)
        if self._panic_at is None:
            return pods
        self._most_in_panic = max(self._most_in_panic, pods, min(max(panic, fewest), most))
        return self._most_in_panic

    def _set_panic(self, is_over: bool, now: float) -> None:
        if is_over:
            self._panic_at = now
        elif self._panic_at is not None and self._panic_at + self._stable_window_s < now:
            self._panic_at, self._most_in_panic = None, 0
