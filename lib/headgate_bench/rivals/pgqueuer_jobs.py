"""pgqueuer on the same PostgreSQL, if it is installed; it is not a dependency of Headgate.

It runs in its own processes, in its fastest form: with asyncpg, batches, and buffered writes of finished jobs.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

NAME: Final = "pgqueuer"
PACKAGES: Final = ("pgqueuer", "asyncpg")

_BATCH: Final = 100
_ENQUEUED_AT_ONCE: Final = 5_000
EFFECTS_TABLE: Final = "CREATE TABLE bench_effects (job bigint NOT NULL)"
COUNTS: Final = {
    "finished": "SELECT count(DISTINCT job_id) FROM pgqueuer_log WHERE status = 'successful'",
    "ran_again": "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM bench_effects GROUP BY job) AS runs",
    "counted_twice": "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM pgqueuer_log"
    " WHERE status = 'successful' GROUP BY job_id) AS ends",
}
"""SQL queries that count the outcomes of jobs."""


async def _installed(connection: Any, jobs: int) -> None:
    from pgqueuer.queries import Queries  # noqa: PLC0415 - only where it is installed

    queries = Queries.from_asyncpg_connection(connection)
    await queries.install()
    for first in range(0, jobs, _ENQUEUED_AT_ONCE):
        numbers = range(first, min(jobs, first + _ENQUEUED_AT_ONCE))
        await queries.enqueue(["work"] * len(numbers), [str(number).encode() for number in numbers], [0] * len(numbers))


async def burn(url: str, jobs: int) -> None:
    """Submit jobs, drain them, and print the duration of the drain in seconds."""
    asyncpg = import_module("asyncpg")  # only where it is installed
    from pgqueuer import PgQueuer  # noqa: PLC0415
    from pgqueuer.types import QueueExecutionMode  # noqa: PLC0415

    connection = await asyncpg.connect(url)
    await _installed(connection, jobs)
    queue = PgQueuer.from_asyncpg_connection(connection)

    @queue.entrypoint("work")
    async def work(job: Any) -> None:
        pass

    begun = time.perf_counter()
    await queue.qm.run(batch_size=_BATCH, mode=QueueExecutionMode.drain)
    print(time.perf_counter() - begun, flush=True)


async def submit(url: str, jobs: int) -> None:
    """Submit jobs that record each of their runs."""
    asyncpg = import_module("asyncpg")  # only where it is installed

    connection = await asyncpg.connect(url)
    await _installed(connection, jobs)
    await connection.execute(EFFECTS_TABLE)
    await connection.close()


async def work(url: str, job_s: float, lease_s: float) -> None:
    """Work until killed; jobs without a heartbeat for `lease_s` are retried."""
    asyncpg = import_module("asyncpg")  # only where it is installed
    from pgqueuer import PgQueuer  # noqa: PLC0415

    connection, effects = await asyncpg.connect(url), await asyncpg.create_pool(url, min_size=1, max_size=4)
    queue = PgQueuer.from_asyncpg_connection(connection)

    @queue.entrypoint("work")
    async def work(job: Any) -> None:
        await effects.execute("INSERT INTO bench_effects (job) VALUES ($1)", int(job.payload))
        await asyncio.sleep(job_s)

    await queue.qm.run(
        dequeue_timeout=timedelta(seconds=0.5),
        batch_size=4,
        max_concurrent_tasks=8,
        heartbeat_timeout=timedelta(seconds=lease_s),
    )


if __name__ == "__main__":
    _, action, address, *numbers = sys.argv
    if action == "work":
        asyncio.run(work(address, float(numbers[0]), float(numbers[1])))
    else:
        asyncio.run((burn if action == "burn" else submit)(address, int(numbers[0])))
