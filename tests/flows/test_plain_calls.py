"""Every flow, imported and called as a function without a Prefect API: Prefect's temporary server serves it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from headgate.jobqueue.server import ServerSettings, running_server
from tests.flows.queue_site import challenge

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]

SCRIPT = """
import asyncio, json, os, signal

from flows.benchmark import benchmark
from flows.comparison import arena, leaderboard
from flows.elastic import elastic_report
from flows.evaluation import evaluate
from flows.jobqueue import drain_jobqueue, generate_jobs, requeue_dead_jobs
from flows.judging import evaluate_with_judge
from flows.placement import place_roles
from flows.sampling import keep_sampling, sample_environment
from flows.upkeep import compact_samples, report

CALLS = [
    (evaluate, dict(instances=2, environments=["affine:sat"])),
    (sample_environment, dict(environment="affine:abd", duration_s=3.0)),
    (evaluate_with_judge, dict(instances=2)),
    (arena, dict(comparisons=2)),
    (report, dict()),
    (leaderboard, dict()),
    (compact_samples, dict()),
    (drain_jobqueue, dict(poll_s=0.1)),
    (requeue_dead_jobs, dict()),
    (generate_jobs, json.load(open("challenge.json"))),
    (elastic_report, dict(scale=0.02, policies=["predictive"], starts_s=[1.0])),
    (benchmark, dict(scenarios=["day"], changes={"day": ["models=1"]})),
    (place_roles, dict(environment="affine:sat", rounds=1, rollouts=1, episodes=16, trial_episodes=10)),
    (keep_sampling, dict(environments=["affine:ded"])),
]


async def called(flow, parameters):
    if flow is keep_sampling:
        asyncio.get_running_loop().call_later(4.0, os.kill, os.getpid(), signal.SIGINT)
    return await flow(**parameters)


if __name__ == "__main__":
    for flow, parameters in CALLS:
        try:
            returned = asyncio.run(called(flow, parameters))
        except BaseException as error:
            returned = type(error).__name__ + ": " + str(error)
        print("RETURNED", json.dumps([flow.name, returned]), flush=True)
"""


async def test_every_flow_works_with_the_temporary_server(tmp_path: Path, baselines: str) -> None:
    (tmp_path / "plain.py").write_text(SCRIPT)
    (tmp_path / "challenge.json").write_text(json.dumps(challenge(tmp_path, 9_000)))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEADGATE_", "PREFECT_", "OPENAI_", "RAY_"))}
    queue = ServerSettings(database=f"sqlite:///{tmp_path / 'jobqueue.db'}", port=0, statistics_every_s=0)
    async with running_server(queue) as server:
        environ = kept | {
            "PREFECT_HOME": str(tmp_path / "prefect"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "90",
            "HEADGATE_ROSTER": "baselines",
            "HEADGATE_JUDGE_URL": baselines,
            "HEADGATE_JUDGE_MODEL": "baseline-judge",
            "HEADGATE_JOBQUEUE_URL": server.url,
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        with (tmp_path / "said").open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "plain.py", cwd=tmp_path, env=environ, stdout=output, stderr=output
            )
            await process.wait()
    said = (tmp_path / "said").read_text()
    lines = [line.removeprefix("RETURNED ") for line in said.splitlines() if line.startswith("RETURNED ")]
    returned = dict(json.loads(line) for line in lines)
    failed = {name: what for name, what in returned.items() if not isinstance(what, dict)}
    assert list(failed) == ["keep-sampling"], f"{failed}\n{said[-6_000:]}"
    assert failed["keep-sampling"].startswith("KeyboardInterrupt"), "it samples until it is stopped"
    assert len(returned) == 14
    assert (returned["evaluate"]["scored"], returned["sample-environment"]["scored"]) == (6, 3)
    assert returned["generate-jobs"]["added"] == 1, "two of the three have no server that serves their task"
    assert returned["place-roles"]["rounds"] == 1
