"""Early stop: a run whose tasks keep failing for good is not worth its requests."""

from __future__ import annotations

from collections import deque


class EarlyStop:
    """Watches the last `window` outcomes; trips when at least `rate` of a full window failed for good. Pure.

    Failures that are tried again do not count, nor does a window that is not full yet. Once tripped it stays so.
    Source: seed 004 (window 10, rate 0.5, off switch).
    """

    def __init__(self, window: int = 10, rate: float = 0.5, *, enabled: bool = True) -> None:
        if window < 1:
            raise ValueError(f"window must be >= 1 (got {window})")
        if not 0 < rate <= 1:
            raise ValueError(f"rate must be in (0, 1] (got {rate})")
        self.window = window
        self.rate = rate
        self.enabled = enabled
        self.is_tripped = False
        self._outcomes: deque[bool] = deque(maxlen=window)
        self._failed = 0

    @property
    def failed(self) -> int:
        """Failures in the window."""
        return self._failed

    def observe(self, *, failed: bool) -> bool:
        """Take an outcome; return True when this is the one that trips."""
        if len(self._outcomes) == self.window:
            self._failed -= self._outcomes[0]
        self._outcomes.append(failed)
        self._failed += failed
        if self.is_tripped or not self.enabled or len(self._outcomes) < self.window:
            return False
        self.is_tripped = self._failed >= self.rate * self.window
        return self.is_tripped
