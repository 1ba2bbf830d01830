from __future__ import annotations

import asyncio
import signal
import sys

import aiohttp
import pytest

PROGRAM = "from headgate.models import run_baselines, FaultPlan; run_baselines(port=0, plan=FaultPlan.parse('hang'))"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_serving_prints_one_line_and_stops_cleanly_at_a_signal_though_a_request_hangs(number: int) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-c", PROGRAM, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    base_url = line.split()[-1]
    assert line.startswith("Baselines (not language models) answer at http://127.0.0.1:")
    async with aiohttp.ClientSession() as http:
        body = {"model": "baseline-random", "messages": [{"role": "user", "content": "x"}]}
        hanging = asyncio.create_task(http.post(f"{base_url}/chat/completions", json=body))
        async with http.get(f"{base_url}/models") as response:
            assert response.status == 200
        process.send_signal(number)
        rest, complaints = await process.communicate()
        with pytest.raises(aiohttp.ClientConnectionError):
            await hanging
    assert (process.returncode, rest, complaints) == (0, b"", b"")
