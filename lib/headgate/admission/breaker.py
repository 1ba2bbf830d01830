"""The circuit breaker of a model at a provider: stops requests when even one at a time is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from headgate.admission.classify import OutcomeKind, RequestOutcome
from headgate.admission.laws import Admitted

_SHARE: Final = 0.05
"""A breaker waits for its next probe at least this share of the time since it opened: it notices the end of a storm
soon compared with the storm's length, and does not probe a quota that is used up for days every 20 s."""


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """When a breaker opens and how long it stays open.

    Attributes:
        refusals: consecutive rate-limited attempts, each admitted at limit 1, that open it.
        first_s: how long it first stays open if the provider names no time.
        factor: the time grows by this factor with each refused probe.
        longest_own_s: the limit of this growth; a probe every 20 s costs a provider nothing.
        longest_s: longest time, whatever the provider asks for: a bad `Retry-After` must not stop a model for good.
    """

    refusals: int = 5
    first_s: float = 5.0
    factor: float = 2.0
    longest_own_s: float = 20.0
    longest_s: float = 300.0


class BreakerState(StrEnum):
    """Closed: requests pass. Open: none passes. Half open: one probe may be sent, or is in flight."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerMove(StrEnum):
    """A change of a breaker's state by an outcome."""

    OPENED = "opened"
    CLOSED = "closed"


_INCONCLUSIVE: Final = frozenset({OutcomeKind.PROVIDER_FAILURE, OutcomeKind.PROVIDER_TIMEOUT})


@dataclass(slots=True)
class Breaker:
    """One breaker. Pure; owned by the controller, one per provider-model.

    At limit 1 a limit law cannot cut any further: without a breaker, a model that is out of quota for an hour would
    receive requests for the whole hour at the pace of its cooldown.

    Invariants (`validate`): a probe is in flight only while the breaker is not closed; an `until` in the future never
    moves back.
    """

    rule: BreakerRule = field(default_factory=BreakerRule)
    is_closed: bool = True
    is_calm: bool = True
    """Closed and nothing counted: a success changes nothing."""
    refusals: int = 0
    until: float = 0.0
    opened_at: float = 0.0
    level: int = 0
    probe: int | None = None
    """Number of the lease whose attempt is the probe."""

    def state(self, now: float) -> BreakerState:
        """Return the breaker's state at `now`."""
        if self.is_closed:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self.probe is not None or now >= self.until else BreakerState.OPEN

    def admits(self, now: float) -> bool:
        """Return whether an attempt may be admitted."""
        return self.is_closed or (self.probe is None and now >= self.until)

    def admitted(self, lease: int) -> None:
        """Note that an attempt was admitted; unless the breaker is closed, it is the probe."""
        if not self.is_closed:
            self.probe = lease

    def observe(self, lease: int, admitted: Admitted, outcome: RequestOutcome, now: float) -> BreakerMove | None:
        """Learn from the outcome of an attempt; return how it moved the breaker, if it did.

        Attempts that were admitted before the breaker opened prove nothing about the time after.
        """
        was_probe = self.probe == lease
        if was_probe:
            self.probe = None
        if outcome.kind is OutcomeKind.SUCCESS:
            return self._succeeded(admitted)
        if outcome.kind is OutcomeKind.RATE_LIMITED:
            return self._refused(admitted, outcome, now, was_probe=was_probe)
        if was_probe and outcome.kind in _INCONCLUSIVE:
            self._wait(now + self.rule.first_s)
        return None

    def _succeeded(self, admitted: Admitted) -> BreakerMove | None:
        if not self.is_closed and admitted.at < self.opened_at:
            return None
        was_closed, self.is_closed, self.is_calm = self.is_closed, True, True
        self.refusals, self.level, self.probe = 0, 0, None
        return None if was_closed else BreakerMove.CLOSED

    def _refused(
        self, admitted: Admitted, outcome: RequestOutcome, now: float, *, was_probe: bool
    ) -> BreakerMove | None:
        if not self.is_closed:
            if was_probe:
                self.refusals += 1
                self.level += 1
                self._wait(now + self._pause_s(outcome, now))
            return None
        if admitted.limit > 1:
            return None
        self.is_calm = False
        self.refusals += 1
        if self.refusals < self.rule.refusals:
            return None
        self.is_closed, self.opened_at = False, now
        self._wait(now + self._pause_s(outcome, now))
        return BreakerMove.OPENED

    def _pause_s(self, outcome: RequestOutcome, now: float) -> float:
        # The exponent must be bounded first: factor ** 2000 raises OverflowError.
        own = min(self.rule.longest_own_s, self.rule.first_s * self.rule.factor ** min(self.level, 64))
        lasting = _SHARE * (now - self.opened_at)
        return min(self.rule.longest_s, max(own, lasting, outcome.retry_after_s or 0.0))

    def _wait(self, until: float) -> None:
        self.until = max(self.until, until)

    def validate(self) -> None:
        """Assert the invariants of the class."""
        assert self.probe is None or not self.is_closed, "a closed breaker has a probe"
        assert not (self.is_calm and self.refusals), "a calm breaker has counted refusals"
        assert self.is_closed or self.refusals >= self.rule.refusals, "an open breaker has seen too few refusals"
