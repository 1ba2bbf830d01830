"""`jobs.json` of the legacy protocol and our jobs: read the one, write it from the other."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat

from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.generator.legacy_groups import UNNAMED, pools_of
from headgate.jobqueue.generator.problems import Problems, part_problem, team_slug
from headgate.jobqueue.job import DEFAULT_MAX_ATTEMPTS, Job, JobSpec, JobState
from headgate.jobqueue.names import Name, NameOrEmpty, checked_object, object_text
from headgate.jobqueue.outcomes import ImportedJob

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
    """The fields of a payload that a queue goes by; all others are for the worker alone."""

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
    """What Headgate knows of a job where the other fields of its entry say less, or something else.

    Attributes:
        added: fields of the payload that are there for other programs alone.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    team: Name
    task: Name
    instance: NameOrEmpty
    pool: NameOrEmpty
    resource_type: NameOrEmpty
    added: list[str]


class JobEntry(BaseModel):
    """A job as `jobs.json` has it; `priority`, `max_attempts` and `headgate` are Headgate's."""

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
    """Return the jobs of a document, in its order: done ones are done, and all others are pending again.

    A job without an id has its position in the list. Groups of one team's servers (`{slug}_{n}`) become one pool.

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
                f"[{position}].id", f"{job_id} is also that of [{other}]; a job without an id has its position"
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


def jobs_of(document: object, source: str = "jobs.json") -> list[JobSpec]:
    """Return what `imported_jobs` finds, as it is submitted.

    Raises:
        InvalidJobError: as `imported_jobs`.
    """
    return [job.spec for job in imported_jobs(document, source)]


def jobs_document(jobs: Sequence[Job], types: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return `jobs.json` of jobs; `types` overrides their resource types by job id.

    What the payload does not say of team, task and instance is added to it, as there is no other place for it. A dead
    job stays so in the file; both ours and the legacy protocol's server take everything that is not done up again.
    Where the file would be read otherwise than the jobs are, each entry says under `headgate` what it is.
    """
    entries = [_entry(job, (types or {}).get(job.job_id)) for job in jobs]
    try:
        is_plain = jobs_of(entries) == [job.spec for job in jobs]
    except InvalidJobError:
        is_plain = False
    if not is_plain:
        for entry, job in zip(entries, jobs, strict=True):
            entry["headgate"] = _exact(job.spec, entry["payload"])
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


def _exact(spec: JobSpec, written: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "team": spec.team, "task": spec.task, "instance": spec.instance, "pool": spec.pool,
        "resource_type": spec.resource_type, "added": sorted(written.keys() - json.loads(spec.payload).keys()),
    }  # fmt: skip


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
