"""The dispatcher of a run, as its settings want it: its resources, and the stages of a sample that take them."""

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
"""Of environments that are played in hosts on other machines; as many as the hosts have that are up."""

LOCAL_LANE: Final = "aggregate"
"""The lane of the aggregates: it has no endpoint, so no pressure of a model's endpoint ever closes it."""

_STAGES_QUEUED: Final = 16
"""Ready tasks of one sample at most, at the largest number of judgements."""

_PRESSURE: Final = PressureRules(closing=PressureRules().closing | {"waiters"})
"""A model whose requests wait already gets no further episode, which would only wait behind them with a worker."""


def dispatcher_of(
    settings: Settings,
    holder: HolderId,
    judge: Model | None = None,
    *,
    jobs: int | None = None,
    has_hosts: bool = False,
) -> Dispatcher:
    """Return a dispatcher over a run's workers, its judge's calls, outside workers' jobs and hosts' seats, if any."""
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
    """Return the policy of task admission that the settings name."""
    if settings.task_admission == "bounded_borrow":
        return BoundedBorrow(borrow_ceiling=settings.borrow_ceiling, reserve_share=settings.borrow_reserve)
    return StrictFair({WORKERS: settings.group_cap} if settings.group_cap else {})


def frontier_rules(max_open: int, *, is_adaptive: bool) -> FrontierRules:
    """Return rules under which `max_open` samples of several stages are open at most.

    Only a fixed matrix of such samples is opened as workers become free. What falls due by rates, or stands beside
    samples of one stage, takes its turn in the ready queue with them: it would never find a worker free.
    """
    return FrontierRules(cap=max_open, is_adaptive=is_adaptive, max_rows=max_open, max_queued=max_open * _STAGES_QUEUED)
