"""Retries dead jobs as a flow run, and lists them in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect.states import Completed

from headgate.core import redacted
from headgate.jobqueue import WITHDRAWN
from headgate.jobqueue.wire import MOST_AT_ONCE, JobOut, RequeueIn
from headgate.orchestration.artifacts import publish
from headgate.orchestration.jobqueue.drain import job_queue_for
from headgate.orchestration.pages import MAX_ROWS
from headgate.orchestration.run_state import library_logs_in_run, run_logger


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


async def run_requeueing(*, jobqueue: str, team: str, task: str, error_contains: str, is_dry: bool) -> Any:
    """Renew the attempts of the dead jobs that match all given conditions, publish them, and return the final state.

    Raises:
        HeadgateError: if the block cannot be used, or the queue refuses.
    """
    queue = await job_queue_for(jobqueue)
    wanted = error_contains.casefold()
    requeued: set[str] = set()
    with library_logs_in_run():
        async with queue.client() as client:
            dead = client.all_jobs(dead=True, team=team or None, task=task or None)
            errors = [(job, job.last_error.casefold()) async for job in dead]
            matching = [job for job, error in errors if wanted in error and (wanted or not error.startswith(WITHDRAWN))]
            # By id: a job that died after the listing has not been checked.
            for start in range(0, 0 if is_dry else len(matching), MOST_AT_ONCE):
                request = RequeueIn(job_ids=[job.id for job in matching[start : start + MOST_AT_ONCE]])
                requeued.update((await client.requeue(request)).requeued)
    shown = matching if is_dry else [job for job in matching if job.id in requeued]
    message = f"{len(matching):,} dead jobs match; {len(requeued):,} requeued"
    if is_dry:
        message += " (dry run)"
    await publish("requeued-jobs", dead_rows(shown), message)
    run_logger().info("%s", message)
    return Completed(message=message, data={"matching": len(matching), "requeued": sorted(requeued)})
