"""`headgate jobqueue work` and `reserve`: any command as a worker of a job queue."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headgate.cli.output import console
from headgate.core.errors import InvalidInputError
from headgate.jobqueue.worker import (
    CommandJobs,
    CommandRules,
    JobQueueClient,
    ReserveMode,
    Worker,
    release_from_environment,
    reserve_from_environment,
)

_Names = tuple[str, ...]


def work(
    *,
    command: Annotated[str, Parameter(help="Program and arguments, quoted as for a shell; none is started.")],
    url: Annotated[
        str | None, Parameter(help="The job queue's server; also HEADGATE_JOBQUEUE_URL, with HEADGATE_JOBQUEUE_TOKEN.")
    ] = None,
    count: Annotated[int, Parameter(help="Jobs at a time.")] = 1,
    teams: Annotated[_Names, Parameter(negative="", help="Only jobs of this team; may be repeated.")] = (),
    tasks: Annotated[_Names, Parameter(negative="", help="Only jobs of this task; may be repeated.")] = (),
    pools: Annotated[_Names, Parameter(negative="", help="Only jobs of this pool; may be repeated.")] = (),
    reserve: Annotated[
        ReserveMode,
        Parameter(help="ask: the command asks for its policy server when it has loaded; before: it starts with one."),
    ] = ReserveMode.ASK,
    timeout: Annotated[
        float | None, Parameter(help="Seconds after which an attempt is stopped and has failed.")
    ] = None,
    grace: Annotated[float, Parameter(help="Seconds between SIGTERM and SIGKILL for a command that must stop.")] = 10.0,
    results_dir: Annotated[
        Path | None, Parameter(help="Write results here, too: TEAM/metrics/TASK_INSTANCE.json, with provenance.")
    ] = None,
    log_dir: Annotated[
        Path | None, Parameter(help="Keep what commands print here, a file for each claim: JOB.EPOCH.log.")
    ] = None,
    stop_when_empty: Annotated[bool, Parameter(negative="", help="End when there is nothing to do.")] = False,
    idle_exit: Annotated[float | None, Parameter(help="End after so many seconds without a job.")] = None,
    max_jobs: Annotated[int | None, Parameter(help="End after so many jobs.")] = None,
    lease: Annotated[
        float, Parameter(help="Seconds after which the jobs of a worker that died go on (10..3600).")
    ] = 90,
    name: Annotated[
        str | None, Parameter(help="Name of the worker, unique; by default of user, SLURM job or host, and a UUID.")
    ] = None,
) -> int:
    """Work on a job queue's jobs by running a command for each.

    The command finds its job in the file HEADGATE_JOB_FILE and writes its result, a JSON object, to the file
    HEADGATE_RESULT_FILE. Exit status 0 and a result complete the job; everything else fails the attempt, and the end of
    what was printed is kept with the job. A job with a pool needs a policy server: `headgate jobqueue reserve`, within
    the command, waits for it and prints where it is.

    When its lease is lost, the command's whole process group is stopped. SIGTERM stops it too, gives the job back
    without blame and ends the worker with status 143.
    """
    rules = CommandRules(_words(command), reserve, timeout, grace, results_dir, log_dir)
    if count < 1 or not 10 <= lease <= 3600 or (max_jobs is not None and max_jobs < 1):
        raise InvalidInputError(
            f"--count and --max-jobs must be >= 1 and --lease in 10..3600 (got {count}, {max_jobs} and {lease:g})"
        )

    async def run() -> None:
        async with (
            JobQueueClient(url) as client,
            Worker(
                client,
                name=name,
                lease_s=lease,
                count=count,
                stop_s=grace,
                teams=teams or None,
                tasks=tasks or None,
                pools=pools or None,
            ) as worker,
        ):
            _say(f"worker {worker.name} at {client.address.url}")
            await worker.run(
                CommandJobs(rules), stop_when_empty=stop_when_empty, idle_s=idle_exit, max_jobs=max_jobs
            )  # fmt: skip

    asyncio.run(run())
    return 0


def reserve(
    *,
    timeout: Annotated[
        float | None, Parameter(help="Seconds to wait at most; without it, as long as it takes.")
    ] = None,
    release: Annotated[
        bool, Parameter(negative="", help="Give the policy server back before the command ends.")
    ] = False,
) -> int:
    """Wait for the policy server of the job whose command this runs in, and print it as one line of JSON.

    Call it when the simulator is loaded: until then another job uses the server. Called again, it prints the same
    one. The server is the job's until the command ends.
    """
    if release:
        release_from_environment()
        return 0
    server = dataclasses.asdict(reserve_from_environment(timeout))
    sys.stdout.write(json.dumps(server) + "\n")
    return 0


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise InvalidInputError(
            f"--command cannot be split into words: {error}", next_step="Check its quotation marks."
        ) from None


def _say(line: str) -> None:
    console(stderr=True).print(line, highlight=False, markup=False)
