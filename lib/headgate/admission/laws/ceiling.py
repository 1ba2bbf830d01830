"""What is remembered of where a provider refuses: at which number in flight, and how sharply."""

from __future__ import annotations

from headgate.admission.laws.settings import AdaptiveSettings


class Ceiling:
    """The number of attempts under way at which a provider refuses, and how many it accepts there in between.

    A provider that counts concurrent requests refuses every attempt above its cap: its ceiling is *sharp*, and a single
    accepted attempt above it says that it has risen. A provider that counts requests per minute refuses now and then at
    any number: its ceiling is *soft*, and only a run that is much longer than the usual ones says so.

    Owned by an `AdaptiveLaw`. Invariants (`validate`): run >= 0, usual_run >= 1.
    """

    __slots__ = ("_settings", "level", "proven", "run", "usual_run")

    def __init__(self, settings: AdaptiveSettings) -> None:
        self._settings = settings
        self.level: int | None = None
        """Attempts under way at the last refusal, the refused one included; None before the first."""
        self.proven: int | None = None
        """The same, without refusals that came in a heap: what is worth growing back to."""
        self.run = 0
        """Attempts accepted at that level or above it since then."""
        self.usual_run = 1.0

    @property
    def is_sharp(self) -> bool:
        """Whether practically nothing is accepted at the ceiling."""
        return self.usual_run < self._settings.soft_run

    def accepted(self, sent: int) -> bool:
        """Note an accepted attempt, the `sent`-th under way; return whether the ceiling must have risen."""
        if self.level is None or sent < self.level:
            return False
        self.run += 1
        return self.run > self._settings.surprise * self.usual_run + self._settings.surprise_slack

    def refused(self, sent: int, *, is_single: bool) -> None:
        """Note a refused attempt, the `sent`-th under way; `is_single` if hardly any other was refused lately."""
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
