"""Jobs generated from submissions as a flow run: sent to a job queue, written to files, or only looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prefect.states import Completed

from blocks import JobQueueServer
from headgate.core import errors
from headgate.jobqueue import JobSpec, ResourceSpec
from headgate.jobqueue.generator import (
    Generation,
    ResultFolder,
    Rules,
    Taken,
    generated,
    json_bytes,
    read_instances,
    read_json,
    read_submissions,
    servers_of,
    write_files,
)
from headgate.orchestration.artifacts import publish_table
from headgate.orchestration.jobqueue.inputs import job_queue_for
from headgate.orchestration.jobqueue.rows import generation_rows
from headgate.orchestration.run_logs import library_logs_in_run
from headgate.orchestration.run_state import run_logger

JOBS_FILE: Final = "jobs.json"
RESOURCES_FILE: Final = "resources.json"


@dataclass(frozen=True, slots=True)
class GenerationOrder:
    """What a flow run is asked to generate.

    Attributes:
        submissions_dir: folder of submissions, on the worker.
        instances_dir: folder of test instances.
        resources_file: policy servers of each team.
        results_dir: results that there are already; nothing is left out for them when empty.
        rules: what is generated.
        jobqueue: name of a JobQueueServer block; the worker's variables say when empty.
        is_sent: whether jobs and policy servers are sent to it.
        output_dir: folder that gets jobs.json and resources.json; none when empty.
        is_dry: say what would be generated, and send and write nothing.
    """

    submissions_dir: str
    instances_dir: str
    resources_file: str
    results_dir: str = ""
    rules: Rules = field(default_factory=Rules)
    jobqueue: str = ""
    is_sent: bool = True
    output_dir: str = ""
    is_dry: bool = False


async def run_generation(order: GenerationOrder) -> Any:
    """Generate jobs, send and write them, publish a table of what was generated, and return the final state.

    Raises:
        HeadgateError: if a file or block cannot be used; nothing was sent or written then.
        JobConflictError: when a job is in the queue with other contents.
    """
    if not (order.is_sent or order.output_dir or order.is_dry):
        raise errors.InvalidInputError(
            "the jobs are neither sent nor written", next_step="Set `send`, `output_dir` or `dry_run`."
        )
    queue = await job_queue_for(order.jobqueue) if order.is_sent and not order.is_dry else None
    with library_logs_in_run():
        made, unreadable = await asyncio.to_thread(_generated, order)
        for path in unreadable:
            run_logger().warning("evaluated again, as its result is truncated JSON: %s", path)
        jobs = made.job_specs()
        files: list[str] = []
        if order.output_dir and not order.is_dry:
            files = await asyncio.to_thread(_write, made, Path(order.output_dir))
        taken = await _send(queue, jobs, made.resource_specs()) if queue is not None else None
    message = _sentence(made, taken, files, is_dry=order.is_dry)
    await publish_table("generated-jobs", generation_rows(made), message)
    run_logger().info("%s", message)
    return Completed(message=message, data=_data(made, taken, files))


def _generated(order: GenerationOrder) -> tuple[Generation, list[str]]:
    results = ResultFolder(Path(order.results_dir)) if order.results_dir else None
    path = Path(order.resources_file)
    made = generated(
        read_submissions(Path(order.submissions_dir)),
        read_instances(Path(order.instances_dir)),
        servers_of(read_json(path, "file of policy servers"), str(path)),
        order.rules,
        results.has_result if results is not None else _no_result,
    )
    return made, list(results.unreadable) if results is not None else []


def _no_result(_slug: str, _task: str, _number: int) -> bool:
    return False


def _write(made: Generation, folder: Path) -> list[str]:
    paths = [folder / RESOURCES_FILE, folder / JOBS_FILE]
    documents = (made.resources_document(), made.jobs_document())
    write_files({path: json_bytes(document) for path, document in zip(paths, documents, strict=True)})
    return [str(path.absolute()) for path in paths]


async def _send(queue: JobQueueServer, jobs: Sequence[JobSpec], servers: Sequence[ResourceSpec]) -> Taken:
    """Send policy servers before the jobs: whoever gets a job finds them."""
    async with queue.client() as client:
        if servers:
            await client.register(servers)
        taken = await client.submit(jobs)
        lanes = (await client.statistics()).lanes
    return Taken(taken.added, taken.existing, len(servers), sum(lane.pending for lane in lanes if not lane.is_served))


def _sentence(made: Generation, taken: Taken | None, files: Sequence[str], *, is_dry: bool) -> str:
    parts = [f"{len(made.jobs):,} jobs of {len(made.teams):,} teams"]
    if skipped := sum(one.jobs for one in made.skipped):
        parts.append(f"{skipped:,} skipped")
    if taken is not None:
        parts.append(f"{taken.added:,} are new in the queue, {taken.existing:,} were there")
        if taken.unserved:
            parts.append(f"{taken.unserved:,} jobs of the queue wait for a policy server that takes them")
    if files:
        parts.append(f"written to {Path(files[0]).parent}")
    if is_dry:
        parts.append("dry run: nothing was sent or written")
    return "; ".join(parts)


def _data(made: Generation, taken: Taken | None, files: Sequence[str]) -> dict[str, Any]:
    return {
        "jobs": len(made.jobs),
        "teams": len(made.teams),
        "servers": len(made.resource_specs()),
        "skipped": sum(one.jobs for one in made.skipped),
        "added": None if taken is None else taken.added,
        "existing": None if taken is None else taken.existing,
        "unserved": None if taken is None else taken.unserved,
        "files": list(files),
    }
