"""Settings of the limit laws. Creating an object checks each value; the docs give reasons for the defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from headgate.core.errors import InvalidSettingError

LONGEST_COOLDOWN_S: Final = 300.0
"""The longest pause of a whole request key: five minutes, the length of providers' storms of refusals."""


@dataclass(frozen=True, slots=True)
class AimdSettings:
    """Settings of `AimdLaw`; the defaults are those of DataDesigner.

    Attributes:
        initial_limit: where the limit starts; None starts at the maximum.
        max_limit_clamp: the limit never exceeds it, whatever the cap; None for no clamp.
        cooldown_s: pause after a refusal without Retry-After.
        longest_cooldown_s: the longest pause, whatever Retry-After says.
        decrease_factor: factor on the limit, once per congestion episode; in (0, 1).
        increase_step: how much the limit grows at a time.
        successes_until_increase: successes after which it grows.
        startup_ramp_s: time over which the limit rises from 1 to its start; 0 starts there.

    Raises:
        InvalidSettingError: if a value breaks its rule.
    """

    initial_limit: int | None = None
    max_limit_clamp: int | None = None
    cooldown_s: float = 2.0
    longest_cooldown_s: float = LONGEST_COOLDOWN_S
    decrease_factor: float = 0.75
    increase_step: int = 1
    successes_until_increase: int = 25
    startup_ramp_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("initial_limit", "max_limit_clamp", "increase_step", "successes_until_increase"):
            value = getattr(self, name)
            if value is not None:
                _at_least(name, value, 1)
        _above_zero("cooldown_s", self.cooldown_s)
        _at_least("longest_cooldown_s", self.longest_cooldown_s, self.cooldown_s)
        _share("decrease_factor", self.decrease_factor)
        _at_least("startup_ramp_s", self.startup_ramp_s, 0)


@dataclass(frozen=True, slots=True)
class QueueGuardSettings:
    """Settings of `QueueGuard`: when answers count as delayed by a queue, and how that is measured.

    Attributes:
        first_cohort: answers in the first measurement.
        least_cohort, most_cohort: bounds on answers in a later one; within them as many as `precision` needs.
        descent_cohort: answers per step while searching for the knee.
        cohort_rounds: a measurement takes at most this many times the limit (but at least 50 answers).
        precision: target standard error of a measured logarithm of latency.
        answered_share: share of a cohort that must have ended to judge it: hanging requests must not hold up the law.
        recent: answers that the fast average covers.
        slow: rise of the logarithm of latency that counts as a queue.
        slow_at_once: rise of the fast average that counts as one while the limit grows.
        certainty: standard errors that a rise must exceed as well.
        knee_slack: factor on the knee: how much of a queue to keep, so that nothing idles.
        hold_low, hold_mid, hold_high: rise below which the held limit grows, target rise, rise above which it is cut.
        hold_step: share by which the held limit first grows; it doubles with each further growth.
        fall: factor on the limit per step while searching for the knee, and at most per cut.
        dip: factor on the held limit when the latency without a queue is measured again.
        dip_every: measurements between two dips.

    Raises:
        InvalidSettingError: if a value breaks its rule.
    """

    first_cohort: int = 20
    least_cohort: int = 100
    most_cohort: int = 400
    descent_cohort: int = 80
    cohort_rounds: int = 6
    precision: float = 0.05
    answered_share: float = 0.9
    recent: int = 20
    slow: float = 0.2
    slow_at_once: float = 0.35
    certainty: float = 3.5
    knee_slack: float = 1.1
    hold_low: float = 0.06
    hold_mid: float = 0.10
    hold_high: float = 0.16
    hold_step: float = 0.03
    fall: float = 0.65
    dip: float = 0.8
    dip_every: int = 7

    def __post_init__(self) -> None:
        for name in ("first_cohort", "least_cohort", "descent_cohort", "cohort_rounds", "recent", "dip_every"):
            _at_least(name, getattr(self, name), 1)
        _at_least("most_cohort", self.most_cohort, self.least_cohort)
        for name in ("precision", "answered_share", "hold_step", "fall", "dip"):
            _share(name, getattr(self, name))
        for name in ("slow", "slow_at_once", "certainty", "hold_low"):
            _above_zero(name, getattr(self, name))
        _at_least("knee_slack", self.knee_slack, 1)
        _at_least("hold_mid", self.hold_mid, self.hold_low)
        _at_least("hold_high", self.hold_high, self.hold_mid)


@dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """Settings of `AdaptiveLaw`. None of them needs tuning for a provider.

    Attributes:
        initial_limit: where the limit starts, unless the maximum is lower.
        startup_ramp_s: time over which it rises from 1 to there; 0 starts there.
        used_share: share of the limit that must be in use for a success to count towards growth.
        first_growth: how much the limit grows per success until the provider first refuses.
        renewed_growth: the same after the provider was seen to accept more than before.
        probe_successes: successes between two probes of a sharp ceiling.
        least_probe_rounds, most_probe_rounds: bounds on `probe_successes`, as multiples of the limit.
        probe_pause_s: the least time between two probes of a sharp ceiling.
        soft_probe_successes: successes between two steps towards a soft ceiling.
        soft_run: accepted attempts at the ceiling between two refusals from which on it counts as soft.
        surprise, surprise_slack: how many accepted attempts at the ceiling mean that it has risen: more than
            `surprise` times the longest recent run plus `surprise_slack`.
        run_memory: factor by which the longest run decays per refusal.
        cut: the largest share of the limit that a refusal takes; it always takes one slot at least.
        cut_again, cut_hard: the same if the refused share of recent attempts exceeds `again_share`, `hard_share`.
        cut_sharp: the largest cut at a sharp ceiling, where the number under way shows how far to go.
        rest_slots: slots that a refusal at a soft ceiling keeps empty for about a service time, besides the cut.
        longest_rest: the largest share of the limit kept empty like this.
        again_share, hard_share: see `cut_again`.
        recent: attempts that the refused share covers.
        collapse_share: share of the remembered ceiling below which the limit grows back as soon as requests succeed.
        cooldown_s: pause after a refusal at limit 1 without Retry-After.
        longest_cooldown_s: the longest pause at limit 1, whatever Retry-After says.

    Raises:
        InvalidSettingError: if a value breaks its rule.
    """

    initial_limit: int = 16
    startup_ramp_s: float = 0.0
    used_share: float = 0.8
    first_growth: float = 1.0
    renewed_growth: float = 0.5
    probe_successes: int = 200
    least_probe_rounds: float = 2.0
    most_probe_rounds: float = 10.0
    probe_pause_s: float = 8.0
    soft_probe_successes: int = 60
    soft_run: float = 5.0
    surprise: float = 4.0
    surprise_slack: int = 3
    run_memory: float = 0.9
    cut: float = 0.03
    cut_again: float = 0.05
    cut_hard: float = 0.10
    cut_sharp: float = 0.5
    rest_slots: float = 3.0
    longest_rest: float = 0.3
    again_share: float = 0.25
    hard_share: float = 0.45
    recent: int = 10
    collapse_share: float = 0.5
    cooldown_s: float = 2.0
    longest_cooldown_s: float = 60.0
    guard: QueueGuardSettings = field(default_factory=QueueGuardSettings)

    def __post_init__(self) -> None:
        for name in ("initial_limit", "probe_successes", "soft_probe_successes", "recent", "soft_run", "surprise"):
            _at_least(name, getattr(self, name), 1)
        for name in ("startup_ramp_s", "probe_pause_s", "surprise_slack", "rest_slots"):
            _at_least(name, getattr(self, name), 0)
        for name in ("first_growth", "renewed_growth", "least_probe_rounds", "cooldown_s"):
            _above_zero(name, getattr(self, name))
        for name in ("used_share", "run_memory", "cut", "cut_again", "cut_hard", "cut_sharp", "collapse_share"):
            _share(name, getattr(self, name))
        for name in ("again_share", "hard_share", "longest_rest"):
            _share(name, getattr(self, name))
        _at_least("most_probe_rounds", self.most_probe_rounds, self.least_probe_rounds)
        _at_least("longest_cooldown_s", self.longest_cooldown_s, self.cooldown_s)


def _at_least(name: str, value: float, least: float) -> None:
    if not (math.isfinite(value) and value >= least):
        raise InvalidSettingError(f"{name} of a limit law must be finite and >= {least:g} (got {value!r})")


def _above_zero(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidSettingError(f"{name} of a limit law must be finite and > 0 (got {value!r})")


def _share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise InvalidSettingError(f"{name} of a limit law must lie between 0 and 1 (got {value!r})")
