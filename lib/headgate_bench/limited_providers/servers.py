"""Simulated providers, which take attempts and answer them after a service time."""

from __future__ import annotations

import bisect
import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal, Protocol

from headgate.admission import OutcomeKind
from headgate.core.errors import InvalidSettingError

Action = Callable[[], None]


class Agenda:
    """A heap of timed actions, and the current time. Actions at the same time run in the order of scheduling."""

    __slots__ = ("_entries", "_number", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._entries: list[tuple[float, int, Action]] = []
        self._number = 0

    def at(self, time: float, action: Action) -> None:
        """Schedule `action` at `time`, or now if that has passed."""
        self._number += 1
        heapq.heappush(self._entries, (max(time, self.now), self._number, action))

    def run(self, until: float) -> None:
        """Run all actions due before `until`, and stop there."""
        entries = self._entries
        while entries and entries[0][0] < until:
            self.now, _, action = heapq.heappop(entries)
            action()
        self.now = until


Counted = Literal["concurrency", "rate", "sharing"]


@dataclass(frozen=True, slots=True)
class ProviderScript:
    """The description of a provider. Times are in seconds since the start of the simulation.

    Attributes:
        counted: `concurrency`: requests beyond the cap at once are refused; `rate`: a token bucket refuses requests
            beyond the cap per second; `sharing`: nothing is refused, all share `cap` servers' worth of service.
        caps: pairs (time from which on it applies, cap), in order; the first applies from 0.
        bucket: capacity of the bucket in tokens.
        mean_s: mean service time.
        cv: standard deviation of the service time, relative to its mean (log-normal).
        refusal_s: time until a 429 is sent.
        retry_after_s: Retry-After of a 429; None for no such header.
        failing_share: share of accepted requests that end with a 5xx after half of their service.
        storm: begin and end of a time in which everything is refused.

    Raises:
        InvalidSettingError: if it does not describe a possible provider.
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
        """Return the number of requests in flight that exactly uses the capacity (Little's law for a rate)."""
        cap = self.cap_at(time)
        return max(1, round(cap * self.mean_s if self.counted == "rate" else cap))

    def capacity(self, seconds: float) -> float:
        """Return how many requests can be answered successfully in the first `seconds`."""
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


Answer = Callable[[OutcomeKind], None]
"""Called with the outcome of an attempt, at the time at which it ends."""


class Server(Protocol):
    """A provider in a simulation."""

    def begin(self, answer: Answer) -> None:
        """Take an attempt now; `answer` is called when it ends."""


class RefusingServer:
    """Serves every attempt independently, and refuses those beyond a cap on concurrency or on the rate."""

    def __init__(self, script: ProviderScript, agenda: Agenda, rng: random.Random) -> None:
        self._script = script
        self._agenda = agenda
        self._rng = rng
        self._log_moments = script.log_moments
        self._active = 0
        self._tokens = script.bucket
        self._filled_at = 0.0

    def begin(self, answer: Answer) -> None:
        """Take an attempt, or refuse it."""
        now, script = self._agenda.now, self._script
        if self._refuses(now):
            self._agenda.at(now + script.refusal_s, partial(answer, OutcomeKind.RATE_LIMITED))
            return
        self._active += 1
        service_s = self._rng.lognormvariate(*self._log_moments)
        if script.failing_share and self._rng.random() < script.failing_share:
            self._agenda.at(now + service_s / 2, partial(self._end, answer, OutcomeKind.PROVIDER_FAILURE))
        else:
            self._agenda.at(now + service_s, partial(self._end, answer, OutcomeKind.SUCCESS))

    def _end(self, answer: Answer, kind: OutcomeKind) -> None:
        self._active -= 1
        answer(kind)

    def _refuses(self, now: float) -> bool:
        script = self._script
        if script.storm is not None and script.storm[0] <= now < script.storm[1]:
            return True
        if script.counted == "concurrency":
            return self._active >= script.cap_at(now)
        self._tokens = min(script.bucket, self._tokens + (now - self._filled_at) * script.cap_at(now))
        self._filled_at = now
        if self._tokens < 1:
            return True
        self._tokens -= 1
        return False


class SharingServer:
    """Refuses nothing: every attempt in service gets an equal share, at most one server's worth.

    A virtual clock runs at the pace of one attempt's service: an attempt ends when the clock has advanced by its
    service time. The pace changes only when an attempt begins or ends.
    """

    def __init__(self, script: ProviderScript, agenda: Agenda, rng: random.Random) -> None:
        self._script = script
        self._agenda = agenda
        self._log_moments = script.log_moments
        self._rng = rng
        self._served = 0.0
        self._told_at = 0.0
        self._ends: list[tuple[float, int, Answer]] = []
        self._number = 0
        self._plan = 0

    def begin(self, answer: Answer) -> None:
        """Take an attempt."""
        self._advance()
        self._number += 1
        heapq.heappush(self._ends, (self._served + self._rng.lognormvariate(*self._log_moments), self._number, answer))
        self._schedule()

    def _pace(self) -> float:
        return min(1.0, self._script.cap_at(self._told_at) / max(1, len(self._ends)))

    def _advance(self) -> None:
        now = self._agenda.now
        self._served += (now - self._told_at) * self._pace()
        self._told_at = now

    def _schedule(self) -> None:
        self._plan += 1
        if self._ends:
            in_s = max(0.0, self._ends[0][0] - self._served) / self._pace()
            self._agenda.at(self._agenda.now + in_s, partial(self._end, self._plan))

    def _end(self, plan: int) -> None:
        if plan != self._plan:
            return
        self._advance()
        _, _, answer = heapq.heappop(self._ends)
        self._schedule()
        answer(OutcomeKind.SUCCESS)


def server(script: ProviderScript, agenda: Agenda, rng: random.Random) -> Server:
    """Return the provider that a script describes."""
    kind = SharingServer if script.counted == "sharing" else RefusingServer
    return kind(script, agenda, rng)
