"""When one model's next sample in one environment falls due."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

from headgate.core import DAY_S, unit_hash

GOLDEN: Final = (math.sqrt(5) - 1) / 2
"""Its multiples modulo 1 keep the largest smallest gap for any number of points (three-gap theorem)."""


def interval_s(daily_rate: float, multiplier: float = 1.0) -> float:
    """Return the seconds between due times: 86 400 / (rate × multiplier)."""
    return DAY_S / (daily_rate * multiplier)


NEW_PAIRS_PER_S: Final = 20.0
"""So many pairs that are new get their first sample each second: at once for a few, no herd for thousands."""


def phase_s(ordinal: int, place: int, places: int, shortest_s: float, own_s: float, seed: str) -> float:
    """Return how far into its interval a model's due times in one environment lie: in [0, `own_s`).

    The models are spread over the shortest interval by multiples of the golden ratio from a seeded start: 95 models at
    three times Affine's rates stay more than a second apart, which independent random offsets cannot promise. A
    model's environments then follow each other evenly over one interval.

    Args:
        ordinal: of the model in the roster.
        place: of the environment in the model's own order, 0 first.
        places: environments of the model.
        shortest_s: shortest interval among the model's environments.
        own_s: interval of this environment.
        seed: of the campaign.
    """
    phase = (unit_hash(seed, "phase") + ordinal * GOLDEN) % 1.0
    return (phase * shortest_s + place / places * own_s) % own_s


@dataclass(slots=True)
class Cadence:
    """Due times of one model in one environment. Pure; owned by the model's sampler.

    `due` advances by exactly one interval per sample, so that no delay accumulates. When it lies behind (after a pause
    or a restart), samples follow at half the interval until it has caught up, and dues older than the horizon are
    forgiven, all but the latest: a pause ends without a burst, a short one changes no daily count, and a rare sample is
    late rather than left out.

    Attributes:
        daily_rate: samples per day before any multiplier.
        due: the ideal time of the next sample.
        not_before: earliest actual time of the next sample.
        last_due: the due time last taken; the journal fences on it.
        first_at: when a pair that is new takes its first sample, whatever its due time.
    """

    daily_rate: float
    due: float
    not_before: float = -math.inf
    last_due: float = -math.inf
    first_at: float | None = None

    @classmethod
    def new(cls, daily_rate: float, now: float, multiplier: float, phase_s: float, wait_s: float) -> Self:
        """Return the cadence of a pair that was never sampled, whose due times lie at `phase_s` after every interval.

        The first sample comes after `wait_s` and takes the due time that is nearest, the coming one or the one before;
        from the second on, samples come at their due times.
        """
        step = interval_s(daily_rate, multiplier)
        is_coming = phase_s < wait_s + step / 2
        due = now + phase_s - (0.0 if is_coming else step)
        return cls(daily_rate, due, first_at=now + min(wait_s, phase_s))

    @property
    def next_at(self) -> float:
        """When the next sample may be taken."""
        return max(self.due, self.not_before) if self.first_at is None else self.first_at

    def take(self, now: float, multiplier: float) -> float:
        """Advance past the due sample and return its ideal time."""
        taken = self.due
        step = interval_s(self.daily_rate, multiplier)
        self.last_due, self.first_at = taken, None
        self.due = taken + step
        self.not_before = now + step / 2
        return taken

    def forgive(self, now: float, multiplier: float, horizon_s: float) -> int:
        """Drop dues that lie more than `horizon_s`, and more than one interval, behind `now`; return how many."""
        step = interval_s(self.daily_rate, multiplier)
        behind = now - max(horizon_s, step) - self.due
        if behind <= 0:
            return 0
        dropped = math.ceil(behind / step)
        self.due += dropped * step
        return dropped

    def rescale(self, now: float, before: float, after: float) -> None:
        """Keep the elapsed share of the running interval when the multiplier changes."""
        self.due = now + (self.due - now) * before / after if self.due > now else self.due
        self.not_before = now + (self.not_before - now) * before / after if self.not_before > now else self.not_before

    def follow(self, last_due: float, multiplier: float) -> None:
        """Take over from another holder of the same journal that has taken `last_due` already."""
        self.last_due = last_due
        self.due = max(self.due, last_due + interval_s(self.daily_rate, multiplier))

    def resume(self, now: float, multiplier: float, spread: float) -> None:
        """After a restart: spread an overdue sample over half an interval, `spread` in [0, 1)."""
        if self.due < now:
            self.not_before = now + spread * interval_s(self.daily_rate, multiplier) / 2
