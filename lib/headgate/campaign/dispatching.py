"""The dispatcher of a campaign, as its settings want it."""

from __future__ import annotations

from typing import Final

from headgate.config import Settings
from headgate.core import HolderId
from headgate.scheduling import BoundedBorrow, Dispatcher, PressureRules, StrictFair, TaskPolicy

_PRESSURE: Final = PressureRules(closing=PressureRules().closing | {"waiters"})
"""A model whose requests wait already gets no further episode, which would only wait behind them with a worker."""


def dispatcher_of(settings: Settings, holder: HolderId) -> Dispatcher:
    """Return a dispatcher over the campaign's workers."""
    workers = {"workers": settings.num_evaluation_workers}
    return Dispatcher(workers, holder=holder, policy=task_policy(settings), pressure=_PRESSURE)


def task_policy(settings: Settings) -> TaskPolicy:
    """Return the policy of task admission that the settings name."""
    if settings.task_admission == "bounded_borrow":
        return BoundedBorrow(borrow_ceiling=settings.borrow_ceiling, reserve_share=settings.borrow_reserve)
    return StrictFair({"workers": settings.group_cap} if settings.group_cap else {})
