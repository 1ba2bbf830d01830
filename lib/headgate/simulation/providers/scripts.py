"""What a simulated provider does: its limit, its service times, its failures, by the definitions of bar P2."""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from headgate.core.errors import InvalidSettingError

Action = Callable[[], None]


class Agenda:
    """A heap of actions and the time of the one that runs. Actions of one moment run in the order they were set."""

    __slots__ = ("_entries", "_number", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._entries: list[tuple[float, int, Action]] = []
        self._number = 0

    def at(self, time: float, action: Action) -> None:
        """Have `action` run at `time`, which is now at the earliest."""
        self._number += 1
        heapq.heappush(self._entries, (max(time, self.now), self._number, action))

    def run(self, until: float) -> None:
        """Run everything that is due before `until`, and stop there."""
        entries = self._entries
        while entries and entries[0][0] < until:
            self.now, _, action = heapq.heappop(entries)
            action()
        self.now = until


Counted = Literal["concurrency", "rate", "sharing"]


@dataclass(frozen=True, slots=True)
class ProviderScript:
    """A provider, described. Times in seconds since the start of the simulation.

    Attributes:
        counted: `concurrency`: more than the cap at once are refused; `rate`: a token bucket refuses what comes faster
            than the cap per second; `sharing`: nothing is refused, all share `cap` servers' worth of service.
        caps: the cap from a time on, in order; the first from 0.
        bucket: tokens that the bucket holds at most.
        mean_s: mean service time.
        cv: standard deviation of the service time, relative to its mean (log-normal).
        refusal_s: how long a 429 takes.
        retry_after_s: what a 429 says in Retry-After; None for none.
        failing_share: of accepted requests that end with a 5xx after half of their service.
        storm: from when until when everything is refused.

    Raises:
        InvalidSettingError: if it describes no provider.
    """

    counted: Counted = "concurrency"
    caps: tuple[tuple[float, float], ...] = ((0.0, 40.0),)
    bucket: float = 20.0
    mean_s: float = 2.0
    cv: float = 0.5
    refusal_s: float = 0.05
    retry_after_s: float | None = None
    failing_share: float = 0.0
    storm: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        starts = [at for at, _ in self.caps]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            raise InvalidSettingError(
                f"the caps of a simulated provider must begin at 0 and rise in time (got {starts})"
            )
        if min(cap for _, cap in self.caps) <= 0 or self.mean_s <= 0 or self.cv <= 0:
            raise InvalidSettingError("cap, mean and cv of a simulated provider must be > 0")
        if not 0 <= self.failing_share < 1:
            raise InvalidSettingError(f"failing_share must lie in [0, 1) (got {self.failing_share})")

    def cap_at(self, time: float) -> float:
        """Return the cap in force at `time`."""
        return self.caps[bisect.bisect_right(self.caps, (time, math.inf)) - 1][1]

    def best_limit_at(self, time: float) -> int:
        """Return the number in flight that just uses the capacity (Little's law for a rate)."""
        cap = self.cap_at(time)
        return max(1, round(cap * self.mean_s if self.counted == "rate" else cap))

    def capacity(self, seconds: float) -> float:
        """Return how many requests could have been answered well in the first `seconds`."""
        per_s = 1.0 if self.counted == "rate" else 1 / self.mean_s
        ends = [at for at, _ in self.caps if at < seconds] + [seconds]
        served = sum((end - start) * self.cap_at(start) for start, end in pairwise(ends))
        if self.storm is not None:
            start, end = self.storm
            served -= max(0.0, min(end, seconds) - start) * self.cap_at(start)
        return served * per_s * (1 - self.failing_share)

    def latency_quantile_s(self, quantile_z: float) -> float:
        """Return the latency without a queue at a quantile, given as a standard score (1.645: the 95th percentile)."""
        mu, sigma = self.log_moments
        return math.exp(mu + quantile_z * sigma)

    @property
    def log_moments(self) -> tuple[float, float]:
        """Mean and standard deviation of the logarithm of the service time."""
        variance = math.log(1 + self.cv**2)
        return math.log(self.mean_s) - variance / 2, math.sqrt(variance)
