"""What the tests of SLURM do: hand in the array script, look at its tasks, end them; a job queue with two servers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headgate.jobqueue import JobSpec, ResourceSpec
from headgate.jobqueue.worker import SyncJobQueueClient
from tests.house.tree import ROOT

HEADGATE = Path(sys.executable).with_name("headgate")
SCRIPT = ROOT / "deployments/slurm/eval.sh"
TEAM, TASK, POOL = "team_a", "turning_on_radio", "team_a_1"


def until(holds: Callable[[], object]) -> None:
    """Return when something holds; the test's own limit is the end of patience."""
    rest = threading.Event()
    while not holds():
        rest.wait(0.1)


@contextmanager
def announced(*command: str, log: Path) -> Iterator[str]:
    """Give the address that a command of Headgate prints in its first line; the command ends with the context."""
    with log.open("wb") as errors:
        started = subprocess.Popen([HEADGATE, *command], stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert started.stdout is not None
        found = re.search(r"\b(?:http|ws)://[\w.:]+", started.stdout.readline())
        assert found, log.read_text()
        yield found[0]
    finally:
        started.send_signal(signal.SIGTERM)
        started.communicate()


@contextmanager
def served_queue(folder: Path, *, jobs: int, delay_ms: int) -> Iterator[SyncJobQueueClient]:
    """Give a client of a queue that has jobs and two policy servers, each action of which takes `delay_ms`."""
    servers = ["jobqueue", "policy-server", "--port", "0", "--delay-ms", str(delay_ms), "--grace-s", "0"]
    database = f"sqlite:///{folder / 'queue.db'}"
    with (
        announced("jobqueue", "serve", "--port", "0", "--database", database, log=folder / "serve.log") as url,
        announced(*servers, log=folder / "one.log") as one,
        announced(*servers, log=folder / "other.log") as other,
        SyncJobQueueClient(url) as client,
    ):
        client.register([ResourceSpec(POOL, "127.0.0.1", int(at.rsplit(":", 1)[1])) for at in (one, other)])
        client.submit(JobSpec(f"job-{n}", TEAM, TASK, str(n), POOL, POOL) for n in range(jobs))
        yield client


@dataclass(frozen=True)
class Array:
    """An array of workers that SLURM runs."""

    array_id: str
    folder: Path

    @classmethod
    def submit(cls, folder: Path, url: str, *, tasks: int, **variables: str) -> Array:
        """Hand the script in as a user does, with the evaluation that Headgate brings along."""
        given = {
            "HEADGATE_JOBQUEUE_URL": url,
            "EVAL_COMMAND": f"{HEADGATE} jobqueue evaluate",
            "EVAL_HEADGATE": str(HEADGATE),
            "EVAL_IDLE_S": "3",
        }
        command = ["sbatch", "--parsable", f"--array=0-{tasks - 1}", f"--output={folder}/task-%a.log", str(SCRIPT)]
        said = subprocess.run(
            command, cwd=folder, env={**os.environ, **given, **variables}, capture_output=True, text=True, check=True
        )
        return cls(said.stdout.strip(), folder)

    def cancel(self, task: int, *options: str) -> None:
        """Run `scancel` on one task."""
        subprocess.run(["scancel", *options, f"{self.array_id}_{task}"], check=True)

    def running(self) -> set[int]:
        """Return the tasks that SLURM has not done with."""
        command = ["squeue", "--array", "--noheader", "--format=%K", f"--job={self.array_id}"]
        said = subprocess.run(
            command, capture_output=True, text=True, check=False
        ).stdout  # fails when all are forgotten
        return {int(word) for word in said.split()}

    def states(self) -> dict[int, str]:
        """Return how each task ended, in SLURM's words."""
        command = ["scontrol", "--oneliner", "show", "job", self.array_id]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return {int(n): state for n, state in re.findall(r"ArrayTaskId=(\d+) .*?JobState=(\w+)", said)}

    def log(self, task: int) -> str:
        """Return what a task has printed."""
        return (self.folder / f"task-{task}.log").read_text()


def program(path: Path, body: str) -> str:
    """Write a shell script that can be run, and return its path."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def task_of(worker: str) -> int:
    """Return the array task in which a worker runs, by its name: user, SLURM job, array task, UUID."""
    return int(worker.rsplit("-", 2)[1])
