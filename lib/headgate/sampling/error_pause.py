"""Error pause: a model whose service fails again and again is left alone for a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Health = Literal["answered", "service_error", "neutral"]


@dataclass(slots=True)
class ErrorPause:
    """Counts consecutive service errors of one model and decides its pauses. Pure; owned by the model's sampler.

    Source: Affine's runner. `threshold` consecutive service errors pause for `base_s`, doubling per
    further pause up to `max_s`; an answer resets both. Episodes that began before the pause say nothing about the
    service after it, so their outcomes are ignored: eight failing in parallel are one pause, not two.
    """

    threshold: int
    base_s: float
    max_s: float
    consecutive: int = 0
    level: int = 0
    paused_at: float | None = None
    paused_until: float | None = None

    def is_paused(self, now: float) -> bool:
        """Return whether the model is paused at `now`."""
        return self.paused_until is not None and now < self.paused_until

    def observe(self, health: Health, *, started_at: float, now: float) -> float | None:
        """Take the outcome of an episode; return the duration of the pause that it causes, if any."""
        if health == "neutral" or (self.paused_at is not None and started_at <= self.paused_at):
            return None
        if health == "answered":
            self.forget()
            return None
        self.consecutive += 1
        if self.consecutive < self.threshold or self.is_paused(now):
            return None
        duration = self._length_s(self.level)
        self.level = min(self.level + 1, 40)
        self.paused_at = now
        self.paused_until = now + duration
        return duration

    def end(self) -> None:
        """The pause is over: count from zero again, but remember how often it was paused."""
        self.consecutive = 0
        self.paused_until = None

    def forget(self) -> None:
        """Begin anew: no error was seen, and no pause made."""
        self.consecutive = 0
        self.level = 0
        self.paused_until = None

    def restore(self, level: int, paused_until: float, now: float) -> None:
        """Take over the pause of an earlier life."""
        self.level = level
        if paused_until > now:
            self.paused_at = now
            self.paused_until = min(paused_until, now + self._length_s(max(level - 1, 0)))

    def _length_s(self, level: int) -> float:
        return min(self.base_s * 2.0**level, self.max_s)
