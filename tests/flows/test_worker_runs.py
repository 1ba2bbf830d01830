"""Flow runs as a worker starts them, each a process of its own: cancelled, terminated, killed, and two at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from flows.sampling import sample_environment
from headgate.orchestration.deployments import start_run
from tests.flows.api import finished_runs, states_of, until_running
from tests.flows.places import Places, window

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LONG = {"duration_s": 300.0}


def _processes_of(run: UUID) -> list[int]:
    """Return the processes that execute a flow run, by the variable that Prefect gives each of them."""
    mark = f"PREFECT__FLOW_RUN_ID={run}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            state = (environ.parent / "stat").read_text().rsplit(")", 1)[1].split()[0]
            if mark in environ.read_bytes().split(b"\0") and state != "Z":
                found.append(int(environ.parent.name))
        except (OSError, IndexError):
            continue
    return found


async def _until_stored(places: Places) -> None:
    async with asyncio.timeout(60):
        while not list((places.folder / "samples").rglob("samples/**/*.parquet")):  # noqa: ASYNC110
            await asyncio.sleep(0.2)


async def _until_gone(run: UUID) -> None:
    async with asyncio.timeout(90):
        while _processes_of(run):  # noqa: ASYNC110
            await asyncio.sleep(0.2)


async def _sampling(places: Places, deployment: str = "affine-sat") -> UUID:
    """Start a long window through the worker, and return its run once samples of it are stored."""
    run = await start_run(f"sample-environment/{deployment}", window(places, **LONG))
    await until_running(run.id)
    await _until_stored(places)
    return run.id


async def test_a_window_that_a_worker_starts_stores_its_samples(
    prefect: object, prefect_worker: Path, places: Places
) -> None:
    run = await start_run("sample-environment/affine-sat", window(places))
    (ended,) = await finished_runs([run.id], 120)
    assert ended.state.is_completed()
    assert await places.assert_nothing_lost() > 0


@pytest.mark.long
async def test_a_cancelled_run_drains_and_ends_as_cancelled(
    prefect: object, prefect_worker: Path, places: Places
) -> None:
    run = await _sampling(places)
    command = [sys.executable, "-m", "prefect", "flow-run", "cancel", str(run)]
    subprocess.run(command, env=prefect.environ(), check=True, capture_output=True, timeout=60)  # type: ignore[attr-defined]  # noqa: ASYNC221
    (ended,) = await finished_runs([run], 90)
    await _until_gone(run)
    assert ended.state.is_cancelled()
    assert "Crashed" not in [state.name for state in await states_of(run)]
    assert await places.assert_nothing_lost() > 0


@pytest.mark.long
async def test_a_terminated_run_drains_and_ends_as_crashed(
    prefect: object, prefect_worker: Path, places: Places
) -> None:
    run = await _sampling(places)
    for pid in _processes_of(run):
        os.kill(pid, signal.SIGTERM)
    (ended,) = await finished_runs([run], 90)
    await _until_gone(run)
    assert ended.state.is_crashed()
    assert await places.assert_nothing_lost() > 0


@pytest.mark.long
async def test_a_killed_run_loses_no_accepted_sample_and_the_next_one_goes_on(
    prefect: object, prefect_worker: Path, places: Places
) -> None:
    run = await _sampling(places)
    for pid in _processes_of(run):
        os.kill(pid, signal.SIGKILL)
    await finished_runs([run], 90)
    before = await places.assert_nothing_lost()
    await sample_environment(**window(places))
    assert await places.assert_nothing_lost() > before


@pytest.mark.long
async def test_two_windows_of_one_environment_at_once_neither_double_nor_drop_a_sample(
    prefect: object, prefect_worker: Path, places: Places
) -> None:
    runs = [await start_run("sample-environment/affine-sat", window(places, duration_s=12.0)) for _ in range(2)]
    both = await finished_runs([run.id for run in runs], 120)
    assert all(run.state.is_completed() for run in both)
    starts, ends = [run.start_time for run in both], [run.end_time for run in both]
    assert max(starts) < min(ends), "they did not overlap"
    stored = await places.stored()
    assert stored["task_id"].n_unique() == stored.height == await places.assert_nothing_lost()
