"""Handing a result in as a file: with where it came from, and only by the claim that is running."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import headgate
from headgate.core import Clock, SystemClock
from headgate.jobqueue.worker.held_job import HeldJob
from headgate.jobqueue.worker.results import Artifact, publish_result, result_path


async def publish(
    job: HeldJob,
    folder: Path,
    result: Mapping[str, Any],
    *,
    versions: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> Artifact:
    """Write a job's result where its instance's belongs (`result_path`); hand it in with `job.complete(artifact=…)`.

    Args:
        job: held; its lease is confirmed right before.
        folder: of the results of all teams.
        result: the JSON object.
        versions: of what made it, kept with it.
        clock: gives the time.

    Raises:
        StaleLeaseError: the lease is over.
        ResultRefusedError: a later claim's result is there.
        InvalidInputError: it cannot be written.
    """
    told = provenance(job, versions or {}, clock or SystemClock())
    await job.confirm()
    return await asyncio.to_thread(publish_result, place_of(job, folder), result, told)


def place_of(job: HeldJob, folder: Path) -> Path:
    """Return where a job's result belongs (`result_path`); one without instance has its id in the name."""
    return result_path(folder, job.spec.team, job.spec.task, job.spec.instance or job.id)


def provenance(job: HeldJob, versions: Mapping[str, str], clock: Clock) -> dict[str, Any]:
    """Return where a result of a job comes from."""
    spec, server = job.spec, job.server or job.last_server
    return {
        "job_id": spec.id,
        "epoch": job.epoch,
        "attempt": job.attempt,
        "team": spec.team,
        "task": spec.task,
        "instance": spec.instance,
        "worker": job.worker,
        "host": socket.gethostname(),
        "slurm_job_id": os.environ.get("SLURM_JOB_ID"),
        "server": None
        if server is None
        else {"resource_id": server.resource_id, "host": server.host, "port": server.port, "epoch": server.epoch},
        "claimed_at": None if spec.claimed_at is None else _when(spec.claimed_at),
        "written_at": _when(clock.wall()),
        "versions": {"headgate": headgate.__version__, "python": platform.python_version(), **versions},
    }


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
