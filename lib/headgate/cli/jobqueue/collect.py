"""`headgate jobqueue collect`: results of completed jobs as samples in a store."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headgate.cli.output import AsJson, QueueUrl, counted, print_json, print_table, say
from headgate.cli.run import stop_on_signals
from headgate.config import Settings, load_settings
from headgate.core import SystemClock
from headgate.core.errors import InvalidInputError
from headgate.jobqueue import JobState
from headgate.jobqueue.generator import ResultFolder
from headgate.jobqueue.worker import JobQueueClient, RetryPolicy
from headgate.run import (
    SCORE_FIELD,
    DrainResult,
    DrainRules,
    JobCollector,
    JobSampleRules,
    QueueProgress,
    drain_queue,
)
from headgate.storage import sample_store

_ONCE: DrainRules = DrainRules(poll_s=0.0, duration_s=0.0)
"""Look at the queue once."""

_PATIENCE_S = 300.0
"""Seconds for which --follow retries a server that does not answer: enough for a restart."""


def collect(
    *,
    store: Annotated[
        str | None, Parameter(help="Sample store: a folder, s3://bucket/prefix or r2://bucket/prefix.")
    ] = None,
    url: QueueUrl = None,
    follow: Annotated[bool, Parameter(help="Continue until no job is pending or in progress, or Ctrl-C.")] = False,
    queue: Annotated[
        str, Parameter(help="Name of the queue; it and the job's id identify a sample, wherever the server is.")
    ] = "main",
    campaign: Annotated[str, Parameter(help="Campaign of the samples.")] = "jobqueue",
    score_field: Annotated[
        str, Parameter(help="Field of a result with its score, in [0, 1]; dots lead into objects.")
    ] = SCORE_FIELD,
    results_dir: Annotated[
        Path | None, Parameter(help="Results of jobs that were completed without one: TEAM/metrics/TASK_NUMBER.json.")
    ] = None,
    poll_s: Annotated[float, Parameter(help="With --follow, interval at which the queue is asked.")] = 5.0,
    config: Annotated[Path | None, Parameter(help="YAML file of settings; also HEADGATE_CONFIG.")] = None,
    as_json: AsJson = False,
) -> int:
    """Store the results of completed jobs as samples: the team is the model, the task the environment.

    Each result is stored once, so the command can be run again at any time. A result without a score in [0, 1] becomes
    a sample without a score, with the reason.
    """
    if not poll_s > 0:
        raise InvalidInputError(f"--poll-s must be > 0 (got {poll_s:g})")
    rules = JobSampleRules(queue, campaign, score_field)
    settings = load_settings({"store": store}, environ=os.environ, file=config).settings
    results = None if results_dir is None else ResultFolder(results_dir)
    when = DrainRules(poll_s=poll_s) if follow else _ONCE
    result = asyncio.run(_collect(url, settings, rules, when, results))
    if as_json:
        left = {"open_jobs": result.progress.open_jobs, "dead_jobs": result.progress.count(JobState.DEAD)}
        print_json(result.document() | left)
        return 0
    _print_tasks(result.progress)
    say(_sentence(result, settings))
    return 0


async def _collect(
    url: str | None, settings: Settings, rules: JobSampleRules, when: DrainRules, results: ResultFolder | None
) -> DrainResult:
    clock, stop = SystemClock(), asyncio.Event()
    stop_on_signals(stop)
    retry = RetryPolicy() if when is _ONCE else RetryPolicy(patience_s=_PATIENCE_S)
    with closing(sample_store(settings)) as store:
        async with JobQueueClient(url, retry=retry) as client:
            collector = JobCollector(client, store, rules, results=results)
            return await drain_queue(collector, when, store=store, clock=clock, stop=stop)


def _print_tasks(progress: QueueProgress) -> None:
    columns = ("team", "task", "pending", "running", "done", "dead", "mean", "low", "high", "no score")
    rows = []
    for task in progress.tasks:
        found = task.scores.estimate
        scores = (None, None, None) if found is None else (found.mean, found.low, found.high)
        counts = (task.pending, task.in_progress, task.done, task.dead)
        rows.append((task.team, task.task, *counts, *scores, task.scores.unscored))
    print_table(counted(len(rows), "team × task", "teams × tasks"), columns, rows, right=range(2, len(columns)))


def _sentence(result: DrainResult, settings: Settings) -> str:
    parts = [f"new samples in {settings.store}: {result.stored}", f"stored before: {result.known}"]
    if result.quarantined:
        parts.append(f"refused by the store: {result.quarantined}")
    if result.progress.open_jobs:
        parts.append(f"unfinished jobs: {result.progress.open_jobs}")
    if not (result.is_drained or result.progress.jobs):
        parts.append(result.stopped_by)
    return "; ".join(parts)
