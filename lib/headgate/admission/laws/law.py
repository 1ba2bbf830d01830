"""What a limit law is: how many requests may be in flight, as the outcomes teach it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headgate.admission.classify import RequestOutcome


@dataclass(slots=True)
class StartupRamp:
    """A rising limit, `1 + floor((target - 1) * elapsed / seconds)`. Pure; begins with the first time it is told.

    Attributes:
        target: limit at its end.
        seconds: how long it takes; 0 or less means that there is none.
    """

    target: int
    seconds: float
    began_at: float | None = None
    is_over: bool = False

    def __post_init__(self) -> None:
        self.is_over = self.seconds <= 0 or self.target <= 1

    def stop(self) -> None:
        """End it where it is."""
        self.is_over = True

    def rise(self, now: float) -> int:
        """Return the limit at `now`; ends the ramp when it has reached its target."""
        limit = self._limit_at(now)
        self.is_over = limit >= self.target
        return limit

    def next_step_at(self, now: float) -> float | None:
        """Return when the limit is one higher than at `now`; None when the ramp is over."""
        if self.is_over:
            return None
        limit = self._limit_at(now)
        began_at = self._began(now)
        return now if limit >= self.target else began_at + self.seconds * limit / (self.target - 1)

    def _limit_at(self, now: float) -> int:
        share = min(1.0, max(0.0, (now - self._began(now)) / self.seconds))
        # The time of a step, computed from that step, may come out a rounding error too early.
        return min(self.target, 1 + math.floor((self.target - 1) * share + 1e-9))

    def _began(self, now: float) -> float:
        if self.began_at is None:
            self.began_at = now
        return self.began_at


class Admitted(NamedTuple):
    """What a law remembers of an attempt that it let through. A tuple: one is made per attempt.

    Attributes:
        at: monotonic seconds.
        limit: the limit under which it was admitted: what a rejection is judged by.
        in_flight: slots in use at that moment, its own included; also those whose attempt waits out a back-off.
        sent: attempts on their way to the provider at that moment, its own included.
        cohort: number of the latency measurement that it belongs to; 0 for none.
    """

    at: float
    limit: int
    in_flight: int = 1
    sent: int = 1
    cohort: int = 0


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A law moved its limit.

    `reason` is one of: increased; decreased (the provider refused); learnt (from another process of the campaign);
    queueing (answers take longer because requests queue at the provider); measuring (lowered for a moment, to measure
    how long answers take without a queue); ramped; soft_ceiling_recovered and fully_recovered (told beside an increase:
    the limit is above the ceiling, or at its maximum, again).
    """

    before: int
    after: int
    reason: str


def told_increase(change: LimitChange, ceiling: int | None, max_limit: int) -> list[LimitChange]:
    """Return a change, with what else it means where it is an increase."""
    changes = [change]
    if change.reason == "increased":
        if ceiling is not None and change.before <= ceiling < change.after:
            changes.append(LimitChange(change.before, change.after, "soft_ceiling_recovered"))
        if change.after == max_limit:
            changes.append(LimitChange(change.before, change.after, "fully_recovered"))
    return changes


class LimitLaw(Protocol):
    """The adaptive limit of one request key. Pure: owned by the controller, told the time, keeps no clock.

    `observe` is called exactly once for each `admitted`, also for attempts that were cancelled. A request that waits
    out a back-off may keep its slot: it counts in `in_flight`, and its next attempt is `admitted` anew.

    Invariants of every law: 1 <= limit <= max_limit; one congestion episode cuts once; `blocked_until` never goes back
    while it lies ahead.
    """

    @property
    def limit(self) -> int:
        """Requests that may be in flight now."""

    @property
    def max_limit(self) -> int:
        """The static cap that the limit never exceeds."""

    @property
    def blocked_until(self) -> float:
        """Monotonic seconds before which nothing is admitted; in the past when nothing is blocked."""

    @property
    def ceiling(self) -> int | None:
        """The number in flight at which the provider said no, as the law remembers it; None when it never did."""

    def set_max(self, max_limit: int, now: float) -> LimitChange | None:
        """Take a changed static cap (>= 1)."""

    def learnt(self, ceiling: int, now: float) -> LimitChange | None:
        """Take over what other processes know: that the provider refuses more than `ceiling` of this one's attempts."""

    def tick(self, now: float) -> LimitChange | None:
        """Let time pass (start-up ramp); return what changed."""

    def next_change_at(self, now: float) -> float | None:
        """Return when `tick` can change something by itself; None when only an outcome can."""

    def admitted(self, in_flight: int, now: float) -> Admitted:
        """Note an admission, `in_flight` counting it; return what its outcome is judged by."""

    def observe(self, admitted: Admitted, outcome: RequestOutcome, in_flight: int, now: float) -> list[LimitChange]:
        """Take the outcome of an attempt, `in_flight` still counting it; return what changed."""

    def validate(self) -> None:
        """Assert the invariants of the class."""
