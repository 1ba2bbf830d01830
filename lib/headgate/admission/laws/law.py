"""What a limit law is: how many requests may be in flight, as the outcomes teach it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headgate.admission.outcomes import RequestOutcome


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

    `reason` is one of: increased; decreased (the provider refused); queueing (answers take longer because requests
    queue at the provider); measuring (lowered for a moment, to measure how long answers take without a queue); ramped;
    soft_ceiling_recovered and fully_recovered (told beside an increase: the limit is above the ceiling, or at its
    maximum, again).
    """

    before: int
    after: int
    reason: str


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
        ...

    @property
    def max_limit(self) -> int:
        """The static cap that the limit never exceeds."""
        ...

    @property
    def blocked_until(self) -> float:
        """Monotonic seconds before which nothing is admitted; in the past when nothing is blocked."""
        ...

    @property
    def ceiling(self) -> int | None:
        """The number in flight at which the provider said no, as the law remembers it; None when it never did."""
        ...

    def set_max(self, max_limit: int, now: float) -> LimitChange | None:
        """Take a changed static cap (>= 1)."""
        ...

    def tick(self, now: float) -> LimitChange | None:
        """Let time pass (start-up ramp); return what changed."""
        ...

    def next_change_at(self, now: float) -> float | None:
        """Return when `tick` can change something by itself; None when only an outcome can."""
        ...

    def admitted(self, in_flight: int, now: float) -> Admitted:
        """Note an admission, `in_flight` counting it; return what its outcome is judged by."""
        ...

    def observe(self, admitted: Admitted, outcome: RequestOutcome, in_flight: int, now: float) -> list[LimitChange]:
        """Take the outcome of an attempt, `in_flight` still counting it; return what changed."""
        ...

    def validate(self) -> None:
        """Assert the invariants of the class."""
        ...
