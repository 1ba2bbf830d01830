"""Drains as a Prefect worker starts them, each a process of its own: cancelled, terminated, killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from flows.jobqueue import drain_jobqueue
from headgate.jobqueue import JobState
from headgate.orchestration.deployments import start_run
from headgate.storage import open_store
from tests.flows.api import finished_runs, until_running
from tests.flows.queue_site import COMMAND, QueueSite, queue_site, spec
from tests.flows.test_worker_runs import _processes_of, _until_gone

# In short: `test_jobqueue.py` cancels a drain in this process, `test_worker_runs.py` a run of a worker.
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(240)]

JOBS = 8

STUCK = "import os, time\nif int(os.environ['HEADGATE_JOB_ID'][-1]) > 3: time.sleep(600)\n"
STUCK_AFTER_A_FEW = [*COMMAND[:2], STUCK + COMMAND[2]]


@pytest.fixture
async def queue(prefect: object, tmp_path: Path) -> AsyncIterator[QueueSite]:
    async with queue_site(tmp_path, lease_s=10.0) as site:
        yield site


async def _draining(queue: QueueSite, store: Path) -> UUID:
    """Start a drain whose workers are stuck with some jobs after others were completed and stored; return its run."""
    await queue.submit(*(spec(number) for number in range(JOBS)))
    given = {
        "jobqueue": queue.block,
        "poll_s": 0.1,
        "workers": 2,
        "command": STUCK_AFTER_A_FEW,
        "settings": {"store": str(store), "batch_size": 1},
    }
    run = await start_run("drain-jobqueue/drain-jobqueue", given)
    await until_running(run.id)
    async with asyncio.timeout(60):
        while not await _stored(store):  # noqa: ASYNC110 - another process stores
            await asyncio.sleep(0.2)
    return run.id


async def _stored(store: Path) -> list[int]:
    """Return the numbers of the jobs that are stored."""
    opened = open_store(str(store))
    scan = await opened.scan(columns=["index"])
    opened.close()
    assert (scan.duplicates, scan.problems) == (0, ())
    return sorted(scan.frame["index"])


async def _states(queue: QueueSite) -> dict[JobState, int]:
    async with queue.client() as client:
        return (await client.statistics()).jobs


async def _rest(queue: QueueSite, store: Path) -> None:
    """Drain the rest, and assert that every job was stored once."""
    await drain_jobqueue(
        jobqueue=queue.block, poll_s=0.1, workers=2, command=COMMAND, settings={"store": str(store)}
    )  # fmt: skip
    assert await _stored(store) == list(range(JOBS))


async def test_a_cancelled_run_gives_its_jobs_back_and_ends_as_cancelled(
    prefect: object, prefect_worker: Path, queue: QueueSite, tmp_path: Path
) -> None:
    run = await _draining(queue, tmp_path / "s")
    command = [sys.executable, "-m", "prefect", "flow-run", "cancel", str(run)]
    environ = prefect.environ()  # type: ignore[attr-defined]
    await asyncio.to_thread(subprocess.run, command, env=environ, check=True, capture_output=True, timeout=60)
    (ended,) = await finished_runs([run], 90)
    await _until_gone(run)
    assert ended.state.is_cancelled()
    states = await _states(queue)
    assert states[JobState.IN_PROGRESS] == states[JobState.DEAD] == 0
    await _rest(queue, tmp_path / "s")


async def test_a_terminated_run_gives_its_jobs_back_and_ends_as_crashed(
    prefect: object, prefect_worker: Path, queue: QueueSite, tmp_path: Path
) -> None:
    run = await _draining(queue, tmp_path / "s")
    for pid in _processes_of(run):
        with contextlib.suppress(ProcessLookupError):  # one of them ends as soon as another one does
            os.kill(pid, signal.SIGTERM)
    (ended,) = await finished_runs([run], 90)
    await _until_gone(run)
    assert ended.state.is_crashed()
    assert (await _states(queue))[JobState.IN_PROGRESS] == 0
    await _rest(queue, tmp_path / "s")


async def test_a_killed_run_loses_nothing_and_the_next_one_stores_nothing_twice(
    prefect: object, prefect_worker: Path, queue: QueueSite, tmp_path: Path
) -> None:
    run = await _draining(queue, tmp_path / "s")
    for pid in _processes_of(run):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await finished_runs([run], 90)
    await _rest(queue, tmp_path / "s")
