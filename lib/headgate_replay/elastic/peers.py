"""Exact copies of other systems' rules with their defaults, and a plan that knows the future.

The pool applies them like our own policies.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections import Counter, deque
from itertools import accumulate
from typing import ClassVar, Final

from headgate.elastic import Demand, Desired
from headgate.elastic.policies.history import Total
from headgate_replay.elastic.bounds import Stretch, levels, needed, on_stretches, stretches
from headgate_replay.elastic.load import Load

_ROUNDING: Final = 1e-6


class Verl:
    """Adds a worker above one threshold and removes one below another, if the load has been stable.

    Load is what active workers run: requests that wait or run on draining workers do not count. The loop itself wakes
    a worker and decides nothing until it is awake.

    Source: `elastic_scheduler.py`; everything that is not an argument has the default of its settings.
    """

    TICK_S: ClassVar = 5.0
    LOW: Final = 0.5
    DOWN_COOLDOWN_S: Final = 60.0
    UP_COOLDOWN_S: Final = 30.0
    STABLE_S: Final = 10.0
    HISTORY: Final = 20
    FEWEST_POINTS: Final = 3
    FEWEST_RECENT: Final = 2
    MOST_VARIANCE: Final = 0.1

    def __init__(self, *, scale_up_threshold: float = 0.8) -> None:
        self._high = scale_up_threshold
        self._history: deque[tuple[float, float]] = deque(maxlen=self.HISTORY)
        self._down_at = self._up_at = self._decided_at = -math.inf
        self._is_waking = False

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return one worker more, one fewer, or as many as there are."""
        if self._is_waking and not demand.starting:
            self._is_waking, self._up_at = False, now
        if self._is_waking or now - self._decided_at < self.TICK_S:
            return Desired(demand.awake, "the loop sleeps, or waits for a worker to wake")
        self._decided_at = now
        running = demand.running - demand.running_draining
        load = running / max(demand.active * demand.slots, 1)
        self._history.append((now, load))
        if not self._is_stable(now):
            return Desired(demand.awake, "the load is not stable")
        if load < self.LOW and demand.active > demand.lowest and now - self._down_at > self.DOWN_COOLDOWN_S:
            self._down_at = now
            return Desired(demand.awake - 1, f"a load of {load:.0%} is below {self.LOW:.0%}")
        if load > self._high and demand.active < demand.highest and now - self._up_at > self.UP_COOLDOWN_S:
            self._is_waking = True
            return Desired(demand.awake + 1, f"a load of {load:.0%} is above {self._high:.0%}")
        return Desired(demand.awake, f"the load is {load:.0%}")

    def validate(self) -> None:
        """Assert that the history is in order."""
        times = [at for at, _ in self._history]
        assert times == sorted(times), times

    def _is_stable(self, now: float) -> bool:
        recent = [load for at, load in self._history if now - at <= self.STABLE_S]
        if len(self._history) < self.FEWEST_POINTS or len(recent) < self.FEWEST_RECENT:
            return False
        return statistics.pvariance(recent) < self.MOST_VARIANCE


class Knative:
    """Scales pods in proportion to concurrency over a stable window, or over a short one in panic, which removes none.

    Panic begins when the short window asks for `PANIC_THRESHOLD` times the pods that are ready, and ends a full stable
    window after it last did. `target` is the share of a pod's concurrency; all else has the defaults of
    `config-autoscaler`.

    Source: knative/serving, `pkg/autoscaler/scaling/autoscaler.go` and `config/core/configmaps/autoscaler.yaml`.
    """

    TICK_S: Final = 2.0
    STABLE_WINDOW_S: Final = 60.0
    PANIC_WINDOW_S: Final = 6.0
    PANIC_THRESHOLD: Final = 2.0
    UP_RATE: Final = 1000.0
    DOWN_RATE: Final = 2.0

    def __init__(self, *, target: float = 0.7) -> None:
        self._target = target
        self._area = Total(self.STABLE_WINDOW_S)
        self._decided: tuple[float, Desired] | None = None
        self._panic_at: float | None = None
        self._most_in_panic = 0

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return the number of pods decided at this tick, or at the last one."""
        self._area.note(demand.area, now)
        if self._decided is None:
            if demand.active > 1:  # without history, at least the present pods are kept for a stable window
                self._panic_at, self._most_in_panic = now, demand.active
        elif now - self._decided[0] < self.TICK_S:
            return self._decided[1]
        desired = Desired(self._scale(demand, now), "in a panic" if self._panic_at is not None else "stable")
        self._decided = now, desired
        return desired

    def validate(self) -> None:
        """Assert the invariants of the state."""
        self._area.validate()
        assert self._panic_at is not None or not self._most_in_panic, self._most_in_panic

    def _scale(self, demand: Demand, now: float) -> int:
        ready = max(1, demand.active)
        stable = math.ceil(self._area.rate(self.STABLE_WINDOW_S) / self._target)
        panic = math.ceil(self._area.rate(self.PANIC_WINDOW_S) / self._target)
        most, fewest = math.ceil(self.UP_RATE * ready), math.floor(ready / self.DOWN_RATE)
        if panic / ready >= self.PANIC_THRESHOLD:
            self._panic_at = now
        elif self._panic_at is not None and self._panic_at + self.STABLE_WINDOW_S < now:
            self._panic_at, self._most_in_panic = None, 0
        pods = min(max(stable, fewest), most)
        if self._panic_at is None:
            return pods
        self._most_in_panic = max(self._most_in_panic, pods, min(max(panic, fewest), most))
        return self._most_in_panic


class Fixed:
    """Always the same number of workers: the baseline that elasticity should undercut."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return the number it was made with."""
        del demand, now
        return Desired(self._workers, f"it is always {self._workers}")

    def validate(self) -> None:
        """Assert that there is a worker."""
        assert self._workers >= 1, self._workers


class Serve:
    """Scales replicas in proportion to requests, once that was asked for throughout a delay.

    Running and waiting requests count, averaged over the look-back period. The arguments are those of
    `AutoscalingConfig` with its defaults; `target_requests` is its `target_ongoing_requests`. Its scaling factors are
    1, the default.

    Source: Ray 2.60, `serve/autoscaling_policy.py`, `replica_queue_length_autoscaling_policy` with its bounds and
    delays, in that order.
    """

    TICK_S: Final = 0.1

    def __init__(
        self,
        *,
        target_requests: float = 2.0,
        look_back_period_s: float = 30.0,
        upscale_delay_s: float = 30.0,
        downscale_delay_s: float = 600.0,
    ) -> None:
        self._target_requests = target_requests
        self._look_back_s = look_back_period_s
        self._up_delay_s, self._down_delay_s = upscale_delay_s, downscale_delay_s
        self._area = Total(look_back_period_s)
        self._replicas: int | None = None
        self._is_up = False
        self._since = math.inf

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return the number of replicas that was asked for long enough."""
        self._area.note(demand.area * demand.slots, now)
        if self._replicas is None:
            self._replicas = demand.awake
        requests = self._area.rate(self._look_back_s) if self._area.age_s else demand.worth * demand.slots
        if not demand.active:
            self._replicas = max(self._replicas, 1) if requests else self._replicas
        else:
            current = demand.active
            asked = current * (requests / (self._target_requests * current))
            asked = math.ceil(current + (asked - current))  # not simplified, because the rounding matters
            asked = min(demand.highest, max(demand.lowest, asked))
            self._replicas = self._delayed(asked, self._replicas, now)
        return Desired(self._replicas, f"{requests:.1f} requests at {self._target_requests:g} each")

    def validate(self) -> None:
        """Assert the invariants of the state."""
        self._area.validate()

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


class Clairvoyant:
    """Plans as many workers as future calls need without waiting, each woken just in time.

    It is not a bound: workers that it drains still have requests, and it does not try every plan.

    It decides every `every_s` seconds. A worker stays awake if it is needed again within `hold_s`. The plan has `short`
    slots fewer than needed, so that `short` requests wait at peaks.
    """

    def __init__(
        self,
        load: Load,
        *,
        start_s: float,
        every_s: float,
        hold_s: float,
        short: int = 0,
        lowest: int = 1,
    ) -> None:
        spans = ((call.arrived_s, call.arrived_s + load.crowded_s(call)) for call in load.calls)
        running = [Stretch(one.from_s, one.to_s, max(0, one.count - short)) for one in stretches(spans)]
        needs = needed(running, load.slots)
        ahead_s = start_s + every_s
        changes: Counter[float] = Counter()
        for level in levels(needs, lowest):
            for since, until in on_stretches(needs, level, hold_s + ahead_s):
                changes[since - ahead_s] += 1
                changes[until] -= 1
        self._times = sorted(changes)
        self._counts = list(accumulate((changes[at] for at in self._times), initial=lowest))

    def decide(self, demand: Demand, now: float) -> Desired:
        """Return the planned number of workers at this moment."""
        del demand
        return Desired(self._counts[bisect.bisect_right(self._times, now)], "the future needs them")

    def validate(self) -> None:
        """Assert that the plan never has a negative number of workers."""
        assert min(self._counts) >= 0, "a plan has a negative number of workers"
