"""The Prefect server dies in the middle of a window."""

# ruff: noqa: ASYNC110, ASYNC220 - a test has nothing else to run meanwhile

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.orchestration import private_server
from tests.flows.places import Places, window

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(240)]

RUN = """
import asyncio, json, sys
from flows.sampling import sample_environment
asyncio.run(sample_environment(**json.loads(sys.argv[1])))
"""


def _server_process(keeper: int) -> int:
    return int(Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()[0])


async def test_a_server_that_is_killed_stops_no_sampling_and_loses_no_sample(places: Places, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    async with private_server(tmp_path / "server") as server:
        parameters = json.dumps(window(places, duration_s=8.0))
        with log.open("wb") as output:
            # With its usual patience Prefect tries for minutes to tell the end of the run.
            hasty = {"PREFECT_CLIENT_MAX_RETRIES": "0", "PREFECT_LOGGING_TO_API_ENABLED": "false"}
            environ = server.environ() | hasty
            command = [sys.executable, "-c", RUN, parameters]
            run = subprocess.Popen(command, env=environ, stdout=output, stderr=output)
        try:
            async with asyncio.timeout(60):
                while not (before := list((places.folder / "samples").rglob("samples/**/*.parquet"))):
                    await asyncio.sleep(0.1)
            os.kill(_server_process(server.process._keeper.pid), signal.SIGKILL)
            async with asyncio.timeout(120):
                while "The work is done, but the Prefect API does not answer" not in log.read_text():
                    await asyncio.sleep(0.1)
            run.send_signal(signal.SIGTERM)  # nobody will answer any more
            await asyncio.to_thread(run.wait, 120)
        finally:
            run.kill()
            run.wait()
    said = log.read_text()
    assert said.count("accepts no artifacts") == 1, said
    assert "campaign_stopped" in said
    assert len(list((places.folder / "samples").rglob("samples/**/*.parquet"))) > len(before) + 3
    assert await places.assert_nothing_lost() > 12
