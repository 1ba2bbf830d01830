"""`headgate jobqueue add`, `work` and `reserve`: commands as jobs, and any command as a worker."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headgate.cli.output import AsJson, QueueUrl, counted, print_json, say
from headgate.core.errors import InvalidInputError
from headgate.jobqueue import DEFAULT_MAX_ATTEMPTS, NAME_CHARS, JobSpec, id_prefix, object_text
from headgate.jobqueue.worker import (
    COMMAND_TASK,
    CommandJobs,
    CommandRules,
    HeldJob,
    JobQueueClient,
    ReserveMode,
    SyncJobQueueClient,
    Worker,
    release_from_environment,
    reserve_from_environment,
)

_say = partial(say, stderr=True)

_Names = tuple[str, ...]
_Work = Callable[[HeldJob], Awaitable[None]]
_LINE = "{}"


def add(
    *command: Annotated[str, Parameter(help="After `--`: program and arguments; {} stands for a line of the input.")],
    id_: Annotated[
        str | None,
        Parameter(
            name="--id",
            help="Id of the job, with {} for the line; by default TEAM.HASH, of team and command.",
        ),
    ] = None,
    team: Annotated[str, Parameter(help="Team that the jobs count for.")] = "default",
    priority: Annotated[int, Parameter(help="Higher ones go first.")] = 0,
    max_attempts: Annotated[int, Parameter(help="Failures after which a job is dead.")] = DEFAULT_MAX_ATTEMPTS,
    url: QueueUrl = None,
    as_json: AsJson = False,
) -> int:
    """Add commands to a queue; workers started with `headgate jobqueue work --run-commands` run them.

    A command with {} is added once for each line of standard input, any other command once. Without a command, each
    line is one, quoted as for a shell; no shell is started. Adding a job again changes nothing.
    """
    jobs = [
        JobSpec(
            job_id, team, COMMAND_TASK, _shown(words), payload=object_text({"command": words}), priority=priority,
            max_attempts=max_attempts,
        )
        for job_id, words in _commands(command, id_, team)
    ]  # fmt: skip
    with SyncJobQueueClient(url) as server:
        answer = server.submit(jobs)
    if as_json:
        print_json({**answer.model_dump(), "ids": [job.job_id for job in jobs]})
        return 0
    known = f"; {answer.existing} there already: --id gives a command a new id, to run it again"
    _say(f"{counted(answer.added, 'job')} added{known if answer.existing else ''}")
    return 0


def work(
    *,
    command: Annotated[str | None, Parameter(help="Program and arguments, quoted as for a shell.")] = None,
    run_commands: Annotated[bool, Parameter(help="Run the command that each job carries.")] = False,
    samples: Annotated[bool, Parameter(help="Take the samples that campaigns hand out.")] = False,
    roster: Annotated[
        str | None,
        Parameter(help="With --samples: the models to ask, with their addresses and keys; no other address is asked."),
    ] = None,
    url: QueueUrl = None,
    count: Annotated[int, Parameter(help="Jobs at a time.")] = 1,
    team: Annotated[_Names, Parameter(help="Only jobs of this team; may be repeated.")] = (),
    task: Annotated[_Names, Parameter(help="Only jobs of this task; may be repeated.")] = (),
    pool: Annotated[_Names, Parameter(help="Only jobs of this pool; may be repeated.")] = (),
    reserve: Annotated[
        ReserveMode,
        Parameter(help="ask: the command requests its policy server once it has loaded; before: it starts with one."),
    ] = ReserveMode.ASK,
    timeout_s: Annotated[float | None, Parameter(help="Longest time for an attempt; it then fails.")] = None,
    grace_s: Annotated[float, Parameter(help="Time between SIGTERM and SIGKILL for a command that must stop.")] = 10.0,
    results_dir: Annotated[Path | None, Parameter(help="Write results here: TEAM/metrics/TASK_NUMBER.json.")] = None,
    log_dir: Annotated[Path | None, Parameter(help="Keep the output of commands here: JOB.EPOCH.log.")] = None,
    stop_when_empty: Annotated[bool, Parameter(help="End when no job is pending.")] = False,
    idle_exit_s: Annotated[float | None, Parameter(help="End after this time without a job.")] = None,
    max_jobs: Annotated[int | None, Parameter(help="End after this many jobs.")] = None,
    lease_s: Annotated[float, Parameter(help="Others get a dead worker's jobs after this time (10..3600).")] = 90,
    worker: Annotated[str | None, Parameter(help="Unique name; by default user, SLURM job or host, UUID.")] = None,
) -> int:
    """Work on a queue's jobs: run commands, or take samples.

    With --command, every job runs the same command; no shell is started. With --run-commands, each job runs the command
    that it carries: anyone who may submit jobs then runs programs on this machine, as this user.

    The command finds its job in the file HEADGATE_JOB_FILE and writes its result, a JSON object, to the file
    HEADGATE_RESULT_FILE. Exit status 0 and a result complete the job; everything else fails the attempt, and the end of
    the output is kept with the job. A command that a job carries needs no result. A job with a pool needs a policy
    server: `headgate jobqueue reserve`, within the command, waits for it and prints where it is.

    With --samples, the worker itself plays the environment of each job and asks the endpoint that the job names,
    without a key. With --roster it asks the models of that file, with their keys, and no other address.

    When the lease is lost, the command's whole process group is stopped. SIGTERM also stops it, returns
    the job without counting an attempt, and ends the worker with status 143.
    """
    if (command is not None) + run_commands + samples != 1 or (roster and not samples):
        raise InvalidInputError(
            "a worker takes one of --command, --run-commands and --samples, and --roster with the last",
            next_step="Give --command 'python eval.py', or --run-commands for jobs that `headgate jobqueue add` made.",
        )
    if run_commands and task:
        raise InvalidInputError(f"--run-commands takes the jobs of task {COMMAND_TASK!r}; leave --task out")
    words = None if command is None else _words(command, "--command")
    rules = CommandRules(words, reserve, timeout_s, grace_s, results_dir, log_dir)
    if count < 1 or not 10 <= lease_s <= 3600 or (max_jobs is not None and max_jobs < 1):
        raise InvalidInputError(
            f"--count and --max-jobs must be >= 1 and --lease-s in 10..3600 (got {count}, {max_jobs} and {lease_s:g})"
        )

    async def run() -> None:
        async with (
            _work_of(rules, samples, roster) as jobs,
            JobQueueClient(url) as client,
            Worker(
                client,
                name=worker,
                lease_s=lease_s,
                count=count,
                stop_s=grace_s,
                teams=team or None,
                tasks=(COMMAND_TASK,) if run_commands else task or None,
                pools=pool or None,
            ) as working,
        ):
            _say(f"worker {working.name} at {client.address.url}")
            await working.run(jobs, stop_when_empty=stop_when_empty, idle_s=idle_exit_s, max_jobs=max_jobs)

    asyncio.run(run())
    return 0


@asynccontextmanager
async def _work_of(rules: CommandRules, samples: bool, roster: str | None) -> AsyncIterator[_Work]:
    """Yield the function that a worker calls with each job."""
    if not samples:
        yield CommandJobs(rules)
        return
    from headgate import run as runs  # noqa: PLC0415 - a worker that runs commands installs and loads little
    from headgate.config import load_settings  # noqa: PLC0415 - as above

    async with runs.sample_jobs(load_settings({"roster": roster}, environ=os.environ).settings) as jobs:
        yield jobs


def reserve(
    *,
    timeout_s: Annotated[float | None, Parameter(help="Longest wait; without it there is no limit.")] = None,
    release: Annotated[bool, Parameter(help="Give the policy server back now.")] = False,
) -> int:
    """Wait for the policy server of the job whose command this runs in, and print it as one line of JSON.

    Call it when the simulator is loaded: until then another job can use the server. Called again, it prints the
    same one. The server is the job's until the command ends.
    """
    if release:
        release_from_environment()
        return 0
    server = dataclasses.asdict(reserve_from_environment(timeout_s))
    sys.stdout.write(json.dumps(server) + "\n")
    return 0


def _commands(command: Sequence[str], id_: str | None, team: str) -> Iterator[tuple[str, list[str]]]:
    """Yield job ids and commands; a command that comes twice is two jobs, with the same ids whenever it is added."""
    seen: Counter[str] = Counter()
    for line in _lines() if not command or any(_LINE in word for word in command) else [""]:
        words = [word.replace(_LINE, line) for word in command] or _words(line, "the line")
        text = json.dumps([team, *words])
        seen[text] += 1
        own = sha256(f"{seen[text]} {text}".encode()).hexdigest()[:12]
        yield id_prefix(team) + own if id_ is None else id_.replace(_LINE, line), words


def _shown(words: Sequence[str]) -> str:
    return "".join(c if c.isprintable() else " " for c in shlex.join(words))[:NAME_CHARS]


def _lines() -> Iterator[str]:
    if sys.stdin.isatty():
        raise InvalidInputError(
            "no command is given",
            next_step="Write one after `--`, or pipe lines in: seq 3 | headgate jobqueue add -- echo {}",
        )
    yield from filter(None, map(str.strip, sys.stdin))


def _words(command: str, what: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise InvalidInputError(
            f"{what} cannot be split into words: {error} (got {command[:80]!r})", next_step="Check its quotation marks."
        ) from None
