"""Early stop: a run whose tasks keep failing for good is not worth its requests."""

from __future__ import annotations

from collections import deque


class RecentFailures:
    """How many of the last `window` outcomes were failures. Pure."""

    def __init__(self, window: int, rate: float) -> None:
        """Prepare a window.

        Args:
            window: outcomes over which the share is taken, >= 1.
            rate: share of failures that is too much, in (0, 1].

        Raises:
            ValueError: if one of them lies outside of its bounds.
        """
        if window < 1:
            raise ValueError(f"window must be >= 1 (got {window})")
        if not 0 < rate <= 1:
            raise ValueError(f"rate must be > 0 and <= 1 (got {rate!r})")
        self.window = window
        self.rate = rate
        self.failed = 0
        self._outcomes: deque[bool] = deque(maxlen=window)

    @property
    def is_full(self) -> bool:
        """Whether there were as many outcomes as the window takes."""
        return len(self._outcomes) == self.window

    @property
    def is_failing(self) -> bool:
        """Whether the share of failures among the outcomes so far is too much."""
        return bool(self._outcomes) and self.failed >= self.rate * len(self._outcomes)

    def add(self, *, failed: bool) -> None:
        """Take an outcome; the oldest one falls out of a full window."""
        if self.is_full:
            self.failed -= self._outcomes[0]
        self._outcomes.append(failed)
        self.failed += failed


class EarlyStop:
    """Watches the last `window` outcomes; trips when at least `rate` of a full window failed for good. Pure.

    Failures that are tried again do not count, nor does a window that is not full yet. Once tripped it stays so.
    Source: DataDesigner (window 10, rate 0.5, off switch).
    """

    def __init__(self, window: int = 10, rate: float = 0.5, *, enabled: bool = True) -> None:
        """Prepare an early stop; see `RecentFailures` for the bounds."""
        self.recent = RecentFailures(window, rate)
        self.enabled = enabled
        self.is_tripped = False

    def observe(self, *, failed: bool) -> bool:
        """Take an outcome; return True when this is the one that trips."""
        self.recent.add(failed=failed)
        if self.is_tripped or not self.enabled or not self.recent.is_full:
            return False
        self.is_tripped = self.recent.is_failing
        return self.is_tripped
