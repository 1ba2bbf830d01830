"""Generates jobs from submissions as a flow run: sends them to a job queue, writes them to files, or lists them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect.states import Completed

from headgate.core import errors
from headgate.jobqueue.generator import (
    Generation,
    Rules,
    Taken,
    generated_from,
    json_bytes,
    send,
    write_files,
)
from headgate.orchestration.artifacts import publish
from headgate.orchestration.jobqueue.drain import job_queue_for
from headgate.orchestration.pages import MAX_ROWS
from headgate.orchestration.run_state import library_logs_in_run, run_logger
from headgate.telemetry import counted


async def run_generation(
    rules: Rules,
    *,
    submissions_dir: str,
    instances_dir: str,
    resources_file: str,
    results_dir: str,
    jobqueue: str,
    is_sent: bool,
    output_dir: str,
    is_dry: bool,
) -> Any:
    """Generate jobs, send and write them, publish a table of what was generated, and return the final state.

    Raises:
        HeadgateError: if a file or block cannot be used; nothing has been sent or written then.
        JobConflictError: if the queue has one of the jobs with other contents.
    """
    if not (is_sent or output_dir or is_dry):
        raise errors.InvalidInputError(
            "the jobs are neither sent nor written", next_step="Set `send`, `output_dir` or `dry_run`."
        )
    queue = await job_queue_for(jobqueue) if is_sent and not is_dry else None
    with library_logs_in_run():
        results = Path(results_dir) if results_dir else None
        made = await asyncio.to_thread(
            generated_from, Path(submissions_dir), Path(instances_dir), Path(resources_file), results, rules
        )
        for path in made.unreadable:
            run_logger().warning("evaluated again, as its result is truncated JSON: %s", path)
        jobs = made.job_specs()
        files: list[str] = []
        if output_dir and not is_dry:
            files = await asyncio.to_thread(_write, made, Path(output_dir))
        taken = await send(queue.client(), jobs, made.resource_specs()) if queue is not None else None
    message = _sentence(made, taken, files, is_dry=is_dry)
    await publish("generated-jobs", generation_rows(made), message)
    run_logger().info("%s", message)
    data = {
        "jobs": len(made.jobs),
        "teams": len(made.teams),
        "servers": len(made.resource_specs()),
        "skipped": sum(one.jobs for one in made.skipped),
        "added": None if taken is None else taken.added,
        "existing": None if taken is None else taken.existing,
        "unserved": None if taken is None else taken.unserved,
        "files": files,
    }
    return Completed(message=message, data=data)


def generation_rows(made: Generation) -> list[dict[str, str]]:
    """Return one row per team and task: its number of jobs, and what was skipped and why."""
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


def _write(made: Generation, folder: Path) -> list[str]:
    documents = {"resources.json": made.resources_document(), "jobs.json": made.jobs_document()}
    files = {folder / name: json_bytes(document) for name, document in documents.items()}
    write_files(files)
    return [str(path.absolute()) for path in files]


def _sentence(made: Generation, taken: Taken | None, files: Sequence[str], *, is_dry: bool) -> str:
    parts = [f"{counted(len(made.jobs), 'job')} of {counted(len(made.teams), 'team')}"]
    if skipped := sum(one.jobs for one in made.skipped):
        parts.append(f"{skipped:,} skipped")
    if taken is not None:
        parts.append(f"{taken.added:,} new in the queue, {taken.existing:,} there already")
        if taken.unserved:
            parts.append(f"{taken.unserved:,} of them without a policy server that takes them")
    if files:
        parts.append(f"written to {Path(files[0]).parent}")
    if is_dry:
        parts.append("dry run: nothing was sent or written")
    return "; ".join(parts)
