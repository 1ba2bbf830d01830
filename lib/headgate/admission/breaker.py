"""The circuit breaker of a model at a provider: when even one request at a time is refused, stop asking."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from headgate.admission.classify import OutcomeKind, RequestOutcome
from headgate.admission.laws import Admitted

_SHARE: Final = 0.05
"""Of the time since a breaker opened that it waits for its next probe, where its own time is less: the end of a storm
is noticed soon for as long as that was, and a quota that is used up for days is not asked for every 20 s."""


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """When a breaker opens and how long it stays open.

    Attributes:
        refusals: rate-limited attempts in a row, each admitted at limit 1, that open it.
        first_s: how long it stays open at first, when the provider names no time of its own.
        factor: what the time grows by with each probe that is refused.
        longest_own_s: what it grows to so; a probe every 20 s costs a provider nothing.
        longest_s: time at most, whatever the provider asks for: a bad `Retry-After` must not end a model for good.
    """

    refusals: int = 5
    first_s: float = 5.0
    factor: float = 2.0
    longest_own_s: float = 20.0
    longest_s: float = 300.0


class BreakerState(StrEnum):
    """Closed: requests pass. Open: none does. Half open: one probe may be sent, or is on its way."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerMove(StrEnum):
    """What an outcome did to a breaker."""

    OPENED = "opened"
    CLOSED = "closed"


_INCONCLUSIVE: Final = frozenset({OutcomeKind.PROVIDER_FAILURE, OutcomeKind.PROVIDER_TIMEOUT})


@dataclass(slots=True)
class Breaker:
    """One breaker. Pure; owned by the controller, one per provider-model.

    At limit 1 a limit law cannot cut any further: without a breaker a model that is out of quota for an hour would be
    asked for the whole hour at the pace of its cooldown.

    Invariants (`validate`): a probe is on its way only while the breaker is not closed; `until` never goes
    back while it lies ahead.
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
        """Return what the breaker is at `now`."""
        if self.is_closed:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self.probe is not None or now >= self.until else BreakerState.OPEN

    def admits(self, now: float) -> bool:
        """Return whether an attempt may be admitted."""
        return self.is_closed or (self.probe is None and now >= self.until)

    def admitted(self, lease: int) -> None:
        """Note that an attempt was admitted; while the breaker is not closed it is the probe."""
        if not self.is_closed:
            self.probe = lease

    def observe(self, lease: int, admitted: Admitted, outcome: RequestOutcome, now: float) -> BreakerMove | None:
        """Take the outcome of an attempt; return what it did to the breaker.

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
        # The exponent is bounded before it is used: factor ** 2000 is an OverflowError.
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
