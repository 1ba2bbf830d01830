"""`headgate jobqueue generate|import|export|results`: read jobs from files, and write them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from headgate.cli.output import AsJson, QueueUrl, counted, print_json, print_table, say
from headgate.core.errors import InvalidInputError, some_of
from headgate.jobqueue import ImportedJob, Instant, Job, ResourceSpec, Store
from headgate.jobqueue.generator import (
    COLUMNS,
    DEFAULT_TOP,
    Generation,
    ResultFolder,
    Rules,
    Taken,
    as_csv,
    compared,
    contents_of,
    contents_of_server,
    evaluations_of_jobs,
    generated_from,
    imported_jobs,
    json_bytes,
    legacy_documents,
    put_into,
    read_instances,
    read_json,
    read_submissions,
    resources_of,
    send,
    write_files,
)
from headgate.jobqueue.stores import open_store
from headgate.jobqueue.worker import JobQueueClient

_say = partial(say, stderr=True)

_JOBS: Final = Path("jobs.json")
_RESOURCES: Final = Path("resources.json")
_SHOWN: Final = 5

SubmissionsDir = Annotated[Path, Parameter(help="Folder with a .json file per submission.")]
InstancesDir = Annotated[Path, Parameter(help="Folder with a folder per task, files TASK/*_template-tro_state.json.")]
ResultsDir = Annotated[
    Path | None, Parameter(help="Folder of results, TEAM/metrics/TASK_INSTANCE.json. Default: no results.")
]
Database = Annotated[
    str | None, Parameter(help="Instead of --url: a database that no server uses, sqlite:///path or postgresql://….")
]
_DEFAULT_SUBMISSIONS: Final = Path("challenge_submissions")
_DEFAULT_INSTANCES: Final = Path("test_instances")


def generate(
    *,
    submissions_dir: SubmissionsDir = _DEFAULT_SUBMISSIONS,
    test_instances_dir: InstancesDir = _DEFAULT_INSTANCES,
    resources_raw_file: Annotated[Path, Parameter(help="Policy servers of each team, by its slug.")] = Path(
        "resources-raw.json"
    ),
    results_dir: ResultsDir = None,
    jobs_file: Annotated[Path, Parameter(help="Where the jobs are written.")] = _JOBS,
    resources_file: Annotated[Path, Parameter(help="Where the policy servers are written.")] = _RESOURCES,
    top: Annotated[int, Parameter(help="Number of submissions of each track to evaluate.")] = DEFAULT_TOP,
    all_tasks_team: Annotated[
        tuple[str, ...],
        Parameter(help="Team (slug) to evaluate on tasks without a score, too; may be repeated."),
    ] = (),
    legacy_groups: Annotated[
        bool,
        Parameter(help="Write groups TEAM_N, which the legacy protocol needs, instead of a pool per team."),
    ] = False,
    unserved_too: Annotated[bool, Parameter(help="Include jobs that none of the team's servers takes yet.")] = False,
    dry_run: Annotated[bool, Parameter(help="Show what would be generated, and write nothing.")] = False,
    url: Annotated[
        str | None, Parameter(help="Send jobs and policy servers to this server instead of writing files.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Generate a challenge's jobs and pools from submissions, test instances and a file of policy servers.

    There is a job for each instance without a result of each task for which a team reports a score above 0. The same
    files give the same bytes. To add jobs of your own, use `headgate jobqueue add` or `import`.
    """
    rules = Rules(top, frozenset(all_tasks_team), legacy_groups=legacy_groups, unserved_too=unserved_too)
    made = generated_from(submissions_dir, test_instances_dir, resources_raw_file, results_dir, rules)
    taken: Taken | None = None
    files = {
        resources_file: json_bytes(made.resources_document()),
        jobs_file: json_bytes(made.jobs_document()),
    }
    if url is not None:
        jobs = made.job_specs()
        files = {}
        if not dry_run:
            taken = asyncio.run(send(JobQueueClient(url), jobs, made.resource_specs()))
    elif not dry_run:
        write_files(files)
    if as_json:
        outcome = {
            "files": [] if dry_run else [str(path) for path in files],
            "sent": None if taken is None else asdict(taken),
        }
        print_json(_generation_document(made) | outcome)
        return 0
    _print_generation(made)
    if dry_run:
        _say("nothing was written or sent: --dry-run")
    elif taken is not None:
        _say_taken(taken)
    else:
        _say(f"wrote {' and '.join(str(path) for path in files)}")
    return 0


def import_(
    *,
    jobs_file: Annotated[Path | None, Parameter(help="Jobs, as `generate` and `export` write them.")] = None,
    resources_file: Annotated[Path | None, Parameter(help="Policy servers by pool.")] = None,
    url: QueueUrl = None,
    database: Database = None,
    as_json: AsJson = False,
) -> int:
    """Import jobs and policy servers from files: `jobs.json` and `resources.json` unless one of them is named.

    Jobs that are not done become pending. With --database, done jobs stay done; with --url they are left out. Importing
    a file again changes nothing. A server is identified by host and port: one that several pools name is one server.
    Groups TEAM_N of a team become one pool, for which both files are read together.
    """
    jobs, servers = _read_files(jobs_file, resources_file)
    if database is not None:
        at = Instant(time.monotonic(), time.time())
        taken = put_into(_store(database, url), jobs, servers, at, "headgate jobqueue import")
        done = 0
    else:
        open_jobs = [job.spec for job in jobs if not job.is_done]
        done = len(jobs) - len(open_jobs)
        taken = asyncio.run(send(JobQueueClient(url), open_jobs, servers))
    if as_json:
        print_json(asdict(taken) | {"done_left_out": done})
        return 0
    _say_taken(taken)
    if done:
        _say(f"{counted(done, 'done job')} left out")
    return 0


def export(
    *,
    jobs_file: Annotated[Path, Parameter(help="Where the jobs are written.")] = _JOBS,
    resources_file: Annotated[Path, Parameter(help="Where the policy servers are written.")] = _RESOURCES,
    url: QueueUrl = None,
    database: Database = None,
    as_json: AsJson = False,
) -> int:
    """Export a queue's jobs and policy servers to files, which `import` reads as the same queue."""
    jobs, resources = _contents(database, url, "export")
    jobs_document, resources_document = legacy_documents(jobs, resources)
    write_files({resources_file: json_bytes(resources_document), jobs_file: json_bytes(jobs_document)})
    servers = len({resource.address for resource in resources})
    if as_json:
        print_json({"jobs": len(jobs), "servers": servers, "files": [str(jobs_file), str(resources_file)]})
    else:
        _say(f"{counted(len(jobs), 'job')}: {jobs_file}; {counted(servers, 'policy server')}: {resources_file}")
    return 0


def results(
    *,
    submissions_dir: SubmissionsDir = _DEFAULT_SUBMISSIONS,
    test_instances_dir: InstancesDir = _DEFAULT_INSTANCES,
    results_dir: Annotated[
        Path | None, Parameter(help="Folder of results; without it, the results in the queue.")
    ] = None,
    url: QueueUrl = None,
    database: Database = None,
    team: Annotated[tuple[str, ...], Parameter(help="Only this team (slug); may be repeated.")] = (),
    output: Annotated[Path | None, Parameter(name=("--output", "-o"), help="Output file. Default: stdout.")] = None,
    as_json: AsJson = False,
) -> int:
    """Compare the scores that teams report with evaluated ones, as CSV with a row per team and task."""
    submissions, instances = read_submissions(submissions_dir), read_instances(test_instances_dir)
    folder = None if results_dir is None else ResultFolder(results_dir)
    evaluation_of = folder.evaluation if folder else evaluations_of_jobs(_contents(database, url, "results")[0])
    rows = compared(submissions, instances, evaluation_of, team)
    if as_json:
        print_json([{name: getattr(row, name) for name in COLUMNS} for row in rows])
    elif output is not None:
        write_files({output: as_csv(rows).encode()})
        _say(f"{counted(len(rows), 'row')}: {output}")
    else:
        sys.stdout.write(as_csv(rows))
    for path in folder.unreadable if folder else ():
        _say(f"ignored, as it is truncated JSON: {path}")
    return 0


def _read_files(jobs_file: Path | None, resources_file: Path | None) -> tuple[list[ImportedJob], list[ResourceSpec]]:
    if jobs_file is None and resources_file is None:
        jobs_file, resources_file = _JOBS, _RESOURCES
    jobs = [] if jobs_file is None else imported_jobs(read_json(jobs_file, "file of jobs"), str(jobs_file))
    if resources_file is None:
        return jobs, []
    document = read_json(resources_file, "file of policy servers")
    return jobs, resources_of(document, (job.spec for job in jobs), str(resources_file))


def _contents(database: str | None, url: str | None, command: str) -> tuple[list[Job], list[ResourceSpec]]:
    if database is not None:
        return contents_of(_store(database, url), f"headgate jobqueue {command}")
    return asyncio.run(contents_of_server(JobQueueClient(url)))


def _store(database: str, url: str | None) -> Store:
    if url is not None:
        raise InvalidInputError("--url and --database name two queues", next_step="Give one of them.")
    if database.strip() in {"memory:", "memory://"}:
        raise InvalidInputError("memory: would be empty after this command", next_step="Name a database on disk.")
    return open_store(database)


def _generation_document(made: Generation) -> dict[str, Any]:
    jobs = Counter(job.team for job in made.jobs)
    return {
        "jobs": len(made.jobs),
        "submissions": [
            {"file": one.file, "track": one.track, "team": one.slug, "q_score": one.q_score} for one in made.submissions
        ],
        "teams": [
            {"team": team.slug, "name": team.team, "tasks": len(team.tasks), "jobs": jobs[team.slug]}
            for team in made.teams
        ],
        "skipped": [asdict(one) for one in made.skipped],
        "servers": {name: len(listed) for name, listed in made.servers.items()},
        "ignored_files": made.ignored,
        "unreadable_results": made.unreadable,
    }


def _print_generation(made: Generation) -> None:
    jobs = Counter(job.team for job in made.jobs)
    tasks = {team.slug: len(team.tasks) for team in made.teams}
    rows = [(one.track, one.team, one.slug, one.q_score, tasks[one.slug], jobs[one.slug]) for one in made.submissions]
    title = f"{counted(len(made.jobs), 'job')} of {counted(len(made.submissions), 'submission')}"
    print_table(title, ("track", "team", "slug", "q_score", "tasks", "jobs"), rows, right=(3, 4, 5))
    of_kind = Counter(job.resource_type for job in made.jobs)
    pools = [(name, len(listed), of_kind[name]) for name, listed in made.servers.items()]
    print_table("policy servers by pool", ("pool", "servers", "jobs"), pools, right=(1, 2))
    if made.skipped:
        _print_skipped(made)
    for what, names in (
        ("ignored, as it is not named like a test instance", made.ignored),
        ("evaluated again, as its result is truncated JSON", made.unreadable),
    ):
        for name in names[:_SHOWN]:
            _say(f"{what}: {name}")
        if len(names) > _SHOWN:
            _say(f"and {len(names) - _SHOWN} more")


def _print_skipped(made: Generation) -> None:
    kinds = dict.fromkeys((one.team, one.reason) for one in made.skipped)
    rows = []
    for team, reason in kinds:
        alike = [one for one in made.skipped if (one.team, one.reason) == (team, reason)]
        names = ", ".join(one.task for one in alike[:_SHOWN]) + (", …" if len(alike) > _SHOWN else "")
        rows.append((team, reason, len(alike), sum(one.jobs for one in alike), names))
    print_table("not generated", ("team", "why", "tasks", "jobs", ""), rows, right=(2, 3))


def _say_taken(taken: Taken) -> None:
    _say(f"jobs: {taken.added} added, {taken.existing} there already; policy servers: {taken.servers} registered")
    if taken.unserved:
        _say(f"{counted(taken.unserved, 'job')} cannot start: no policy server of their pool takes their task")
    if taken.others:
        _say(f"not in the file, and still assigned until `jobqueue remove`: {some_of(taken.others, _SHOWN)}")
