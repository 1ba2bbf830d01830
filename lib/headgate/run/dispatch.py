"""The dispatcher of a run, built from its settings: its resources, and the sample stages that take them."""

from __future__ import annotations

from typing import Final

from headgate.config import Settings
from headgate.core import HolderId, Model
from headgate.scheduling import BoundedBorrow, Dispatcher, FrontierRules, PressureRules, StrictFair, TaskPolicy

ROLLOUT: Final = "rollout"
JUDGE: Final = "judge"
AGGREGATE: Final = "aggregate"

WORKERS: Final = "workers"
JUDGE_CALLS: Final = "judge_calls"
LOCAL: Final = "local"
JOBS: Final = "jobs"
"""Samples that are with outside workers, or wait for one in the job queue."""
SEATS: Final = "environment_seats"
"""Seats for environments that run in hosts on other machines; the limit is what the running hosts offer."""

LOCAL_LANE: Final = "aggregate"
"""The lane of aggregate stages: it has no endpoint, so no endpoint's pressure ever closes it."""

_STAGES_QUEUED: Final = 16
"""The most ready tasks that one sample can have, with the maximum number of judgements."""

_PRESSURE: Final = PressureRules(closing=PressureRules().closing | {"waiters"})
"""A model with waiting requests starts no further episode: it would only wait behind them while holding a worker."""


def dispatcher_of(
    settings: Settings,
    holder: HolderId,
    judge: Model | None = None,
    *,
    jobs: int | None = None,
    has_hosts: bool = False,
) -> Dispatcher:
    """Return a dispatcher over a run's workers and, if it has them, judge calls, outside jobs and host seats."""
    workers = settings.num_evaluation_workers
    limits = {WORKERS: workers}
    if has_hosts:
        limits[SEATS] = 0
    if judge is not None:
        limits |= {JUDGE_CALLS: judge.max_parallel, LOCAL: workers}
    if jobs is not None:
        limits[JOBS] = jobs
    dispatcher = Dispatcher(
        limits,
        holder=holder,
        policy=task_policy(settings),
        pressure=_PRESSURE,
        governed=(WORKERS,),
        max_parked=workers,
    )
    if judge is not None:
        dispatcher.set_model(judge.key, judge.max_parallel)
        dispatcher.set_model(LOCAL_LANE, workers)
    return dispatcher


def task_policy(settings: Settings) -> TaskPolicy:
    """Return the task admission policy that the settings name."""
    if settings.task_admission == "bounded_borrow":
        return BoundedBorrow(borrow_ceiling=settings.borrow_ceiling, reserve_share=settings.borrow_reserve)
    return StrictFair({WORKERS: settings.group_cap} if settings.group_cap else {})


def frontier_rules(max_open: int, *, is_adaptive: bool) -> FrontierRules:
    """Return rules that keep at most `max_open` multi-stage samples open.

    Only a fixed matrix of such samples opens them as workers become free. Samples that fall due by rates, or that
    share the run with single-stage ones, queue with the others: they would never find a worker free.
    """
    return FrontierRules(cap=max_open, is_adaptive=is_adaptive, max_rows=max_open, max_queued=max_open * _STAGES_QUEUED)
