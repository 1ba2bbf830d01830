"""Limit laws that a test can foresee: one that never moves, and one that is cut, blocks and grows by time."""

from __future__ import annotations

import math

from headgate.admission import OutcomeKind, RequestOutcome
from headgate.admission.laws import Admitted, LimitChange


class FixedLaw:
    """The limit is the cap."""

    ceiling: int | None = None

    def __init__(self, max_limit: int) -> None:
        self.max_limit = max_limit
        self.limit = max_limit
        self.blocked_until = 0.0

    def learnt(self, ceiling: int, now: float) -> LimitChange | None:
        return None

    def set_max(self, max_limit: int, now: float) -> LimitChange | None:
        before, self.limit, self.max_limit = self.limit, max_limit, max_limit
        return LimitChange(before, max_limit, "increased") if before < max_limit else None

    def tick(self, now: float) -> LimitChange | None:
        return None

    def next_change_at(self, now: float) -> float | None:
        return None

    def admitted(self, in_flight: int, now: float) -> Admitted:
        assert in_flight >= 1
        return Admitted(now, self.limit)

    def observe(self, admitted: Admitted, outcome: RequestOutcome, in_flight: int, now: float) -> list[LimitChange]:
        assert in_flight >= 1
        return []

    def validate(self) -> None:
        assert self.limit == self.max_limit


class ToyLaw(FixedLaw):
    """Halved by a refusal, which blocks for what is asked or 2 s (60 s at most); one more every 10 s after that."""

    def __init__(self, max_limit: int) -> None:
        super().__init__(max_limit)
        self.grows_at = math.inf

    def set_max(self, max_limit: int, now: float) -> LimitChange | None:
        self.max_limit = max_limit
        if self.limit <= max_limit:
            if self.limit < max_limit and self.grows_at == math.inf:
                self.grows_at = now + 10.0
            return None
        before, self.limit = self.limit, max_limit
        return LimitChange(before, max_limit, "decreased")

    def tick(self, now: float) -> LimitChange | None:
        if now < self.grows_at or self.limit >= self.max_limit:
            return None
        self.limit += 1
        self.grows_at = now + 10.0 if self.limit < self.max_limit else math.inf
        return LimitChange(self.limit - 1, self.limit, "increased")

    def next_change_at(self, now: float) -> float | None:
        return None if self.grows_at == math.inf else self.grows_at

    def observe(self, admitted: Admitted, outcome: RequestOutcome, in_flight: int, now: float) -> list[LimitChange]:
        if outcome.kind is not OutcomeKind.RATE_LIMITED:
            return []
        self.blocked_until = max(self.blocked_until, now + min(60.0, outcome.retry_after_s or 2.0))
        if admitted.limit > self.limit or self.limit == 1:
            return []
        before, self.limit = self.limit, max(1, self.limit // 2)
        self.ceiling = self.ceiling or admitted.limit
        self.grows_at = now + 10.0
        return [LimitChange(before, self.limit, "decreased")]

    def validate(self) -> None:
        assert 1 <= self.limit <= self.max_limit
