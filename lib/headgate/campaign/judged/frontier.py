"""How many samples are open: as many as keep the workers busy, whatever waits for an endpoint that admits nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headgate.campaign.judged.rows import WORKERS
from headgate.scheduling import AdaptiveFrontier, Dispatcher, FrontierRules, FrontierStep, FrontierView

_STAGES_QUEUED: Final = 16
"""Ready tasks of one sample at most, at the largest number of judgements."""


def frontier_rules(max_open: int) -> FrontierRules:
    """Return rules under which `max_open` samples are open at most."""
    return FrontierRules(cap=max_open, max_rows=max_open, max_queued=max_open * _STAGES_QUEUED)


class PatientFrontier(AdaptiveFrontier):
    """Widens while workers are free that no task takes which may start now. Pure; owned by one loop.

    Rollouts of a model whose endpoint admits nothing are ready and do not want a worker now: they keep no other
    model's samples from being opened.
    """

    def __init__(self, rules: FrontierRules, stuck: Callable[[], int]) -> None:
        super().__init__(rules)
        self._stuck = stuck

    def step(self, view: FrontierView, now: float) -> FrontierStep:
        """Return what to do now, as `AdaptiveFrontier` does."""
        stuck = self._stuck()
        return super().step(replace(view, demand=max(0, view.demand - stuck)) if stuck else view, now)


def stuck_rollouts(dispatcher: Dispatcher, models: tuple[str, ...]) -> Callable[[], int]:
    """Return what counts the workers that ready rollouts want whose endpoint admits nothing."""

    def stuck() -> int:
        if not dispatcher.pressure:
            return 0
        return sum(dispatcher.queued(model) for model in models if _is_useless(dispatcher, model))

    return stuck


def _is_useless(dispatcher: Dispatcher, model: str) -> bool:
    pressed = dispatcher.pressure.get(model)
    return pressed is not None and pressed.is_useless and dispatcher.book.limits.get(WORKERS, 0) > 0
