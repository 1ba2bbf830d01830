"""DataDesigner's law: additive increase, multiplicative decrease, and a pause of everything after a refusal."""

from __future__ import annotations

import math

from headgate.admission.classify import OutcomeKind, RequestOutcome
from headgate.admission.laws.law import Admitted, LimitChange, StartupRamp, told_increase
from headgate.admission.laws.settings import AimdSettings

_DEFAULT = AimdSettings()


class AimdLaw:
    """Additive increase and multiplicative decrease, as in DataDesigner (pull request 661, controller.py).

    One difference fixes a defect: the pause after a refusal only ever gets longer, and is clamped. In DataDesigner, a
    429 without Retry-After right after one that asked for a minute ends that minute after 2 s, and an absurd
    Retry-After blocks the domain for good.

    Invariants (`validate`): 1 <= limit <= max_limit; the counted successes are fewer than those that raise the limit.
    """

    def __init__(self, max_limit: int, settings: AimdSettings = _DEFAULT) -> None:
        self.blocked_until = -math.inf
        self.ceiling: int | None = None
        self._settings = settings
        self._streak = 0
        self.max_limit = self._clamped(max_limit)
        start = min(settings.initial_limit or self.max_limit, self.max_limit)
        self._ramp = StartupRamp(start, settings.startup_ramp_s)
        self.limit = start if self._ramp.is_over else 1

    def set_max(self, max_limit: int, now: float) -> LimitChange | None:  # noqa: ARG002 - the protocol's
        """Apply a changed static cap: it lowers the limit at once if needed, and never raises it."""
        self.max_limit = self._clamped(max_limit)
        self._ramp.target = min(self._ramp.target, self.max_limit)
        return self._move(self.max_limit, "decreased") if self.limit > self.max_limit else None

    def learnt(self, ceiling: int, now: float) -> LimitChange | None:  # noqa: ARG002 - the protocol's
        """Set the limit to a ceiling that other processes have found."""
        self._ramp.stop()
        self.ceiling = self._clamped(min(ceiling, self.max_limit))
        return self._move(self.ceiling, "learnt")

    def tick(self, now: float) -> LimitChange | None:
        """Raise the limit along the start-up ramp."""
        if self._ramp.is_over:
            return None
        return self._move(self._ramp.rise(now), "ramped")

    def next_change_at(self, now: float) -> float | None:
        """Return when the start-up ramp rises next; None without one."""
        return self._ramp.next_step_at(now)

    def admitted(self, in_flight: int, now: float) -> Admitted:
        """Note an admission under the current limit."""
        return Admitted(now, self.limit, in_flight)

    def observe(
        self,
        admitted: Admitted,
        outcome: RequestOutcome,
        in_flight: int,  # noqa: ARG002 - the protocol's; this law does not check whether its limit is used
        now: float,
    ) -> list[LimitChange]:
        """Learn from the outcome of an attempt; only successes and refusals move the limit."""
        if outcome.kind is OutcomeKind.SUCCESS:
            return self._succeeded(now)
        if outcome.kind is OutcomeKind.RATE_LIMITED:
            return self._refused(admitted, outcome.retry_after_s, now)
        return []

    def _succeeded(self, now: float) -> list[LimitChange]:
        if now < self.blocked_until or not self._ramp.is_over:
            return []
        self._streak += 1
        if self._streak < self._settings.successes_until_increase:
            return []
        self._streak = 0
        change = self._move(min(self.max_limit, self.limit + self._settings.increase_step), "increased")
        return [] if change is None else told_increase(change, self.ceiling, self.max_limit)

    def _refused(self, admitted: Admitted, retry_after_s: float | None, now: float) -> list[LimitChange]:
        self._ramp.stop()
        self._streak = 0
        asked = retry_after_s if retry_after_s is not None and retry_after_s > 0 else self._settings.cooldown_s
        self.blocked_until = max(self.blocked_until, now + min(asked, self._settings.longest_cooldown_s))
        if self.ceiling is None:
            self.ceiling = max(1, admitted.limit)
        # A burst admitted under the higher limit is one episode: only its first refusal cuts.
        if admitted.limit > self.limit:
            return []
        change = self._move(max(1, math.floor(self.limit * self._settings.decrease_factor)), "decreased")
        return [] if change is None else [change]

    def _clamped(self, max_limit: int) -> int:
        clamp = self._settings.max_limit_clamp
        return max(1, max_limit if clamp is None else min(max_limit, clamp))

    def _move(self, limit: int, reason: str) -> LimitChange | None:
        before, self.limit = self.limit, limit
        return None if limit == before else LimitChange(before, limit, reason)

    def validate(self) -> None:
        """Assert the invariants of the class."""
        assert 1 <= self.limit <= self.max_limit, f"limit {self.limit} outside [1, {self.max_limit}]"
        assert 0 <= self._streak < self._settings.successes_until_increase, "a full streak has not raised the limit"
