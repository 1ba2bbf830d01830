"""A job queue driven to its end as a flow run: results collected, progress published, local workers if it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from prefect.states import Failed

from headgate.core import SystemClock
from headgate.jobqueue import JobState
from headgate.jobqueue.generator import ResultFolder
from headgate.jobqueue.worker import CommandJobs, CommandRules, JobQueueClient, ReserveMode, Worker
from headgate.orchestration.artifacts import RunArtifacts
from headgate.orchestration.inputs import SamplingOrder, settings_of, store_for
from headgate.orchestration.jobqueue.inputs import checked_command, job_queue_for
from headgate.orchestration.jobqueue.rows import drain_sentence, progress_rows, progress_sentence
from headgate.orchestration.phases import in_phase
from headgate.orchestration.run_state import ended, library_logs_in_run, run_logger
from headgate.orchestration.stop_request import StopRequest, stop_on_signals
from headgate.run import (
    DrainResult,
    DrainRules,
    JobCollector,
    JobSampleRules,
    QueueProgress,
    drain_queue,
)


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
    """Collect the results of a queue until no job is left, and return the state in which the flow run ends.

    Raises:
        HeadgateError: if something that was given cannot be used, the queue does not answer, or the store takes
            nothing. The next run goes on where this one was.
    """
    checked_command(workers, command)
    queue = await job_queue_for(jobqueue)
    rules = JobSampleRules(queue.queue, campaign, score_field)
    resolved = settings_of(SamplingOrder(campaign=campaign, settings=settings))
    samples = await store_for(store, resolved)
    stop, clock = StopRequest(), SystemClock()
    subject = f"jobqueue-{queue.queue}"
    artifacts = RunArtifacts[QueueProgress](
        subject,
        stop,
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
                helpers = [working, group.create_task(_cancel_at(stop.event, working))]
            result = await drain_queue(
                collector, drained_at, store=samples, clock=clock, stop=stop.event, on_progress=artifacts.note
            )
            for helper in helpers:
                helper.cancel()
        return result

    with stop_on_signals(stop), library_logs_in_run():
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
    """Work on jobs until cancelled; those in progress are then given back."""
    async with Worker(client, lease_s=lease_s, count=count) as worker:
        await worker.run(jobs)


async def _cancel_at(event: asyncio.Event, working: asyncio.Task[None]) -> None:
    await event.wait()
    working.cancel()


def drain_data(result: DrainResult) -> dict[str, Any]:
    """Return a result as a flow returns it."""
    progress = result.progress
    return {
        "done": progress.count(JobState.DONE),
        "dead": progress.count(JobState.DEAD),
        "left": progress.open_jobs,
        "unserved": progress.unserved,
        "stored": result.stored,
        "known": result.known,
        "unscored": sum(task_progress.scores.unscored for task_progress in progress.tasks),
        "quarantined": result.quarantined,
        "stopped_by": result.stopped_by,
        "is_drained": result.is_drained,
    }
