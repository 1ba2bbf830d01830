"""The default law: remembers where and how sharply the provider refuses, and notices when requests only queue."""

from __future__ import annotations

import math

from headgate.admission.classify import OutcomeKind, RequestOutcome
from headgate.admission.laws.law import Admitted, LimitChange, StartupRamp, told_increase
from headgate.admission.laws.queue_guard import Proposal, QueueGuard
from headgate.admission.laws.settings import AdaptiveSettings

_DEFAULT = AdaptiveSettings()

_LEAST_REST = 0.05
"""A rest ends once it is below this many slots."""


class Ceiling:
    """The number of attempts under way at which a provider refuses, and how many it accepts there between refusals.

    A provider that counts concurrent requests refuses every attempt above its cap: its ceiling is *sharp*, and a single
    accepted attempt above it shows that it has risen. A provider that counts requests per minute refuses now and then
    at any number: its ceiling is *soft*, and only a run much longer than usual shows that it has risen.

    Owned by an `AdaptiveLaw`. Invariants (`validate`): run >= 0, usual_run >= 1.
    """

    __slots__ = ("_settings", "level", "proven", "run", "usual_run")

    def __init__(self, settings: AdaptiveSettings) -> None:
        self._settings = settings
        self.level: int | None = None
        """Attempts under way at the last refusal, including the refused one; None before the first."""
        self.proven: int | None = None
        """The same, ignoring refusals that came in bursts: the level worth growing back to."""
        self.run = 0
        """Attempts accepted at that level or above since the last refusal."""
        self.usual_run = 1.0

    @property
    def is_sharp(self) -> bool:
        """Whether hardly anything is accepted at the ceiling."""
        return self.usual_run < self._settings.soft_run

    def accepted(self, sent: int) -> bool:
        """Note an accepted attempt, the `sent`-th under way; return whether the ceiling must have risen."""
        if self.level is None or sent < self.level:
            return False
        self.run += 1
        return self.run > self._settings.surprise * self.usual_run + self._settings.surprise_slack

    def refused(self, sent: int, *, is_single: bool) -> None:
        """Note a refused attempt, the `sent`-th under way; `is_single` if hardly any other was refused recently."""
        if self.level is not None:
            self.usual_run = max(1.0, self.run, self.usual_run * self._settings.run_memory)
        self.run = 0
        self.level = sent
        if is_single or self.proven is None:
            self.proven = sent

    def validate(self) -> None:
        """Assert the invariants of the class."""
        assert self.run >= 0
        assert self.usual_run >= 1
        assert (self.level is None) == (self.proven is None)


class AdaptiveLaw:
    """Grows until the provider refuses, stays just below, and probes the more rarely the sharper the ceiling is.

    The limit doubles per service time until the first refusal. A refusal takes one slot, or as many as the number of
    attempts under way suggests; bursts of refusals take shares of the limit. After that, many successes pass before
    each probe of one more slot: more at a sharp ceiling, where every probe is refused, fewer at a soft one. When more
    is accepted than the ceiling allows, the limit grows geometrically again. If nothing is refused, a `QueueGuard`
    finds the limit above which requests only queue.

    Only the start-up ramp moves the limit by time alone. Retry-After paces single requests and blocks nothing, except
    at limit 1, where there is no other way to send less.

    Invariants (`validate`): 1 <= limit <= max_limit; attempts under way are never negative.
    """

    def __init__(self, max_limit: int, settings: AdaptiveSettings = _DEFAULT) -> None:
        self.limit = 1
        """Requests that may be in flight now: `_size` less the rest after a refusal, rounded down."""
        self.max_limit = max(1, max_limit)
        self.blocked_until = -math.inf
        self._settings = settings
        self._ceiling = Ceiling(settings)
        self._guard = QueueGuard(settings.guard)
        start = min(settings.initial_limit, self.max_limit)
        self._ramp = StartupRamp(start, settings.startup_ramp_s)
        self._size = 1.0
        self._rest = 0.0
        """Slots kept empty for about a service time, so that a soft ceiling's bucket can refill."""
        self._growth = settings.first_growth
        """How much a success adds; 0 at a known ceiling, where probes raise the limit."""
        self._is_regrowing = False
        self._sent = 0
        self._keep = 1 - 1 / settings.recent
        self._refused_share = 0.0
        self._worst_share = 0.0
        """The highest refused share since the last accepted attempt."""
        self._successes = 0
        """Successes with the limit in use since the limit last moved."""
        self._moved_at = -math.inf
        self._cut_at = -math.inf
        if self._ramp.is_over:
            self._resize(float(start))

    @property
    def ceiling(self) -> int | None:
        """Attempts under way when the provider last refused; None if it never did."""
        return self._ceiling.level

    def set_max(self, max_limit: int, now: float) -> LimitChange | None:
        """Apply a changed static cap: lower the limit at once if needed; a higher cap lets it grow with use."""
        self.max_limit = max(1, max_limit)
        self._ramp.target = min(self._ramp.target, self.max_limit)
        return self._move(self._size, now, "decreased") if self.limit > self.max_limit else None

    def learnt(self, ceiling: int, now: float) -> LimitChange | None:
        """Start just below a ceiling that other processes have found."""
        self._ramp.stop()
        self._ceiling.refused(max(1, min(ceiling, self.max_limit)), is_single=True)
        self._growth, self._is_regrowing = 0.0, False
        return self._move(float(ceiling - 1), now, "learnt")

    def tick(self, now: float) -> LimitChange | None:
        """Raise the limit along the start-up ramp."""
        return None if self._ramp.is_over else self._move(float(self._ramp.rise(now)), now, "ramped")

    def next_change_at(self, now: float) -> float | None:
        """Return when the start-up ramp rises next; None without one."""
        return self._ramp.next_step_at(now)

    def admitted(self, in_flight: int, now: float) -> Admitted:
        """Note an admission under the current limit."""
        self._sent += 1
        self._refused_share *= self._keep
        cohort = self._guard.admitted(is_used=in_flight >= self._settings.used_share * self.limit)
        return Admitted(now, self.limit, in_flight, self._sent, cohort)

    def observe(self, admitted: Admitted, outcome: RequestOutcome, in_flight: int, now: float) -> list[LimitChange]:
        """Learn from an attempt's outcome; failures and timeouts, the provider's or our own, do not move the limit."""
        self._sent -= 1
        change, latency_s, tokens = None, None, 0
        changes: list[LimitChange] = []
        if outcome.kind is OutcomeKind.SUCCESS:
            if self._rest:
                changes = self._shrink_rest()
            change = self._succeeded(admitted, in_flight, now)
            latency_s = outcome.first_token_s
            if latency_s is None:
                tokens = outcome.tokens
                latency_s = now - admitted.at if outcome.latency_s is None else outcome.latency_s
        elif outcome.kind is OutcomeKind.RATE_LIMITED:
            change = self._refused(admitted, outcome.retry_after_s, now)
        proposal = self._guard.ended(admitted.cohort, latency_s, tokens, self.limit)
        if change is not None:
            changes += told_increase(change, self.ceiling, self.max_limit)
        if proposal is not None:
            changes += self._apply_proposal(proposal, now)
        return changes

    # Successes.

    def _succeeded(self, admitted: Admitted, in_flight: int, now: float) -> LimitChange | None:
        settings = self._settings
        if admitted.at >= self._cut_at:
            self._worst_share = self._refused_share
            self._note_accepted(admitted.sent)
        if self._guard.holds_limit or not self._ramp.is_over or in_flight < settings.used_share * self.limit:
            return None
        if self._growth:
            return self._grow(in_flight, now)
        self._successes += 1
        if not self._is_probe_due(now):
            return None
        return self._move(int(self._size) + 1.0, now, "increased")

    def _note_accepted(self, sent: int) -> None:
        """Start growing again if the ceiling has risen, or if the limit is far below it."""
        has_risen = self._ceiling.accepted(sent)
        if self._growth:
            return
        proven = self._ceiling.proven
        if proven is not None and self._size < self._settings.collapse_share * proven:
            self._growth, self._is_regrowing = self._settings.first_growth, True
        elif has_risen:
            self._growth = self._settings.renewed_growth

    def _grow(self, in_flight: int, now: float) -> LimitChange | None:
        size = self._size
        if self._is_regrowing:
            # Slots kept through a back-off are in use but not under way: a limit below them could not grow.
            size = max(size, min(float(in_flight), float(self._ceiling.proven or 1)))
        return self._move(size + self._growth, now, "increased")

    def _is_probe_due(self, now: float) -> bool:
        settings = self._settings
        if not self._ceiling.is_sharp:
            return self._successes >= settings.soft_probe_successes
        rounds = min(float(settings.probe_successes), settings.most_probe_rounds * self._size)
        needed = max(settings.least_probe_rounds * self._size, rounds)
        return self._successes >= needed and now >= self._moved_at + settings.probe_pause_s

    # Refusals.

    def _refused(self, admitted: Admitted, retry_after_s: float | None, now: float) -> LimitChange | None:
        settings = self._settings
        self._ramp.stop()
        self._refused_share = min(1.0, self._refused_share + 1 / settings.recent)
        self._worst_share = max(self._worst_share, self._refused_share)
        if self.limit == 1:
            asked = retry_after_s if retry_after_s is not None and retry_after_s > 0 else settings.cooldown_s
            self.blocked_until = max(self.blocked_until, now + min(asked, settings.longest_cooldown_s))
        # An attempt admitted before the last cut, or while more than the limit was under way, is of the same episode.
        if admitted.at < self._cut_at or admitted.sent > self.limit + 1:
            return None
        self._cut_at = now
        is_single = self._growth > 0 or self._worst_share <= settings.again_share
        self._ceiling.refused(admitted.sent, is_single=is_single)
        self._growth, self._is_regrowing = 0.0, False
        if not self._ceiling.is_sharp:
            self._rest = min(self._rest + settings.rest_slots, settings.longest_rest * self._size)
        change = self._move(max(1.0, min(self._size - 1, self._size_after_cut(admitted.sent))), now, "decreased")
        self._guard.refused(self.limit)
        return change

    def _size_after_cut(self, sent: int) -> float:
        settings, share = self._settings, self._worst_share
        if share > settings.hard_share:
            return self._size * (1 - settings.cut_hard)
        cut = settings.cut_again if share > settings.again_share else settings.cut
        if self._ceiling.is_sharp:
            cut = settings.cut_sharp
        # The refused attempt shows that `sent` was too many; one fewer is the best estimate of what is accepted.
        return max(self._size * (1 - cut), sent - 1.0)

    # The limit.

    def _shrink_rest(self) -> list[LimitChange]:
        """Release part of the rest; it decays exponentially, over about one service time."""
        before = self.limit
        self._rest *= max(0.0, 1 - 2 / self._size)
        if self._rest < _LEAST_REST:
            self._rest = 0.0
        self._resize(self._size)
        return [] if self.limit == before else [LimitChange(before, self.limit, "increased")]

    def _apply_proposal(self, proposal: Proposal, now: float) -> list[LimitChange]:
        self._growth, self._is_regrowing, self._rest = 0.0, False, 0.0
        change = self._move(float(proposal.limit), now, proposal.reason)
        return [] if change is None else [change]

    def _move(self, size: float, now: float, reason: str) -> LimitChange | None:
        before = self.limit
        self._resize(size)
        self._successes, self._moved_at = 0, now
        return None if self.limit == before else LimitChange(before, self.limit, reason)

    def _resize(self, size: float) -> None:
        self._size = max(1.0, min(size, float(self.max_limit)))
        self.limit = max(1, int(self._size - self._rest))

    def validate(self) -> None:
        """Assert the invariants of the class."""
        assert 1 <= self.limit <= self.max_limit, f"limit {self.limit} outside [1, {self.max_limit}]"
        assert self.limit == max(1, int(self._size - self._rest)), f"limit {self.limit} of {self._size} - {self._rest}"
        assert self._rest >= 0
        assert self._sent >= 0, f"{self._sent} attempts under way"
        assert 0 <= self._refused_share <= 1
        assert 0 <= self._worst_share <= 1
        self._ceiling.validate()
        self._guard.validate()
