"""Detects a run that should end early because its samples keep failing, and a run that is stalled."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection
from typing import Self

from headgate.config import Settings
from headgate.core.events import Event, RunMoved, RunStalled


class _RecentFailures:
    """Counts the failures among the last `window` outcomes."""

    def __init__(self, window: int, rate: float) -> None:
        self._rate = rate
        self.failed = 0
        self._outcomes: deque[bool] = deque(maxlen=window)

    @property
    def is_full(self) -> bool:
        return len(self._outcomes) == self._outcomes.maxlen

    @property
    def is_failing(self) -> bool:
        return bool(self._outcomes) and self.failed >= self._rate * len(self._outcomes)

    def add(self, *, failed: bool) -> None:
        if self.is_full:
            self.failed -= self._outcomes[0]
        self._outcomes.append(failed)
        self.failed += failed


class RosterEarlyStop:
    """Watches how samples end and decides when to stop. Pure; owned by the campaign.

    Three conditions must hold at once: at least `rate` of the campaign's last `window` finished samples failed; at
    least `rate` of the roster's models are failing, and two or more unless the roster has only one; and every model
    that is not held is failing. Failing samples finish sooner than working ones, so models whose endpoints refuse
    everything fill the window; they must not stop a model that works or that still awaits its first answer. A model
    is failing while `rate` of its own recent samples failed.

    A failed sample has no score after every retry. A wrong or unusable answer does have one.
    """

    def __init__(self, rate: float, window: int) -> None:
        """Prepare an early stop.

        Args:
            rate: share of failures at which to stop, in (0, 1].
            window: finished samples over which the share is taken, >= 1.
        """
        self._rate = rate
        self._window = window
        self._all = _RecentFailures(window, rate)
        self._models: dict[str, _RecentFailures] = {}
        self._failing: set[str] = set()

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """Return the early stop that the settings ask for; None if they turn it off."""
        return cls(settings.shutdown_error_rate, settings.shutdown_error_window) if settings.early_stop else None

    def ended(
        self, model: str, *, has_failed: bool, models: Collection[str], is_held: Callable[[str], bool]
    ) -> str | None:
        """Note how a sample ended; return why to stop, or None.

        Args:
            model: key of its model.
            has_failed: whether it ended without a score after all retries.
            models: keys of the roster's models.
            is_held: whether a model starts no samples because it is paused or given up.
        """
        self._all.add(failed=has_failed)
        own = self._models.get(model)
        if own is None:
            own = self._models[model] = _RecentFailures(self._window, self._rate)
        own.add(failed=has_failed)
        if own.is_failing:
            self._failing.add(model)
        else:
            self._failing.discard(model)
        if not has_failed or not self._all.is_full or not self._all.is_failing:
            return None
        failing = sum(key in models for key in self._failing)
        needed = 1 if len(models) <= 1 else max(2, math.ceil(self._rate * len(models)))
        if failing < needed or not all(key in self._failing or is_held(key) for key in models):
            return None
        return (
            f"{self._all.failed} of the last {self._window} samples failed, {failing} of {len(models)} models keep "
            f"failing (shutdown_error_rate {self._rate:g})"
        )

    def forget(self, model: str) -> None:
        """Drop a model's outcomes."""
        self._models.pop(model, None)
        self._failing.discard(model)


class StallWatch:
    """Reports once that a run is stalled, and once that it moves again. Pure; owned by the run."""

    def __init__(self, campaign: str, after_s: float) -> None:
        """Prepare it; a run is stalled after `after_s` seconds with due tasks but no new sample, never if that is 0."""
        self._campaign = campaign
        self._after_s = after_s
        self._accepted = 0
        self._since: float | None = None
        self._is_told = False

    def look(self, now: float, accepted: int, due: int, reason: str) -> Event | None:
        """Return the event to report, if any.

        Args:
            now: the run's time.
            accepted: samples accepted so far.
            due: tasks in progress or able to begin, so none of models that are paused or out of budget.
            reason: what holds the run up, in words.
        """
        if accepted != self._accepted:
            self._accepted = accepted
            since, self._since = self._since, now
            if self._is_told:
                self._is_told = False
                return RunMoved(self._campaign, now - (since if since is not None else now))
            return None
        if not due:
            self._since = None
            return None
        if self._since is None:
            self._since = now
        if self._is_told or not self._after_s or now - self._since < self._after_s:
            return None
        self._is_told = True
        return RunStalled(self._campaign, now - self._since, due, reason)
