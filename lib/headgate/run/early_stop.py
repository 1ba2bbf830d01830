"""Whether a run should end early because samples fail steadily, and whether it stands still."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection
from typing import Self

from headgate.config import Settings
from headgate.core.events import Event, RunMoved, RunStalled


class _RecentFailures:
    """How many of the last `window` outcomes were failures."""

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
    """Watches how samples end and says when to stop. Pure; owned by the campaign.

    Three conditions must hold at once. Among the last `window` ended samples of the campaign the share of failed ones
    is at least `rate`; so is the share of failing models in the roster, two of them at least unless there is only one;
    and every model fails that is not held. Samples that fail end sooner than samples that work: models whose endpoints
    refuse everything fill the window, and must not stop one that works, or whose first answer has yet to come. A model
    fails while `rate` of its own last samples did.

    Failed is a sample without a score, after every retry. An answer that is wrong or unusable has one.
    """

    def __init__(self, rate: float, window: int) -> None:
        """Prepare an early stop.

        Args:
            rate: share of failures that is too much, in (0, 1].
            window: ended samples over which it is taken, >= 1.
        """
        self._rate = rate
        self._window = window
        self._all = _RecentFailures(window, rate)
        self._models: dict[str, _RecentFailures] = {}
        self._failing: set[str] = set()

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """Return the early stop that settings ask for; None when they turn it off."""
        return cls(settings.shutdown_error_rate, settings.shutdown_error_window) if settings.early_stop else None

    def ended(
        self, model: str, *, has_failed: bool, models: Collection[str], is_held: Callable[[str], bool]
    ) -> str | None:
        """Note how a sample ended; return why to stop, or None.

        Args:
            model: key of its model.
            has_failed: whether it has no score for good.
            models: keys of the roster's models.
            is_held: whether nothing of a model is started: it is paused, or given up.
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
        """Drop how the samples of a model ended."""
        self._models.pop(model, None)
        self._failing.discard(model)


class StallWatch:
    """Tells once that a run stands still, and once that it moves again. Pure; owned by the run."""

    def __init__(self, campaign: str, after_s: float) -> None:
        """Prepare it; a run stands still after `after_s` seconds, never if that is 0."""
        self._campaign = campaign
        self._after_s = after_s
        self._accepted = 0
        self._since: float | None = None
        self._is_told = False

    def look(self, now: float, accepted: int, due: int, reason: str) -> Event | None:
        """Return what is to be told.

        Args:
            now: the run's time.
            accepted: samples that were accepted so far.
            due: tasks that are in progress or could begin: those of models that are paused, or out of budget, not.
            reason: what holds the run, for people.
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
