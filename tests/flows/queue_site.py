"""A job queue that runs for a test: a real server in this process, its block, and jobs that a second of Python does."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from blocks import JobQueueServer
from headgate.jobqueue import JobSpec, JobState
from headgate.jobqueue.server import ServerSettings, running_server
from headgate.jobqueue.worker import HeldJob, JobQueueClient, QueueAddress, Worker
from headgate.net.token_stores import open_tokens
from headgate.net.tokens import Scope, new_token

SCORE = """
import json, os
job = json.load(open(os.environ["HEADGATE_JOB_FILE"]))
payload = job["payload"]
assert not payload.get("fails"), "the simulator broke"
json.dump(payload["result"], open(os.environ["HEADGATE_RESULT_FILE"], "w"))
"""
"""A program that evaluates a job: its payload says with which result."""

COMMAND = [sys.executable, "-c", SCORE]

SLOW = [sys.executable, "-c", "import time; print('working'); time.sleep(600)"]


@dataclass(frozen=True, slots=True)
class QueueSite:
    """A job queue and the name of its block."""

    url: str
    block: str
    database: str
    token: str = ""

    def client(self) -> JobQueueClient:
        """Return a client of it."""
        return JobQueueClient(QueueAddress.of(self.url, self.token))

    async def submit(self, *specs: JobSpec) -> None:
        """Submit jobs."""
        async with self.client() as client:
            await client.submit(specs)

    async def work_off(self, jobs: int, result: dict[str, Any] | None = None) -> None:
        """Complete so many jobs as an outside worker would."""

        async def work(job: HeldJob) -> None:
            await job.complete(result or {"q_score": 0.5})

        async with self.client() as client, Worker(client) as worker:
            await worker.run(work, stop_when_empty=True, max_jobs=jobs)

    async def until_in_progress(self, jobs: int, within_s: float = 30.0) -> None:
        """Return once so many jobs are in progress."""
        async with self.client() as client, asyncio.timeout(within_s):
            while (await client.statistics()).jobs[JobState.IN_PROGRESS] < jobs:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.05)

    async def as_holder_of(self, *scopes: Scope, teams: list[str] | None = None) -> QueueSite:
        """Return the same queue as the holder of a new token sees it; to be called before anybody asks the queue."""
        token, text = new_token("a flow", scopes, now=time.time(), teams=teams)
        store = open_tokens(self.database)
        store.add(token, forget_before=0.0)
        store.close()
        name = f"queue-{uuid4().hex[:8]}"
        await JobQueueServer(url=self.url, token=text.reveal()).asave(name)
        return replace(self, block=name, token=text.reveal())


@asynccontextmanager
async def queue_site(folder: Path, **block: Any) -> AsyncIterator[QueueSite]:
    """Serve a job queue, its database in `folder`, and save its block."""
    settings = ServerSettings(database=f"sqlite:///{folder / 'jobqueue.db'}", port=0, statistics_every_s=0)
    async with running_server(settings) as server:
        name = f"queue-{uuid4().hex[:8]}"
        await JobQueueServer(url=server.url, patience_s=5.0, **block).asave(name)
        yield QueueSite(server.url, name, settings.database)


def spec(number: int, team: str = "team_a", task: str = "radio", **more: Any) -> JobSpec:
    """Return a job whose evaluation gives a score of a tenth of its number."""
    payload = more.pop("payload", f'{{"result": {{"q_score": {number / 10}}}}}')
    return JobSpec(f"{team}.{task}.{number}", team, task, str(number), payload=payload, **more)


def challenge(folder: Path, port: int) -> dict[str, str]:
    """Write a submission of one team, its policy server and test instances of two tasks; return what names them."""
    (folder / "submissions").mkdir()
    submission = {
        "team": "Robots",
        "overall_scores": {"q_score": 0.5},
        "per_task_scores": {"q_score": {"grid-5x5": 0.5, "grid-7x7": 0.5}},
    }
    (folder / "submissions/standard.robots.json").write_text(json.dumps(submission))
    for task, count in (("grid-5x5", 1), ("grid-7x7", 2)):
        (folder / "instances" / task).mkdir(parents=True)
        for number in range(count):
            (folder / "instances" / task / f"house_{task}_0_{number}_template-tro_state.json").write_text("{}")
    server = {"host": "127.0.0.1", "port": port, "not_compatible_task": ["grid-7x7"]}
    (folder / "raw.json").write_text(json.dumps({"robots": [server]}))
    return {
        "submissions_dir": str(folder / "submissions"),
        "test_instances_dir": str(folder / "instances"),
        "resources_raw_file": str(folder / "raw.json"),
    }
