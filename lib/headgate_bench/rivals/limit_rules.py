"""Rivals of the limit laws: a fixed limit, an oracle that knows the provider, and inspect_ai's rule."""

from __future__ import annotations

import math
from typing import Final

from headgate.admission import OutcomeKind, RequestOutcome
from headgate.admission.laws import Admitted, LimitChange
from headgate_bench.limited_providers import ProviderScript


class FixedRule:
    """A fixed limit, as from a configuration file. Also the base of the other rules."""

    ceiling: int | None = None
    blocked_until = -math.inf

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.max_limit = limit

    def learnt(self, ceiling: int, now: float) -> LimitChange | None:  # noqa: ARG002 - the protocol's
        """Ignore what other processes have learnt."""
        return None

    def set_max(self, max_limit: int, now: float) -> LimitChange | None:  # noqa: ARG002 - the protocol's
        """Take another maximum."""
        before, self.max_limit, self.limit = self.limit, max_limit, min(self.limit, max_limit)
        return None if self.limit == before else LimitChange(before, self.limit, "decreased")

    def tick(self, now: float) -> LimitChange | None:  # noqa: ARG002 - the protocol's
        """Return None: the limit does not change with time."""
        return None

    def next_change_at(self, now: float) -> float | None:  # noqa: ARG002 - the protocol's
        """Return None: the limit does not change with time."""
        return None

    def admitted(self, in_flight: int, now: float) -> Admitted:
        """Note an admission."""
        return Admitted(now, self.limit, in_flight)

    def observe(
        self,
        admitted: Admitted,  # noqa: ARG002 - the protocol's
        outcome: RequestOutcome,  # noqa: ARG002 - the protocol's
        in_flight: int,  # noqa: ARG002 - the protocol's
        now: float,  # noqa: ARG002 - the protocol's
    ) -> list[LimitChange]:
        """Return nothing: outcomes do not change the limit."""
        return []

    def validate(self) -> None:
        """Assert the invariants of the class."""
        assert 1 <= self.limit <= self.max_limit


class OracleRule(FixedRule):
    """The limit that exactly uses the capacity at every moment, which no real rule can know."""

    def __init__(self, script: ProviderScript) -> None:
        super().__init__(script.best_limit_at(0.0))
        self._script = script
        self.max_limit = max(script.best_limit_at(at) for at, _ in script.caps)

    def tick(self, now: float) -> LimitChange | None:
        """Follow the provider."""
        before, self.limit = self.limit, self._script.best_limit_at(now)
        return None if self.limit == before else LimitChange(before, self.limit, "oracle")

    def next_change_at(self, now: float) -> float | None:
        """Return when the provider changes next."""
        return next((at for at, _ in self._script.caps if at > now), None)


_LEAST: Final = 10
_START: Final = 20
_STEP: Final = 5
_QUIET_S: Final = 15.0
_CUT: Final = 0.8
_GROWTH: Final = 0.05
_USED: Final = 0.8
_LEAST_ROUND: Final = 4


class InspectRule(FixedRule):
    """The rule of inspect_ai, implemented from its description (design/adaptive-concurrency.md).

    It starts at 20 and doubles after each clean round, which is as many successes as the limit; after the first refusal
    it grows by 5 % per round. A refusal cuts the limit to 80 %; for 15 s after a cut there are no further cuts, and
    successes do not count. A round counts only if 80 % of the limit was used. Limits above 10 are multiples of 5; the
    minimum is 10.
    """

    def __init__(self, max_limit: int) -> None:
        super().__init__(max(1, min(_START, max_limit)))
        self.max_limit = max_limit
        self._is_slow_start = True
        self._successes = 0
        self._peak = 0
        self._quiet_until = -math.inf

    def observe(
        self,
        admitted: Admitted,  # noqa: ARG002 - the protocol's
        outcome: RequestOutcome,
        in_flight: int,
        now: float,
    ) -> list[LimitChange]:
        """Count a success towards the round, or cut the limit."""
        before = self.limit
        self._peak = max(self._peak, in_flight)
        if now >= self._quiet_until:
            if outcome.kind is OutcomeKind.RATE_LIMITED:
                self._cut(now)
            elif outcome.kind is OutcomeKind.SUCCESS:
                self._count()
        if self.limit == before:
            return []
        return [LimitChange(before, self.limit, "increased" if self.limit > before else "decreased")]

    def _count(self) -> None:
        self._successes += 1
        if self._successes < max(self.limit, _LEAST_ROUND):
            return
        is_used = self._peak >= _USED * self.limit
        self._successes, self._peak = 0, 0
        if is_used:
            grown = 2 * self.limit if self._is_slow_start else self.limit + max(1, round(self.limit * _GROWTH))
            self.limit = min(self.max_limit, grown if grown <= _LEAST else _STEP * math.ceil(grown / _STEP))

    def _cut(self, now: float) -> None:
        self._is_slow_start = False
        self._successes, self._peak = 0, 0
        self._quiet_until = now + _QUIET_S
        least = min(_LEAST, self.max_limit)
        self.limit = max(least, _STEP * math.floor(self.limit * _CUT / _STEP))
