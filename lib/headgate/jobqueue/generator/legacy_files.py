"""`jobs.json` and `resources.json` of the legacy protocol: read, and written so that they fit each other.

That protocol splits a team's servers into groups `{slug}_{n}` of equal constraints and binds a job to one of them.
Headgate matches jobs and servers when a job asks for one, so all servers of a team form one pool, and no group is idle
while jobs wait for another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat

from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.generator.json_files import Problems, shown, team_slug
from headgate.jobqueue.job import DEFAULT_MAX_ATTEMPTS, Job, JobSpec, JobState
from headgate.jobqueue.names import Name, NameOrEmpty, checked_object, name_problem, object_text, part_problem
from headgate.jobqueue.outcomes import ImportedJob
from headgate.jobqueue.resource import ResourceSpec

_HOST: Final = re.compile(r"(wss://)?[A-Za-z0-9._:\[\]-]+", re.ASCII)
_HOST_CHARS: Final = 253
_ONCE: Final = "a server serves one job at a time, so list it once"


def _checked_host(host: str) -> str:
    if len(host) > _HOST_CHARS or not _HOST.fullmatch(host):
        raise ValueError(
            f"must be a host name or address of 1 to {_HOST_CHARS} characters, without path or scheme except wss://"
        )
    return host


def _tasks(value: object) -> frozenset[str]:
    if value is None:
        return frozenset()
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        raise ValueError("must be the name of a task or a list of such names")  # noqa: TRY004 - pydantic's protocol
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"must list names of tasks (got {shown(name)})")  # noqa: TRY004 - pydantic's protocol
        if (problem := name_problem(name)) is not None:
            raise ValueError(f"names a task that breaks a rule: {problem} (got {shown(name)})")
    return frozenset(names)


def _some_tasks(value: object) -> frozenset[str]:
    if value == []:
        raise ValueError("must name at least one task; leave it out when the server takes every one")
    return _tasks(value)


class ExactServer(BaseModel):
    """Headgate's own record of a server where the name of its list says something else."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    pool: Name


class ServerEntry(BaseModel):
    """A policy server as files list it; all further fields except `headgate` are kept and passed on to workers."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    host: Annotated[str, AfterValidator(_checked_host)]
    port: Annotated[int, Field(ge=1, le=65_535)]
    compatible_task: Annotated[frozenset[str], BeforeValidator(_some_tasks)] = frozenset()
    not_compatible_task: Annotated[frozenset[str], BeforeValidator(_tasks)] = frozenset()
    headgate: ExactServer | None = None


def servers_of(
    document: object, source: str, pool_of: Callable[[str], str] = str
) -> dict[str, tuple[ResourceSpec, ...]]:
    """Return the servers under each name of a document, in its order.

    Args:
        document: name -> list of servers.
        source: the file, for messages.
        pool_of: returns the pool of the servers under a name, by default the name itself; an entry may name its own.

    Raises:
        InvalidJobError: listing every rule that the document breaks.
    """
    problems = Problems(source)
    found: dict[str, tuple[ResourceSpec, ...]] = {}
    if not isinstance(document, dict):
        problems.add("the document", "must be an object of lists of servers", document)
        document = {}
    for name, entries in document.items():
        if (problem := name_problem(name)) is not None:
            problems.add("the name of a list of servers", problem, name)
        elif not isinstance(entries, list) or not entries:
            problems.add(name, "must be a list of at least one server; leave the name out when it has none", entries)
        else:
            found[name] = _servers(name, entries, pool_of(name), problems)
    problems.refuse_if_any()
    return found


def servers_document(servers: Mapping[str, Iterable[ResourceSpec]]) -> dict[str, list[dict[str, Any]]]:
    """Return the document of named servers, each entry as it was registered."""
    return {name: [_server_entry(server) for server in listed] for name, listed in servers.items()}


def _server_entry(server: ResourceSpec) -> dict[str, Any]:
    """Return a server's entry in a file: as registered, completed by the ledger's values where it lacks them."""
    entry: dict[str, Any] = json.loads(server.body)
    if entry.get("compatible_task") == []:
        del entry["compatible_task"]  # means every task, which files express by leaving it out
    entry.setdefault("host", server.host)
    entry.setdefault("port", server.port)
    constraints = {"compatible_task": server.compatible_task, "not_compatible_task": server.not_compatible_task}
    for name, tasks in constraints.items():
        if tasks and not entry.get(name):
            entry[name] = sorted(tasks)
    return entry


def grouped(
    servers: Mapping[str, Sequence[ResourceSpec]], taken: Collection[str] = ()
) -> dict[str, tuple[ResourceSpec, ...]]:
    """Return servers in groups of equal constraints, named as in the legacy protocol: `{name}_{n}`, n from 1."""
    groups: dict[str, list[ResourceSpec]] = {}
    for name, listed in servers.items():
        free = (group for n in count(1) if (group := f"{name}_{n}") not in taken)
        names: dict[tuple[frozenset[str], frozenset[str]], str] = {}
        for server in listed:
            constraints = (server.compatible_task, server.not_compatible_task)
            group = names.get(constraints) or names.setdefault(constraints, next(free))
            groups.setdefault(group, []).append(replace(server, pool=group))
    return {group: tuple(listed) for group, listed in groups.items()}


def _servers(name: str, entries: list[Any], pool: str, problems: Problems) -> tuple[ResourceSpec, ...]:
    found: dict[tuple[str, int], ResourceSpec] = {}
    for position, entry in enumerate(entries):
        read = problems.checked(ServerEntry, entry, name, position)
        if read is None:
            continue
        try:
            body = object_text(checked_object({key: value for key, value in entry.items() if key != "headgate"}))
        except ValueError as error:
            problems.add(f"{name}[{position}]", str(error))
            continue
        spec = ResourceSpec(
            read.headgate.pool if read.headgate else pool,
            read.host,
            read.port,
            read.compatible_task,
            read.not_compatible_task,
            body,
        )
        if (before := found.setdefault(spec.address, spec)) is not spec:
            problems.add(f"{name}[{position}]", f"{_ONCE}: {before.host}:{before.port} is listed before it")
    return tuple(found.values())


UNNAMED: Final = "default"
"""Team or task of a job whose payload names none."""

Bound = TypeVar("Bound")

_GROUP: Final = re.compile(r"(?P<slug>.+)_[1-9][0-9]*", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of one pair of files.

    Attributes:
        users: resource type -> teams whose jobs name it.
        teams: all teams of the jobs.
        grouped: the teams whose jobs name groups of their own.
    """

    users: dict[str, set[str]]
    teams: frozenset[str]
    grouped: frozenset[str]

    def pool(self, resource_type: str) -> str:
        """Return the pool of a resource type: the team whose group it certainly is, else its own name."""
        matched = _GROUP.fullmatch(resource_type)
        if matched is None or (owner := matched["slug"]) not in self.teams:
            return resource_type
        users = self.users.get(resource_type)
        is_joined = users == {owner} if users else owner in self.grouped and resource_type not in self.teams
        return owner if is_joined else resource_type


def pools_of(jobs: Iterable[tuple[str, str]]) -> Pools:
    """Return the pools of jobs, each given as (resource type, team)."""
    users: dict[str, set[str]] = {}
    for resource_type, team in jobs:
        users.setdefault(resource_type, set()).add(team)
    for of_type in users.values():
        if len(of_type) > 1:
            of_type.discard(UNNAMED)  # a job without a team does not make a group shared
    grouped = {
        team
        for name, teams in users.items()
        for team in teams
        if (matched := _GROUP.fullmatch(name)) is not None and teams == {matched["slug"]}
    }
    return Pools(users, frozenset(team for teams in users.values() for team in teams), frozenset(grouped))


def fitting_groups(task: str, names: Iterable[str], groups: Mapping[str, Sequence[ResourceSpec]]) -> tuple[str, ...]:
    """Return those of the named groups whose servers take the task."""
    return tuple(name for name in names if any(server.serves(task) for server in groups[name]))


def bound_evenly(
    jobs: Sequence[tuple[Bound, Sequence[str]]], groups: Mapping[str, Sequence[ResourceSpec]]
) -> dict[Bound, str]:
    """Return a group for each job that fits one: jobs with few choices first, then the fewest jobs per server.

    Binding every job to the first group that fits would leave servers of later groups idle forever.
    """
    loads = dict.fromkeys(groups, 0)
    bound: dict[Bound, str] = {}
    for job, fitting in sorted(jobs, key=lambda pair: len(pair[1])):  # stable: earlier ones first among equals
        if not fitting:
            continue
        group = min(fitting, key=lambda name: loads[name] / len(groups[name]))
        loads[group] += 1
        bound[job] = group
    return bound


_DONE: Final = "done"
_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}", re.ASCII)


def _job_id(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str | None):
        raise ValueError("must be a whole number or text")  # noqa: TRY004 - pydantic's protocol
    text = str(value)
    if value is not None and (problem := part_problem(text)) is not None:
        raise ValueError(problem)
    return value


class JobPayload(BaseModel):
    """The fields of a payload that a queue uses; all others are only for the worker."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    team: str | None = None
    team_slug: NameOrEmpty | None = None
    task: NameOrEmpty | None = None
    instance_basename: NameOrEmpty | None = None

    @property
    def team_name(self) -> str:
        """The job's team."""
        return self.team_slug or team_slug(self.team or "") or UNNAMED


class ExactJob(BaseModel):
    """Headgate's own record of a job where the other fields of its entry say less, or something else.

    Attributes:
        added: fields of the payload that were added only for other programs.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    team: Name
    task: Name
    instance: NameOrEmpty
    pool: NameOrEmpty
    resource_type: NameOrEmpty
    added: list[str]


class JobEntry(BaseModel):
    """A job as `jobs.json` lists it; `priority`, `max_attempts` and `headgate` are Headgate's additions."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    id: Annotated[Any, AfterValidator(_job_id)] = None
    payload: dict[str, Any] = Field(default_factory=dict)
    resource_type: NameOrEmpty
    status: str = "pending"
    assigned_to: NameOrEmpty | None = None
    assigned_at: FiniteFloat | None = None
    last_heartbeat: FiniteFloat | None = None
    attempts: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    max_attempts: Annotated[int, Field(ge=1, le=1000)] = DEFAULT_MAX_ATTEMPTS
    headgate: ExactJob | None = None


def imported_jobs(document: object, source: str = "jobs.json") -> list[ImportedJob]:
    """Return the jobs of a document, in its order: done ones stay done, all others become pending.

    A job without an id gets its position in the list. Groups of one team's servers (`{slug}_{n}`) become one pool.

    Raises:
        InvalidJobError: listing every rule that the document breaks.
    """
    problems = Problems(source)
    if not isinstance(document, list):
        problems.add("the document", "must be a list of jobs", document)
        document = []
    read: list[tuple[str, JobEntry, JobPayload]] = []
    positions: dict[str, int] = {}
    for position, given in enumerate(document):
        entry = problems.checked(JobEntry, given, position)
        if entry is None:
            continue
        job_id = str(position if entry.id is None else entry.id)
        if (other := positions.setdefault(job_id, position)) != position:
            problems.add(
                f"[{position}].id", f"{job_id} is also the id of [{other}]; a job without an id gets its position"
            )
        said = problems.checked(JobPayload, {} if entry.headgate else entry.payload, position, "payload")
        try:
            checked_object(entry.payload)
        except ValueError as error:
            problems.add(f"[{position}].payload", str(error))
        if said is not None:
            read.append((job_id, entry, said))
    problems.refuse_if_any()
    pools = pools_of((entry.resource_type, said.team_name) for _, entry, said in read if entry.headgate is None)
    return [_imported(job_id, entry, said, pools.pool(entry.resource_type)) for job_id, entry, said in read]


def jobs_document(jobs: Sequence[Job], types: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return `jobs.json` of jobs; `types` overrides their resource types by job id.

    Team, task and instance are added to the payload where it lacks them, as the file has no other place for them. A
    dead job stays dead in the file; both our server and the legacy protocol's retry everything that is not done. Where
    reading the file back would not give the same jobs, each entry holds the exact values under `headgate`.
    """
    entries = [_entry(job, (types or {}).get(job.job_id)) for job in jobs]
    try:
        is_plain = [job.spec for job in imported_jobs(entries)] == [job.spec for job in jobs]
    except InvalidJobError:
        is_plain = False
    if not is_plain:
        for entry, job in zip(entries, jobs, strict=True):
            spec, added = job.spec, sorted(entry["payload"].keys() - json.loads(job.spec.payload).keys())
            exact = ExactJob(
                team=spec.team, task=spec.task, instance=spec.instance, pool=spec.pool,
                resource_type=spec.resource_type, added=added,
            )  # fmt: skip
            entry["headgate"] = exact.model_dump()
    return entries


def _imported(job_id: str, entry: JobEntry, said: JobPayload, pool: str) -> ImportedJob:
    exact = entry.headgate or ExactJob(
        team=said.team_name, task=said.task or UNNAMED, instance=said.instance_basename or "", pool=pool,
        resource_type=entry.resource_type, added=[],
    )  # fmt: skip
    payload = {name: value for name, value in entry.payload.items() if name not in exact.added}
    spec = JobSpec(
        job_id, exact.team, exact.task, exact.instance, exact.pool, exact.resource_type, object_text(payload),
        entry.priority, entry.max_attempts,
    )  # fmt: skip
    return ImportedJob(spec, entry.status == _DONE, entry.attempts)


def _entry(job: Job, resource_type: str | None) -> dict[str, Any]:
    spec = job.spec
    entry = {
        "id": int(spec.job_id) if _NUMBER.fullmatch(spec.job_id) else spec.job_id,
        "payload": _payload(spec),
        "resource_type": spec.resource_type or spec.pool if resource_type is None else resource_type,
        "status": job.state.value,
        "assigned_to": job.worker or None,
        "assigned_at": job.claimed_at or None,
        "last_heartbeat": job.claimed_at if job.state is JobState.IN_PROGRESS else None,
        "attempts": job.epoch,
    }
    if spec.priority:
        entry["priority"] = spec.priority
    if spec.max_attempts != DEFAULT_MAX_ATTEMPTS:
        entry["max_attempts"] = spec.max_attempts
    return entry


def _payload(spec: JobSpec) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads(spec.payload)
    said = JobPayload.model_construct(
        **{name: payload[name] for name in JobPayload.model_fields if isinstance(payload.get(name), str)}
    )
    if said.team_name != spec.team:
        payload.setdefault("team_slug", spec.team)
    if (said.task or UNNAMED) != spec.task:
        payload.setdefault("task", spec.task)
    if (said.instance_basename or "") != spec.instance:
        payload.setdefault("instance_basename", spec.instance)
    return payload


def resources_of(document: object, jobs: Iterable[JobSpec] = (), source: str = "resources.json") -> list[ResourceSpec]:
    """Return the servers of a document, in its order.

    Args:
        document: resource type -> list of servers.
        jobs: those of the `jobs.json` beside it; they show which resource types are groups of one team's servers, which
            become one pool.
        source: the file, for messages.

    Raises:
        InvalidJobError: listing every rule that the document breaks.
    """
    pools = pools_of((job.resource_type, job.team) for job in jobs)
    problems = Problems(source)
    found: dict[tuple[str, tuple[str, int]], ResourceSpec] = {}
    for name, listed in servers_of(document, source, pools.pool).items():
        for server in listed:
            if found.setdefault((server.pool, server.address), server) is not server:
                rule = f"{server.host}:{server.port} is in another group of {server.pool} too; list it once"
                problems.add(name, rule)
    problems.refuse_if_any()
    return list(found.values())


def legacy_documents(
    jobs: Sequence[Job], resources: Iterable[ResourceSpec]
) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Return `jobs.json` and `resources.json` that fit each other, also for a server of the legacy protocol.

    A pool whose jobs name other resource types than the pool is split into groups `{pool}_{n}` again. A job keeps its
    group if that still takes its task, and otherwise gets the one with the fewest jobs per server. Where reading the
    files back would not give the same queue, their entries hold the exact values, so that it does.
    """
    servers_before = list(resources)
    by_pool = by_name_of_pool(servers_before)
    split = {job.spec.pool for job in jobs if job.spec.resource_type not in {"", job.spec.pool}} & by_pool.keys()
    others = by_pool.keys() | {job.spec.resource_type or job.spec.pool for job in jobs if job.spec.pool not in split}
    listed: dict[str, tuple[ResourceSpec, ...]] = {}
    pools: dict[str, str] = {}
    types: dict[str, str] = {}
    for pool, servers in by_pool.items():
        if pool not in split:
            listed[pool] = servers
            continue
        groups = grouped({pool: servers}, taken=others)
        listed |= groups
        pools |= dict.fromkeys(groups, pool)
        choices: list[tuple[str, Sequence[str]]] = []
        for spec in (job.spec for job in jobs if job.spec.pool == pool):
            fitting = fitting_groups(spec.task, groups, groups)
            choices.append((spec.job_id, (spec.resource_type,) if spec.resource_type in fitting else fitting))
        types |= bound_evenly(choices, groups)
    document = servers_document(listed)
    if not _is_read_as(document, jobs, servers_before):
        for name, entries in document.items():
            for entry in entries:
                entry["headgate"] = {"pool": pools.get(name, name)}
    return jobs_document(jobs, types), document


def _is_read_as(document: object, jobs: Sequence[Job], resources: Sequence[ResourceSpec]) -> bool:
    try:
        read = resources_of(document, (job.spec for job in jobs))
    except InvalidJobError:
        return False
    return {(one.pool, one.address) for one in read} == {(one.pool, one.address) for one in resources}


def by_name_of_pool(resources: Iterable[ResourceSpec]) -> dict[str, tuple[ResourceSpec, ...]]:
    """Return the servers of each pool, in their order."""
    found: dict[str, list[ResourceSpec]] = {}
    for resource in resources:
        found.setdefault(resource.pool, []).append(resource)
    return {pool: tuple(servers) for pool, servers in found.items()}
