"""The job queue as rows of table artifacts and as sentences, numbers formatted: the UI formats none."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.core import redacted
from headgate.jobqueue import JobState
from headgate.jobqueue.generator import Generation
from headgate.jobqueue.wire import JobOut
from headgate.orchestration.pages import MAX_ROWS
from headgate.run import DrainResult, QueueProgress


def generation_rows(made: Generation) -> list[dict[str, str]]:
    """Return one row per team and task: its jobs, and what was left out and why."""
    jobs: dict[tuple[str, str], int] = {(team.slug, task): 0 for team in made.teams for task in team.tasks}
    for job in made.jobs:
        jobs[job.team, job.task] += 1
    skipped: dict[tuple[str, str], list[str]] = {}
    for one in made.skipped:
        count = f"{one.jobs:,} " if one.jobs else ""
        skipped.setdefault((one.team, one.task), []).append(f"{count}{one.reason.value}")
    rows = [
        {"team": team, "task": task, "jobs": f"{count:,}", "skipped": "; ".join(skipped.get((team, task), []))}
        for (team, task), count in jobs.items()
    ]
    return rows[:MAX_ROWS]


def progress_rows(progress: QueueProgress) -> list[dict[str, str]]:
    """Return one row per team and task, at most `MAX_ROWS`."""
    rows = []
    for task in progress.tasks[:MAX_ROWS]:
        estimate = task.scores.estimate
        row = {
            "team": task.team,
            "task": task.task,
            "pending": f"{task.pending:,}" + (f" ({task.unserved:,} without a server)" if task.unserved else ""),
            "running": f"{task.in_progress:,}",
            "done": f"{task.done:,}",
            "dead": f"{task.dead:,}",
            "mean": "" if estimate is None else f"{estimate.mean:.3f}",
            "95 %": "" if estimate is None else f"{estimate.low:.3f}–{estimate.high:.3f}",
            "no score": f"{task.scores.unscored:,}",
        }
        rows.append(row)
    return rows


def progress_sentence(progress: QueueProgress) -> str:
    """Return how far a queue is, in one line."""
    parts = [
        f"{progress.count(JobState.DONE):,} of {progress.jobs:,} jobs done",
        f"{progress.count(JobState.IN_PROGRESS):,} in progress by {progress.workers:,} workers",
        f"{progress.count(JobState.PENDING):,} pending",
    ]
    if progress.unserved:
        parts.append(f"{progress.unserved:,} of them wait for a policy server that takes them")
    if dead := progress.count(JobState.DEAD):
        parts.append(f"{dead:,} dead")
    parts.append(f"{progress.collected + progress.waiting:,} results collected")
    return "; ".join(parts)


def drain_sentence(result: DrainResult) -> str:
    """Return what a drain did, in one line."""
    progress = result.progress
    parts = [
        f"{result.stopped_by}: {progress.count(JobState.DONE):,} of {progress.jobs:,} jobs done",
        f"{result.stored:,} samples stored",
    ]
    if progress.open_jobs:
        parts.append(f"{progress.open_jobs:,} jobs left")
    if progress.unserved:
        parts.append(f"{progress.unserved:,} of them wait for a policy server that takes them")
    if dead := progress.count(JobState.DEAD):
        parts.append(f"{dead:,} dead")
    if unscored := sum(task.scores.unscored for task in progress.tasks):
        parts.append(f"{unscored:,} without a score")
    if result.quarantined:
        parts.append(f"{result.quarantined:,} refused by the store")
    return "; ".join(parts)


def dead_rows(jobs: Sequence[JobOut]) -> list[dict[str, str]]:
    """Return one row per dead job, at most `MAX_ROWS`."""
    return [
        {
            "job": job.id,
            "team": job.team,
            "task": job.task,
            "instance": job.instance,
            "claims": f"{job.epoch:,}",
            "worker": job.worker,
            "error": redacted(" ".join(job.last_error.split()), limit_chars=300),
        }
        for job in jobs[:MAX_ROWS]
    ]
