"""Which fault befalls a request: a pure decision maker over a plan. Time comes in, a verdict goes out."""

from __future__ import annotations

import hmac
import math
from collections import Counter
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from headgate.core import unit_hash
from headgate.models.faults import Cut, Failure, FaultPlan, Garbage, Hang, RateLimit, Rule, Slow, WrongKey

_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer well, after `after_s` seconds."""

    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error status."""

    status: int
    retry_after_s: float | None
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Break:
    """Answer badly: hang, cut, or garbage, as the rule says."""

    rule: Hang | Cut | Garbage
    after_s: float = 0.0


Verdict = Answer | Refuse | Break


class FaultSchedule:
    """The faults of one endpoint. Owned by it; `begin` and `end` frame each request.

    Invariant: `in_flight` counts the requests begun with an `Answer` or `Break` and not yet ended; none is negative.
    """

    def __init__(self, plan: FaultPlan) -> None:
        self._plan = plan
        self._first_at: dict[str, float] = {}
        self._asked: Counter[str] = Counter()
        self._in_flight: Counter[str] = Counter()
        self._buckets: dict[tuple[int, str], _Bucket] = {}

    def begin(self, model: str, key: str, now: float) -> Verdict:
        """Return what befalls the next request for `model` that carries `key`.

        After an `Answer` or a `Break` the caller must call `end(model)` once.
        """
        self._first_at.setdefault(model, now)
        number = self._asked[model]
        self._asked[model] += 1
        verdict = self._verdict(model, key, number, now)
        if not isinstance(verdict, Refuse):
            self._in_flight[model] += 1
        return verdict

    def end(self, model: str) -> None:
        """Count a request as no longer in flight."""
        self._in_flight[model] -= 1

    def validate(self) -> None:
        """Assert the invariants."""
        assert all(count >= 0 for count in self._in_flight.values()), self._in_flight

    def _verdict(self, model: str, key: str, number: int, now: float) -> Verdict:
        after_s, elapsed_s = 0.0, now - self._first_at[model]
        for position, rule in enumerate(self._plan.rules):
            if not rule.concerns(model, elapsed_s) or not self._strikes(position, rule, model, number):
                continue
            match rule:
                case Slow():
                    after_s += log_normal(rule.mean_s, rule.cv, self._draw(position, model, number, "latency"))
                case Failure():
                    return Refuse(rule.status, rule.retry_after_s, after_s)
                case WrongKey() if not hmac.compare_digest(key.encode(), rule.key.encode()):
                    return Refuse(401, None)
                case RateLimit() if self._is_over(position, rule, model, now):
                    return Refuse(429, rule.retry_after_s)
                case Hang() | Cut() | Garbage():
                    return Break(rule, after_s)
                case _:
                    pass
        return Answer(after_s)

    def _strikes(self, position: int, rule: Rule, model: str, number: int) -> bool:
        return rule.probability >= 1 or self._draw(position, model, number, "strikes") < rule.probability

    def _draw(self, position: int, model: str, number: int, what: str) -> float:
        return unit_hash(str(self._plan.seed), str(position), model, str(number), what)

    def _is_over(self, position: int, rule: RateLimit, model: str, now: float) -> bool:
        if rule.concurrency is not None and self._in_flight[model] >= rule.concurrency:
            return True
        if rule.per_second is None:
            return False
        bucket = self._buckets.setdefault((position, model), _Bucket(max(1.0, rule.per_second), now))
        return not bucket.take(rule.per_second, now)


class _Bucket:
    """A token bucket that holds one second's worth, and one token at least."""

    __slots__ = ("_at", "_size", "_tokens")

    def __init__(self, size: float, now: float) -> None:
        self._size = self._tokens = size
        self._at = now

    def take(self, per_second: float, now: float) -> bool:
        self._tokens = min(self._size, self._tokens + (now - self._at) * per_second)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def log_normal(mean: float, cv: float, u: float) -> float:
    """Return the log-normal variate with this mean and coefficient of variation at probability `u` in [0, 1)."""
    if cv == 0:
        return mean
    variance = math.log1p(cv * cv)
    return math.exp(
        math.log(mean) - variance / 2 + math.sqrt(variance) * _NORMAL.inv_cdf(min(max(u, 1e-12), 1 - 1e-12))
    )
