"""Whether a run stands still: nothing is accepted for long although samples are due that could be taken."""

from __future__ import annotations

from headgate.core.events import Event, RunMoved, RunStalled


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
