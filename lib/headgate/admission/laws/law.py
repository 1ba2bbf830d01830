"""The interface of a limit law, which learns from outcomes how many requests may be in flight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headgate.admission.classify import RequestOutcome


@dataclass(slots=True)
class StartupRamp:
    """A rising limit, `1 + floor((target - 1) * elapsed / seconds)`. Pure; starts at the first time passed to it.

    Attributes:
        target: limit at its end.
        seconds: how long it takes; 0 or less means no ramp.
    """

    target: int
    seconds: float
    began_at: float | None = None
    is_over: bool = False

    def __post_init__(self) -> None:
        self.is_over = self.seconds <= 0 or self.target <= 1

    def stop(self) -> None:
        """End the ramp at its current limit."""
        self.is_over = True

    def rise(self, now: float) -> int:
        """Return the limit at `now`; end the ramp if it has reached its target."""
        limit = self._limit_at(now)
        self.is_over = limit >= self.target
        return limit

    def next_step_at(self, now: float) -> float | None:
        """Return when the limit is one higher than at `now`; None if the ramp is over."""
        if self.is_over:
            return None
        limit = self._limit_at(now)
        began_at = self._began(now)
        return now if limit >= self.target else began_at + self.seconds * limit / (self.target - 1)

    def _limit_at(self, now: float) -> int:
        share = min(1.0, max(0.0, (now - self._began(now)) / self.seconds))
        # A step's computed time may be too early by a rounding error.
        return min(self.target, 1 + math.floor((self.target - 1) * share + 1e-9))

    def _began(self, now: float) -> float:
        if self.began_at is None:
            self.began_at = now
        return self.began_at


class Admitted(NamedTuple):
    """What a law remembers of an attempt that it admitted. A tuple, because one is made per attempt.

    Attributes:
        at: monotonic seconds.
        limit: the limit under which it was admitted, by which a refusal is judged.
        in_flight: slots in use at that moment, including its own and those whose attempt waits out a back-off.
        sent: attempts on their way to the provider at that moment, including itself.
        cohort: number of the latency measurement that it belongs to; 0 for none.
    """

    at: float
    limit: int
    in_flight: int = 1
    sent: int = 1
    cohort: int = 0


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A law's change of its limit.

    `reason` is one of: increased; decreased (the provider refused); learnt (from another process of the campaign);
    queueing (answers take longer because requests queue at the provider); measuring (lowered briefly, to measure how
    long answers take without a queue); ramped; soft_ceiling_recovered and fully_recovered (reported in addition to an
    increase: the limit is above the ceiling, or at its maximum, again).
    """

    before: int
    after: int
    reason: str


def told_increase(change: LimitChange, ceiling: int | None, max_limit: int) -> list[LimitChange]:
    """Return a change and, if it is an increase, the recoveries that it brings."""
    changes = [change]
    if change.reason == "increased":
        if ceiling is not None and change.before <= ceiling < change.after:
            changes.append(LimitChange(change.before, change.after, "soft_ceiling_recovered"))
        if change.after == max_limit:
            changes.append(LimitChange(change.before, change.after, "fully_recovered"))
    return changes


class LimitLaw(Protocol):
    """The adaptive limit of one request key. Pure: owned by the controller, receives the time, keeps no clock.

    `observe` is called exactly once for each `admitted`, also for attempts that were cancelled. A request that waits
    out a back-off may keep its slot: it counts in `in_flight`, and its next attempt is `admitted` anew.

    Invariants: 1 <= limit <= max_limit; one congestion episode cuts once; a future `blocked_until` never moves back.
    """

    @property
    def limit(self) -> int:
        """Requests that may be in flight now."""

    @property
    def max_limit(self) -> int:
        """The static cap that the limit never exceeds."""

    @property
    def blocked_until(self) -> float:
        """Monotonic seconds before which nothing is admitted; in the past if nothing is blocked."""

    @property
    def ceiling(self) -> int | None:
        """The number in flight at which the provider refused, as the law remembers it; None if it never did."""

    def set_max(self, max_limit: int, now: float) -> LimitChange | None:
        """Apply a changed static cap (>= 1); return what changed."""

    def learnt(self, ceiling: int, now: float) -> LimitChange | None:
        """Take over from other processes that the provider refuses more than `ceiling` of this one's attempts."""

    def tick(self, now: float) -> LimitChange | None:
        """Apply the passage of time (start-up ramp); return what changed."""

    def next_change_at(self, now: float) -> float | None:
        """Return when `tick` will change something on its own; None if only an outcome can."""

    def admitted(self, in_flight: int, now: float) -> Admitted:
        """Note an admission, which `in_flight` includes; return the record that its outcome is judged by."""

    def observe(self, admitted: Admitted, outcome: RequestOutcome, in_flight: int, now: float) -> list[LimitChange]:
        """Learn from the outcome of an attempt, which `in_flight` still includes; return what changed."""

    def validate(self) -> None:
        """Assert the invariants of the class."""
