"""kill -9 of a run and of the outside workers that take its samples, while both work."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.jobqueue.server import ServerSettings, running_server
from headgate.storage import open_store
from tests.chaos.campaign_process import Place
from tests.chaos.test_runner_kills import endpoint

__all__ = ["endpoint"]

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(600)]


def _worker(url: str, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headgate.cli", "jobqueue", "work", "--samples", "--lease-s", "10"]
    return subprocess.Popen(
        [*command, "--count", "4", "--url", url, "--worker", f"w{number}"],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HEADGATE_REQUEST_TIMEOUT_S": "10"},
    )


async def test_kills_of_the_run_and_of_workers_lose_and_double_nothing(
    tmp_path: Path, endpoint: str, kills: int, chaos_seed: int
) -> None:
    settings = ServerSettings(database=f"sqlite:///{tmp_path / 'jobqueue.db'}", port=0, statistics_every_s=0)
    async with running_server(settings) as server:
        given = (
            "sink_batch_size=20",
            "executors=affine:*=jobqueue",
            f"jobqueue_url={server.url}",
            "drain_timeout_s=15",
        )
        place = Place(tmp_path, endpoint, str(tmp_path / "samples"), settings=given, rates="affine:sat=100000")
        rng, workers = random.Random(chaos_seed), [_worker(server.url, 0), _worker(server.url, 1)]
        try:
            for point in range(min(kills, 10)):
                run = place.start()
                await asyncio.to_thread(run.wait_for_samples)
                killed = workers.pop(0)
                killed.kill()
                killed.wait()
                workers.append(_worker(server.url, point + 2))
                await asyncio.to_thread(run.kill_after, rng.uniform(0.0, 1.5))
            assert await asyncio.to_thread(place.drain) == 0
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait(20)
    frame = (await open_store(place.store).scan()).frame
    place.assert_nothing_lost_or_doubled(frame)
    assert frame["score"].null_count() == 0
    assert len(place.acknowledged) >= kills
