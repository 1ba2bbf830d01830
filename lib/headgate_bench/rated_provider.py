"""A simulated provider with limits per minute, the requests to it, and its counters."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from headgate.admission import RequestLease
from headgate.core.rates import UNLIMITED, ModelRates, RateLimits
from headgate_bench.minute_buckets import MinuteBuckets

REFUSAL_S: Final = 0.05
"""Time until a request is refused."""

FIRST_PAUSE_S: Final = 3.0
LONGEST_PAUSE_S: Final = 60.0
"""Bound of the pause between two attempts: it doubles with each, with a jitter of 50 %."""


@dataclass(frozen=True, slots=True)
class Group:
    """Requests of one kind: log-normal lengths of prompt and reply, in tokens."""

    name: str
    prompt: float
    reply: float
    prompt_cv: float = 0.5
    reply_cv: float = 1.5


@dataclass(frozen=True, slots=True)
class RatedCase:
    """A provider with limits per minute, and the requests to it.

    Attributes:
        limits: pairs (time from which on they apply, limits), in order; the first applies from 0.
        groups: groups of requests, with equal weights.
        scarce: position in `RATE_UNITS` of the unit that runs out; groups should share it evenly.
        states: whether the roster states the first limits.
        tells: whether answers report the limits in force; without this and `states`, only bare 429s reveal them.
        seconds: simulated time.
        tokens_per_s: speed at which a reply is written.
        first_s: time until a reply begins.
    """

    limits: tuple[tuple[float, RateLimits], ...]
    groups: tuple[Group, ...]
    scarce: int
    states: bool = True
    tells: bool = False
    seconds: float = 1_800.0
    tokens_per_s: float = 50.0
    first_s: float = 0.5


def rated_case(name: str, seconds: float) -> RatedCase:
    """Return case S6, S7, S8 or S9."""
    one = (Group("one", 500, 400),)
    full, cut = RateLimits(tokens_per_minute=60_000), RateLimits(tokens_per_minute=15_000)
    match name:
        case "S6":
            return RatedCase(((0.0, full),), one, 3, seconds=seconds)
        case "S7":
            groups = (Group("long prompts", 1_000, 100), Group("long replies", 200, 800), Group("both", 400, 400))
            return RatedCase(((0.0, RateLimits(240, 200_000, 40_000)),), groups, 2, seconds=seconds)
        case "S8":
            changes = ((0.0, full), (seconds / 3, cut), (2 * seconds / 3, full))
            return RatedCase(changes, one, 3, states=False, tells=True, seconds=seconds)
        case _:
            limits = RateLimits(output_tokens_per_minute=40_000)
            return RatedCase(((0.0, limits),), one, 2, states=False, seconds=seconds)


@dataclass(slots=True, eq=False)
class Asked:
    """One request of the backlog: its tokens, and how often it was refused."""

    group: str
    prompt: int
    reply: int
    refusals: int = 0
    lease: RequestLease | None = None

    @property
    def units(self) -> tuple[int, int, int, int]:
        """Its amount of each unit."""
        return (1, self.prompt, self.reply, self.prompt + self.reply)


@dataclass(slots=True)
class RatedRecord:
    """Counts: answers, attempts answered 429, requests begun and unfinished, and the scarce unit by group."""

    answered: int = 0
    refused: int = 0
    begun: int = 0
    unfinished: int = 0
    units: Counter[str] = field(default_factory=Counter)
    """Answered amount of the scarce unit, by group."""

    @property
    def goodput(self) -> int:
        """Amount of the scarce unit in all answers."""
        return sum(self.units.values())

    @property
    def refused_share(self) -> float:
        """Share of the attempts that were answered 429."""
        return self.refused / max(1, self.refused + self.answered)

    @property
    def lost(self) -> int:
        """Requests that were begun but neither answered nor still in progress."""
        return self.begun - self.answered - self.unfinished

    @property
    def unfairness(self) -> float:
        """The largest deviation of a group from an even share, relative to that share."""
        even = self.goodput / max(1, len(self.units))
        return max((abs(amount / even - 1) for amount in self.units.values()), default=0.0) if even else 0.0


class RatedProvider:
    """Draws requests, admits or refuses them, answers, and counts. Pure; owned by one run.

    Attributes:
        buckets: its buckets per unit.
        record: its counts so far.
    """

    def __init__(self, case: RatedCase, seed: int) -> None:
        self.buckets = MinuteBuckets(case.limits[0][1], 0.0)
        self.record = RatedRecord(units=Counter({group.name: 0 for group in case.groups}))
        self._case = case
        self._rng = {group.name: random.Random(f"{seed} {group.name}") for group in case.groups}
        self._groups = {group.name: group for group in case.groups}
        self._changes = list(case.limits[1:])

    def begin(self, group: str) -> Asked:
        """Return a new request of a group."""
        kind, rng = self._groups[group], self._rng[group]
        prompt, reply = (_length(*each, rng) for each in ((kind.prompt, kind.prompt_cv), (kind.reply, kind.reply_cv)))
        self.record.begun += 1
        self.record.unfinished += 1
        return Asked(group, prompt, reply)

    def follow(self, now: float) -> None:
        """Apply the changes of limits that are due."""
        while self._changes and self._changes[0][0] <= now:
            at, limits = self._changes.pop(0)
            self.buckets.change(limits, at)

    def take(self, request: Asked, now: float) -> float | None:
        """Admit a request and return None, or return the seconds until there is room for it."""
        unit = self.buckets.take(request.prompt, now)
        return None if unit is None else self.buckets.wait_s(unit, request.prompt, now)

    def service_s(self, request: Asked) -> float:
        """Return how long the answer takes."""
        return self._case.first_s + request.reply / self._case.tokens_per_s

    def answered(self, request: Asked, now: float) -> None:
        """Count an answer."""
        self.buckets.answered(request.reply, now)
        self.record.answered += 1
        self.record.unfinished -= 1
        self.record.units[request.group] += request.units[self._case.scarce]

    def refused(self) -> None:
        """Count a refusal."""
        self.record.refused += 1

    def headers(self, now: float) -> dict[str, str]:
        """Return the headers of an answer or a refusal that report the limits."""
        return self.buckets.headers(now) if self._case.tells else {}


def _length(mean: float, cv: float, rng: random.Random) -> int:
    variance = math.log(1 + cv**2)
    return max(1, round(rng.lognormvariate(math.log(mean) - variance / 2, math.sqrt(variance))))


def stated_rates(case: RatedCase) -> ModelRates:
    """Return the limits that a roster states for a case."""
    return ModelRates(own=case.limits[0][1]) if case.states else UNLIMITED
