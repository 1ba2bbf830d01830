"""Drains a job queue as a flow run: collects results, publishes progress, and runs local workers on request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from prefect.states import Failed

from blocks import JobQueueServer, loaded_block
from headgate.core import SystemClock, errors
from headgate.jobqueue import JobState
from headgate.jobqueue.generator import ResultFolder
from headgate.jobqueue.worker import CommandJobs, CommandRules, JobQueueClient, ReserveMode, Worker, queue_address
from headgate.orchestration.artifacts import RunArtifacts
from headgate.orchestration.inputs import SamplingOrder, settings_of, store_for
from headgate.orchestration.pages import MAX_ROWS
from headgate.orchestration.phases import in_phase
from headgate.orchestration.run_state import ended, run_logger
from headgate.run import (
    DrainResult,
    DrainRules,
    JobCollector,
    JobSampleRules,
    QueueProgress,
    drain_queue,
)
from headgate.telemetry import counted


async def job_queue_for(name: str) -> JobQueueServer:
    """Return the job queue of a block, or the one in the worker's environment variables if no block is named.

    Raises:
        InvalidInputError: if there is no such block, or the address cannot be used.
    """
    if not name:
        address = queue_address()
        return JobQueueServer(url=address.url, token=address.token.reveal())
    return await loaded_block(JobQueueServer, name)


def checked_command(workers: int, command: Sequence[str]) -> None:
    """Refuse workers without a command, and a command without workers.

    Raises:
        InvalidInputError: if one is given without the other.
    """
    if workers and not command:
        raise errors.InvalidInputError(
            f"no command to run for {counted(workers, 'worker')}",
            next_step='Give `command`, as in ["headgate", "jobqueue", "evaluate"].',
        )
    if command and not workers:
        raise errors.InvalidInputError(
            f"the command {command[0]!r} has no workers to run it", next_step="Set `workers` to 1 or more."
        )


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
    """Return the progress of a queue in one line."""
    parts = [
        f"{progress.count(JobState.DONE):,} of {counted(progress.jobs, 'job')} done",
        f"{progress.count(JobState.IN_PROGRESS):,} in progress by {counted(progress.workers, 'worker')}",
        f"{progress.count(JobState.PENDING):,} pending",
        *_stuck(progress),
        f"{counted(progress.collected + progress.waiting, 'result')} collected",
    ]
    return "; ".join(parts)


def _stuck(progress: QueueProgress) -> Iterator[str]:
    if progress.unserved:
        yield f"{progress.unserved:,} of them without a policy server that takes them"
    if dead := progress.count(JobState.DEAD):
        yield f"{dead:,} dead"


def drain_sentence(result: DrainResult) -> str:
    """Return the result of a drain in one line."""
    progress = result.progress
    parts = [
        f"{result.stopped_by}: {progress.count(JobState.DONE):,} of {counted(progress.jobs, 'job')} done",
        f"{counted(result.stored, 'sample')} stored",
    ]
    if progress.open_jobs:
        parts.append(f"{counted(progress.open_jobs, 'job')} left")
    parts += _stuck(progress)
    if progress.unscored:
        parts.append(f"{progress.unscored:,} without a score")
    if result.quarantined:
        parts.append(f"{result.quarantined:,} refused by the store")
    return "; ".join(parts)


async def run_drain(
    *,
    jobqueue: str,
    store: str,
    campaign: str,
    score_field: str,
    duration_s: float | None,
    poll_s: float,
    workers: int,
    command: Sequence[str],
    reserve: str,
    fail_on_dead: bool,
    results_dir: str,
    settings: Mapping[str, Any],
) -> Any:
    """Collect the results of a queue until no job is left, and return the final state of the flow run.

    Raises:
        HeadgateError: if an argument cannot be used, the queue does not answer, or the store accepts nothing. The
            next run continues from there.
    """
    checked_command(workers, command)
    queue = await job_queue_for(jobqueue)
    rules = JobSampleRules(queue.queue, campaign, score_field)
    resolved = settings_of(SamplingOrder(campaign=campaign, settings=settings))
    samples = await store_for(store, resolved)
    subject = f"jobqueue-{queue.queue}"
    artifacts = RunArtifacts[QueueProgress](
        subject,
        sentence=progress_sentence,
        share=lambda newest: newest.share,
        done=lambda newest: newest.count(JobState.DONE),
        rows=progress_rows,
        table="jobs",
    )
    drained_at = DrainRules(
        poll_s=poll_s,
        store_every_s=min(resolved.sink_max_wait, 60.0),
        batch_size=resolved.batch_size,
        duration_s=duration_s,
    )

    async def drained() -> DrainResult:
        results = ResultFolder(Path(results_dir)) if results_dir else None
        async with queue.client() as client, asyncio.TaskGroup() as group:
            collector = JobCollector(client, samples, rules, results=results)
            helpers: list[asyncio.Task[None]] = []
            if workers:
                jobs = CommandJobs(CommandRules(command, reserve=ReserveMode(reserve)))
                working = group.create_task(_work(client, queue.lease_s, workers, jobs), name="workers")
                helpers = [working, group.create_task(_cancel_at(artifacts.stop.event, working))]
            result = await drain_queue(
                collector,
                drained_at,
                store=samples,
                clock=SystemClock(),
                stop=artifacts.stop.event,
                on_progress=artifacts.note,
            )
            for helper in helpers:
                helper.cancel()
        return result

    with artifacts.heeded() as stop:
        with closing(samples):
            async with artifacts.published():
                result = await in_phase(subject, drained, asset=samples.url, what="samples")
            await in_phase("publish", lambda: artifacts.finish(result.progress, drain_sentence(result)))
        message = drain_sentence(result)
        run_logger().info("%s: %s", subject, message)
        if stop.reason is None and fail_on_dead and result.progress.count(JobState.DEAD):
            return Failed(message=message)
        return await ended(stop, message, drain_data(result))


async def _work(client: JobQueueClient, lease_s: float, count: int, jobs: CommandJobs) -> None:
    """Work on jobs until cancelled; jobs in progress are then given back."""
    async with Worker(client, lease_s=lease_s, count=count) as worker:
        await worker.run(jobs)


async def _cancel_at(event: asyncio.Event, working: asyncio.Task[None]) -> None:
    await event.wait()
    working.cancel()


def drain_data(result: DrainResult) -> dict[str, Any]:
    """Return the data that the flow returns for a result."""
    progress = result.progress
    counts = {"done": progress.count(JobState.DONE), "dead": progress.count(JobState.DEAD)}
    return counts | {"left": progress.open_jobs, "unserved": progress.unserved} | result.document()
