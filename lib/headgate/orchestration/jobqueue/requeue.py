"""Dead jobs tried again as a flow run, and a table of which they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prefect.states import Completed

from headgate.jobqueue.wire import MOST_AT_ONCE, JobOut, RequeueIn
from headgate.jobqueue.worker import JobQueueClient
from headgate.orchestration.artifacts import publish_table
from headgate.orchestration.jobqueue.inputs import job_queue_for
from headgate.orchestration.jobqueue.rows import dead_rows
from headgate.orchestration.run_logs import library_logs_in_run
from headgate.orchestration.run_state import run_logger


@dataclass(frozen=True, slots=True)
class RequeueOrder:
    """Which dead jobs are tried again: those that match everything that is given.

    Attributes:
        jobqueue: name of a JobQueueServer block; the worker's variables say when empty.
        team: of this team.
        task: of this task.
        error_contains: whose last error has this in it, upper and lower case alike.
        is_dry: say which they are, and leave them dead.
    """

    jobqueue: str = ""
    team: str = ""
    task: str = ""
    error_contains: str = ""
    is_dry: bool = False


async def run_requeueing(order: RequeueOrder) -> Any:
    """Give dead jobs all their attempts again, publish which, and return the final state.

    Raises:
        HeadgateError: if the block cannot be used, or the queue refuses.
    """
    queue = await job_queue_for(order.jobqueue)
    with library_logs_in_run():
        async with queue.client() as client:
            matching = await _matching(client, order)
            requeued = set() if order.is_dry else await _requeued(client, matching)
    shown = matching if order.is_dry else [job for job in matching if job.id in requeued]
    message = f"{len(matching):,} dead jobs match; {len(requeued):,} wait again"
    if order.is_dry:
        message += " (dry run)"
    await publish_table("requeued-jobs", dead_rows(shown), message)
    run_logger().info("%s", message)
    return Completed(message=message, data={"matching": len(matching), "requeued": sorted(requeued)})


async def _matching(client: JobQueueClient, order: RequeueOrder) -> list[JobOut]:
    wanted = order.error_contains.casefold()
    found = client.all_jobs(dead=True, team=order.team or None, task=order.task or None)
    return [job async for job in found if wanted in job.last_error.casefold()]


async def _requeued(client: JobQueueClient, jobs: list[JobOut]) -> set[str]:
    """Requeue the jobs by their ids: one that died since it was listed has not been looked at."""
    requeued: set[str] = set()
    for start in range(0, len(jobs), MOST_AT_ONCE):
        job_ids = [job.id for job in jobs[start : start + MOST_AT_ONCE]]
        requeued.update((await client.requeue(RequeueIn(job_ids=job_ids))).requeued)
    return requeued
