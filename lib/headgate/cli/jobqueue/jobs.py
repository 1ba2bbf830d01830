"""`headgate jobqueue status|jobs|show|dead|requeue|withdraw|resources|drain|open|remove`: watch and steer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Annotated, Any, Final, TypeVar

from cyclopts import Parameter
from pydantic import BaseModel
from rich.console import Group
from rich.table import Table

from headgate.cli.live import watched
from headgate.cli.output import (
    AsJson,
    QueueUrl,
    console,
    counted,
    drawn_table,
    print_json,
    print_rows,
    print_table,
    say,
    tell,
    utc_time,
)
from headgate.core.errors import InvalidInputError
from headgate.core.flaws import flaws_raised
from headgate.jobqueue import JobState
from headgate.jobqueue.wire import MOST_AT_ONCE, JobChoiceIn, JobOut, RequeueIn, WithdrawIn
from headgate.jobqueue.wire_servers import ResourceOut, StatisticsOut
from headgate.jobqueue.worker import RetryPolicy, SyncJobQueueClient
from headgate.telemetry import safe_text

_PATIENCE: Final = RetryPolicy(patience_s=5.0)
"""Short, so that a user at a terminal soon learns that the server is down."""

_ERROR_CHARS: Final = 120
_WATCH_EVERY_S: Final = 2.0
_SPARE: Final = ("since", "worker", "claims", "pool", "team", "task")
"""Columns of jobs that are dropped on a narrow terminal."""

_Server = Annotated[str, Parameter(help="The policy server: POOL/INDEX, as `headgate jobqueue resources` shows it.")]
_Reason = Annotated[str, Parameter(help="Why, for the history.")]
_Team = Annotated[str | None, Parameter(help="Only jobs of this team.")]
_Task = Annotated[str | None, Parameter(help="Only jobs of this task.")]
_Limit = Annotated[int | None, Parameter(help="Maximum number of rows; by default 100, and all with --json; 0: all.")]
_TABLE_ROWS: Final = 100
_Lanes = Annotated[int, Parameter(help="Maximum number of rows of teams and tasks; 0: all. --json has all of them.")]
Choice = TypeVar("Choice", bound=JobChoiceIn)


def status(
    *,
    limit: _Lanes = _TABLE_ROWS,
    url: QueueUrl = None,
    watch: Annotated[bool, Parameter(help="Refresh every two seconds, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> int:
    """Show jobs by state, teams by tasks with the most pending jobs first, and pools of policy servers."""
    if limit < 0:
        raise InvalidInputError(f"--limit must be >= 0 (got {limit})")
    if watch and as_json:
        raise InvalidInputError("--watch shows tables; it cannot be combined with --json")
    with _client(url) as client:
        if watch:
            return watched(lambda: _tables(client.statistics(), limit), _WATCH_EVERY_S)
        found = client.statistics()
    if as_json:
        print_json(_document(found))
    else:
        console().print(_tables(found, limit))
    return 0


def jobs(
    *,
    state: Annotated[JobState | None, Parameter(help="Only jobs in this state.")] = None,
    team: _Team = None,
    task: _Task = None,
    pool: Annotated[str | None, Parameter(help="Only jobs of this pool.")] = None,
    limit: _Limit = None,
    url: QueueUrl = None,
    as_json: AsJson = False,
) -> int:
    """List jobs in the order of their submission, with the result or the last error of each."""
    if limit is None:
        limit = 0 if as_json else _TABLE_ROWS
    if limit < 0:
        raise InvalidInputError(f"--limit must be >= 0 (got {limit})")
    with _client(url) as client:
        every = client.all_jobs(state=state, team=team, task=task, pool=pool)
        found = list(islice(every, limit + 1 if limit else None))
    is_cut, found = 0 < limit < len(found), found[: limit or None]
    if as_json:
        print_json([_document(job) for job in found])
        return 0
    rows = [
        {
            "job": j.id, "state": j.state.value, "team": j.team, "task": j.task, "instance": j.instance, "pool": j.pool,
            "claims": str(j.epoch), "failures": str(j.failures or ""), "worker": j.worker,
            "since": utc_time(j.finished_at or j.claimed_at or j.submitted_at) or "", "result": _outcome(j),
        }
        for j in found
    ]  # fmt: skip
    used = [name for name in (rows[0] if rows else ()) if any(row[name] for row in rows)]
    shown = [{name: row[name] for name in used} for row in rows]
    more = ", the first ones: --limit 0 lists all" if is_cut else ""
    title = f"{counted(len(found), 'job')}{more}"
    print_rows(title, shown, names=frozenset(used) - {"claims", "failures"}, spare=_SPARE)
    if not rows:
        say(title)
    return 0


def show(
    job: Annotated[str, Parameter(help="Id of the job.")], *, url: QueueUrl = None, as_json: AsJson = False
) -> int:  # fmt: skip
    """Show one job: what was submitted, where it stands, and everything that happened to it."""
    with _client(url) as client:
        found, happened = client.job(job), client.job_history(job).entries
    if as_json:
        print_json({**_document(found), "history": [_document(entry) for entry in happened]})
        return 0
    times = {name: utc_time(getattr(found, name)) for name in ("submitted_at", "claimed_at", "finished_at")}
    fields = [(name, value) for name, value in {**_document(found), **times}.items() if value not in ("", None)]
    print_table(f"job {found.id}", ("field", "value"), fields)
    columns = ("when", "what", "claim", "worker", "server", "note")
    rows = [
        (utc_time(e.at), e.what, e.epoch or None, e.worker or None, e.resource_id or None, _short(e.note))
        for e in happened
    ]
    print_table(counted(len(happened), "entry", "entries"), columns, rows, right=(2,))
    return 0


def dead(
    *, team: _Team = None, task: _Task = None, limit: _Limit = None, url: QueueUrl = None, as_json: AsJson = False
) -> int:  # fmt: skip
    """List dead jobs with their last error; `headgate jobqueue requeue` lets workers try them again."""
    return jobs(state=JobState.DEAD, team=team, task=task, limit=limit, url=url, as_json=as_json)


def requeue(
    *job_ids: Annotated[str, Parameter(help="Ids of dead jobs.")],
    team: _Team = None,
    task: _Task = None,
    every: Annotated[bool, Parameter(name="--all", help="All jobs that failed.")] = False,
    withdrawn: Annotated[bool, Parameter(help="Jobs that were withdrawn, too.")] = False,
    url: QueueUrl = None,
    as_json: AsJson = False,
) -> int:
    """Let workers try dead jobs again, with a full set of attempts: those named, those of a team or task, or all.

    Jobs that were withdrawn stay dead unless they are named, or --withdrawn is.
    """
    if not (job_ids or team or task or every):
        raise InvalidInputError("no job is named", next_step="Name jobs, --team, --task, or --all.")
    request = _choice(RequeueIn, job_ids, team=team, task=task, withdrawn=withdrawn)
    with _client(url) as client:
        requeued = _in_parts(lambda: client.requeue(request).requeued, is_named=bool(job_ids))
    return tell({"requeued": requeued}, f"{counted(len(requeued), 'job')} pending again", as_json=as_json)


def withdraw(
    *job_ids: Annotated[str, Parameter(help="Ids of pending or running jobs.")],
    team: _Team = None,
    task: _Task = None,
    reason: _Reason = "",
    url: QueueUrl = None,
    as_json: AsJson = False,
) -> int:
    """Withdraw jobs, those named or all of a team or task that have not ended; they are then dead.

    Workers that run them stop at their next heartbeat. If jobs are named, all of them are withdrawn or none.
    """
    if bool(job_ids) == bool(team or task):
        raise InvalidInputError(
            "withdraw takes ids of jobs, or --team and --task",
            next_step="Name jobs or a team; `headgate jobqueue jobs` lists them.",
        )
    request = _choice(WithdrawIn, job_ids, team=team, task=task, reason=reason)
    with _client(url) as client:
        withdrawn = _in_parts(lambda: client.withdraw_many(request).withdrawn, is_named=bool(job_ids))
    return tell({"withdrawn": withdrawn}, f"{counted(len(withdrawn), 'job')} withdrawn", as_json=as_json)


def _choice(kind: type[Choice], job_ids: Sequence[str], **more: Any) -> Choice:
    with flaws_raised(kind, InvalidInputError):
        return kind(job_ids=list(job_ids) or None, **more)


def _in_parts(ask: Callable[[], list[str]], *, is_named: bool) -> list[str]:
    """Return the jobs of as many requests as are needed: one request changes at most `MOST_AT_ONCE` of them."""
    done = part = ask()
    while not is_named and len(part) == MOST_AT_ONCE:
        part = ask()
        done = done + part
    return done


def resources(
    *,
    pool: Annotated[str | None, Parameter(help="Only servers of this pool.")] = None,
    url: QueueUrl = None,
    as_json: AsJson = False,
) -> int:
    """List the policy servers, with the pools that name each and the job that uses it."""
    with _client(url) as client:
        found = [one for one in client.resources() if pool is None or pool in one.pools]
    if as_json:
        print_json([_document(one) for one in found])
        return 0
    rows = [
        (
            r.resource_id, f"{r.host}:{r.port}", ", ".join(r.pools), r.state, _rules(r), r.job_id, r.worker,
            utc_time(r.reserved_at), r.note,
        )
        for r in found
    ]  # fmt: skip
    columns = ("server", "address", "pools", "state", "tasks", "job", "worker", "since", "note")
    print_table(counted(len(found), "policy server"), columns, rows)
    return 0


def drain(server: _Server, *, reason: _Reason = "", url: QueueUrl = None, as_json: AsJson = False) -> int:
    """Stop assigning a policy server; the job that uses it finishes."""
    with _client(url) as client:
        return _shown(client.drain(*_place(server), reason), as_json=as_json)


def open_(server: _Server, *, reason: _Reason = "", url: QueueUrl = None, as_json: AsJson = False) -> int:
    """Assign a policy server again; the job that waits longest for it gets it at once."""
    with _client(url) as client:
        return _shown(client.open(*_place(server), reason), as_json=as_json)


def remove(
    server: _Server,
    *,
    force: Annotated[bool, Parameter(help="Remove it even while a job uses it; its worker then stops.")] = False,
    url: QueueUrl = None,
    as_json: AsJson = False,
) -> int:
    """Remove a policy server, for all pools that name it."""
    with _client(url) as client:
        client.remove(*_place(server), force=force)
    return tell({"removed": server}, f"{server} removed", as_json=as_json)


def _tables(statistics: StatisticsOut, limit: int) -> Group:
    states = [state.value for state in JobState]
    whole = [*(statistics.jobs.get(state, 0) for state in JobState), statistics.workers, statistics.waiting_claims]
    tables: list[Table | str] = [drawn_table("jobs", [*states, "workers", "waiting claims"], [whole], right=range(6))]
    if statistics.lanes:
        busiest = sorted(statistics.lanes, key=lambda lane: (-lane.pending, -lane.in_progress))
        lanes = [
            (
                lane.team, lane.task, lane.pool or None, lane.pending, lane.in_progress, lane.done, lane.dead,
                "" if lane.is_served or not lane.pending else "no open server serves it",
            )
            for lane in busiest[: limit or None]
        ]  # fmt: skip
        columns = ["team", "task", "pool", *states, "note"]
        tables.append(drawn_table("jobs by team and task", columns, lanes, right=range(3, 7)))
        if hidden := [lane.pending for lane in busiest[len(lanes) :]]:
            more = f"{counted(len(hidden), 'more row')} with {counted(sum(hidden), 'pending job')}"
            tables.append(f"{more}: --limit 0 shows all, --json too")
    if statistics.pools:
        pools = [(p.pool, p.servers, p.busy, p.free, p.draining, p.down, p.waiting) for p in statistics.pools]
        columns = ["pool", "servers", "busy", "free", "draining", "down", "waiting jobs"]
        tables.append(drawn_table("policy servers by pool", columns, pools, right=range(1, 7)))
    return Group(*tables)


def _client(url: str | None) -> AbstractContextManager[SyncJobQueueClient]:
    return SyncJobQueueClient(url, retry=_PATIENCE)


def _place(server: str) -> tuple[str, int]:
    pool, _, index = server.rpartition("/")
    if not pool or not (index.isascii() and index.isdecimal()) or len(index) > 9:
        raise InvalidInputError(
            f"a policy server is named POOL/INDEX (got {server!r})",
            next_step="`headgate jobqueue resources` lists them.",
        )
    return pool, int(index)


def _shown(resource: ResourceOut, *, as_json: bool) -> int:
    used = f"; job {resource.job_id} uses it" if resource.job_id else ""
    return tell(_document(resource), f"{resource.resource_id} is {resource.state}{used}", as_json=as_json)


def _document(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json")


def _outcome(job: JobOut) -> str:
    """Return the outcome of a job, on one line."""
    result = job.result or {}
    if "exit_status" in result:
        last = str(result.get("output", "")).rpartition("\n")[2]
        return _short(f"exit {result['exit_status']}: {last}" if last else f"exit {result['exit_status']}")
    return _short(json.dumps(result) if result else job.last_error)


def _rules(resource: ResourceOut) -> str:
    """Return the tasks that a server serves, as registered."""
    only, never = (_names(resource.resource.get(key)) for key in ("compatible_task", "not_compatible_task"))
    return "; ".join(part for part in (only or "all", f"not {never}" if never else "") if part)


def _names(value: object) -> str:
    match value:
        case str():
            return value
        case list():
            return ", ".join(map(str, value))
        case _:
            return ""


def _short(text: str) -> str:
    return safe_text(" ".join(text.split()), limit_chars=_ERROR_CHARS)
