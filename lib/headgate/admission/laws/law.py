"""What a limit law is: how many requests may be in flight, as the outcomes teach it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from headgate.admission.outcomes import RequestOutcome


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a law remembers of an attempt that it let through.

    Attributes:
        at: monotonic seconds.
        limit: the limit under which it was admitted: what a rejection is judged by.
    """

    at: float
    limit: int


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A law moved its limit; `reason` is increased, decreased, ramped, soft_ceiling_recovered or fully_recovered."""

    before: int
    after: int
    reason: str


class LimitLaw(Protocol):
    """The adaptive limit of one request key. Pure: owned by the controller, told the time, keeps no clock.

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
        """The limit at which the provider last said no; None when it never did."""
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
