"""procrastinate on the same PostgreSQL, if it is installed; it is not a dependency of Headgate.

It runs in its own processes, in its fastest form: concurrent asynchronous jobs, no listening while it drains. Jobs of
dead workers are retried as its documentation says, by querying stalled jobs from time to time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from typing import Any, Final

NAME: Final = "procrastinate"
PACKAGES: Final = ("procrastinate", "psycopg", "psycopg_pool")

_CONCURRENCY: Final = 20
_DEFERRED_AT_ONCE: Final = 500
_EFFECT: Final = "INSERT INTO bench_effects (job) VALUES (%s)"
EFFECTS_TABLE: Final = "CREATE TABLE bench_effects (job bigint NOT NULL)"
COUNTS: Final = {
    "finished": "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
    "ran_again": "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM bench_effects GROUP BY job) AS runs",
    "counted_twice": "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM procrastinate_events"
    " WHERE type = 'succeeded' GROUP BY job_id) AS ends",
}
"""SQL queries that count the outcomes of jobs."""


def _app(url: str) -> tuple[Any, Any]:
    import procrastinate  # noqa: PLC0415 - only where it is installed
    import psycopg_pool  # noqa: PLC0415

    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=2, max_size=10)
    return procrastinate.App(connector=connector), psycopg_pool


async def _installed(app: Any, task: Any, jobs: int) -> None:
    await app.schema_manager.apply_schema_async()
    for first in range(0, jobs, _DEFERRED_AT_ONCE):
        numbers = range(first, min(jobs, first + _DEFERRED_AT_ONCE))
        await task.batch_defer_async(*[{"number": number} for number in numbers])


async def burn(url: str, jobs: int) -> None:
    """Submit jobs, drain them, and print the duration of the drain in seconds."""
    app, _ = _app(url)

    async def nothing(number: int) -> None:
        pass

    task = app.task(queue="bench")(nothing)
    async with app.open_async():
        await _installed(app, task, jobs)
        begun = time.perf_counter()
        await app.run_worker_async(
            wait=False, concurrency=_CONCURRENCY, listen_notify=False, install_signal_handlers=False
        )
        print(time.perf_counter() - begun, flush=True)


async def submit(url: str, jobs: int) -> None:
    """Submit jobs that record each of their runs."""
    app, _ = _app(url)

    async def nothing(number: int) -> None:
        pass

    task = app.task(queue="bench", name="work")(nothing)
    async with app.open_async():
        await _installed(app, task, jobs)
        await app.connector.execute_query_async(EFFECTS_TABLE)


async def work(url: str, job_s: float, lease_s: float) -> None:
    """Work until killed; jobs of workers without a heartbeat for `lease_s` are retried."""
    app, pools = _app(url)
    from procrastinate import exceptions  # noqa: PLC0415 - as above

    async with pools.AsyncConnectionPool(url, kwargs={"autocommit": True}, open=False) as effects, app.open_async():

        async def run(number: int) -> None:
            async with effects.connection() as connection:
                await connection.execute(_EFFECT, (number,))
            await asyncio.sleep(job_s)

        async def rescue() -> None:
            while True:
                await asyncio.sleep(lease_s / 3)
                for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=lease_s):
                    with suppress(exceptions.ProcrastinateException):  # another worker was faster
                        await app.job_manager.retry_job(job)

        app.task(queue="bench", name="work")(run)
        rescuing = asyncio.create_task(rescue())
        await app.run_worker_async(
            concurrency=4,
            fetch_job_polling_interval=0.5,
            update_heartbeat_interval=lease_s / 3,
            stalled_worker_timeout=lease_s,
        )
        rescuing.cancel()


if __name__ == "__main__":
    _, action, address, *numbers = sys.argv
    if action == "work":
        asyncio.run(work(address, float(numbers[0]), float(numbers[1])))
    else:
        asyncio.run((burn if action == "burn" else submit)(address, int(numbers[0])))
