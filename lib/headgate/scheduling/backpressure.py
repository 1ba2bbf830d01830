"""Backpressure: warn, pause and resume by the length of the ready queue, with hysteresis."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.core.events import Event, QueuePaused, QueueResumed, QueueWarned

WARN_AT_MOST_EVERY_S = 60.0


@dataclass(slots=True)
class Backpressure:
    """Decides whether samplers may add to the queue. Pure; owned by the campaign.

    Warns above `warn_above`, pauses at `pause_at` or more, resumes at `resume_at` or less; never lets
    the queue grow beyond `max_size`. A pause stops only new demand: workers keep running, and no task is dropped or
    reordered.
    """

    warn_above: int = 5_000
    pause_at: int = 8_000
    resume_at: int = 3_000
    max_size: int = 100_000
    is_paused: bool = False
    _paused_at: float = 0.0
    _warned_at: float | None = None

    def update(self, size: int, now: float) -> Event | None:
        """Evaluate the queue's length; return the event to report, None if nothing changed."""
        if not self.is_paused and size >= self.pause_at:
            self.is_paused = True
            self._paused_at = now
            return QueuePaused(size, self.pause_at)
        if self.is_paused and size <= self.resume_at:
            self.is_paused = False
            return QueueResumed(size, self.resume_at, now - self._paused_at)
        if self.is_paused or size <= self.warn_above:
            return None
        if self._warned_at is not None and now - self._warned_at < WARN_AT_MOST_EVERY_S:
            return None
        self._warned_at = now
        return QueueWarned(size, self.warn_above)

    def room(self, size: int) -> int:
        """Return how many tasks may enter a queue of `size` now."""
        return 0 if self.is_paused else max(0, self.max_size - size)
