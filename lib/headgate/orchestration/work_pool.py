"""The work pool and its queues, which `prefect.yaml` cannot declare, and a worker of one's own."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists
from prefect.workers.process import ProcessWorker

from headgate.processes import ChildProcess, child_process

DRAIN_S: Final = 30.0
"""How long the flow runs of a worker may drain when it ends; Prefect's own worker gives them as much."""

POOL: Final = "headgate"
QUEUES: Final[Mapping[str, int]] = {"windows": 1, "evaluations": 2, "upkeep": 3, "placement": 4}
"""Name -> priority; 1 goes first. Windows are short and scheduled, evaluations long, upkeep can wait."""


async def ensure_pool(name: str = POOL, queues: Mapping[str, int] = QUEUES) -> None:
    """Make the process pool `name` with its queues and their priorities, where they are not there already.

    It has the template of process workers from the start, or the first worker to connect would write it, at the same
    moment as all else that a new server is told: on SQLite its connection then fails, and it comes back later.
    """
    template = ProcessWorker.get_default_base_job_template()
    async with get_client() as client:
        try:
            await client.create_work_pool(WorkPoolCreate(name=name, type="process", base_job_template=template))
        except ObjectAlreadyExists:
            await client.read_work_pool(name)
        for queue, priority in queues.items():
            try:
                await client.create_work_queue(name=queue, work_pool_name=name, priority=priority)
            except ObjectAlreadyExists:
                found = await client.read_work_queue_by_name(queue, work_pool_name=name)
                await client.update_work_queue(found.id, priority=priority)


@asynccontextmanager
async def worker(
    folder: Path, environ: Mapping[str, str], *, pool: str = POOL, drain_s: float = DRAIN_S
) -> AsyncIterator[ChildProcess]:
    """Give a running `prefect worker` for a process pool; its flow runs drain and end with it.

    Args:
        folder: where it runs, and where its log goes.
        environ: a client's environment, see `PrivateServer.environ`, with what the flow runs need.
        pool: whose runs it takes.
        drain_s: what is left after this is killed.
    """
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process"]
    environ = dict(environ) | {"PREFECT_WORKER_QUERY_SECONDS": "1", "PYTHONUNBUFFERED": "1"}
    log = folder / "worker.log"
    async with child_process(command, environ=environ, folder=folder, log=log, grace_s=drain_s) as process:
        yield process
