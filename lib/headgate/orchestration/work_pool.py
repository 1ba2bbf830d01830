"""The work pool and its queues, made once and again without harm; `prefect.yaml` cannot declare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists
from prefect.workers.process import ProcessWorker

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
