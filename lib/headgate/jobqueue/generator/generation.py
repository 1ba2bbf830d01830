"""From submissions, test instances and servers to jobs: pure, and the same for the same input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.generator.json_files import refused
from headgate.jobqueue.generator.legacy_files import bound_evenly, fitting_groups
from headgate.jobqueue.generator.servers import grouped, servers_document
from headgate.jobqueue.generator.submissions import (
    DEFAULT_TOP,
    ChosenTeam,
    Instance,
    Instances,
    Submission,
    chosen_submissions,
    chosen_teams,
)
from headgate.jobqueue.job import JobSpec
from headgate.jobqueue.names import object_text, part_problem
from headgate.jobqueue.resource import ResourceSpec

HasResult = Callable[[str, str, int], bool]
"""Whether a team's (slug) task has the result of an instance (number)."""


class Reason(StrEnum):
    """Why jobs are not generated."""

    HAS_RESULT = "has results already"
    NO_INSTANCES = "has no test instances"
    NO_SERVERS = "the team has no servers"
    NOT_SERVED = "no server of the team takes the task"


@dataclass(frozen=True, slots=True)
class Rules:
    """What is generated.

    Attributes:
        top: submissions of each track.
        all_tasks_teams: slugs of teams that are evaluated on tasks without a score, too.
        legacy_groups: bind each job to one of the legacy protocol's groups, in place of one pool per team.
        unserved_too: also jobs that no server takes yet.
    """

    top: int = DEFAULT_TOP
    all_tasks_teams: frozenset[str] = frozenset()
    legacy_groups: bool = False
    unserved_too: bool = False

    def __post_init__(self) -> None:
        if self.top < 1:
            raise InvalidInputError(f"--top must be >= 1 (got {self.top})")
        if self.legacy_groups and self.unserved_too:
            raise InvalidInputError("--unserved-too cannot be combined with --legacy-groups: each job needs a group")


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job to be.

    Attributes:
        team: as the team calls itself.
        slug: as folders and pools have it.
        task: what is evaluated.
        instance: on which instance.
        resource_type: the pool or group of its servers.
    """

    team: str
    slug: str
    task: str
    instance: Instance
    resource_type: str = ""

    @property
    def job_id(self) -> str:
        """A name of its own: sent twice it is the same job."""
        return f"{self.slug}.{self.task}.{self.instance.number}"

    @property
    def payload(self) -> dict[str, str]:
        """What a worker gets."""
        return {
            "team": self.team,
            "team_slug": self.slug,
            "task": self.task,
            "instance_basename": self.instance.file,
        }


@dataclass(frozen=True, slots=True)
class Skipped:
    """Jobs of one task of a team that are not generated: how many, and why."""

    team: str
    task: str
    reason: Reason
    jobs: int


@dataclass(frozen=True, slots=True)
class Generation:
    """What was generated.

    Attributes:
        submissions: those that were chosen, the standard track first, each track by rank.
        teams: their teams.
        jobs: in order of their ids.
        pools: slug of a team -> its servers, in the order of the file.
        servers: the same, or the legacy protocol's groups -> their servers: what the jobs' resource types name.
        skipped: what was not generated.
    """

    submissions: tuple[Submission, ...]
    teams: tuple[ChosenTeam, ...]
    jobs: tuple[PlannedJob, ...]
    pools: Mapping[str, tuple[ResourceSpec, ...]]
    servers: Mapping[str, tuple[ResourceSpec, ...]]
    skipped: tuple[Skipped, ...]

    def jobs_document(self) -> list[dict[str, Any]]:
        """Return `jobs.json`, with ids from 0."""
        return [
            {
                "id": number,
                "payload": job.payload,
                "resource_type": job.resource_type,
                "status": "pending",
                "attempts": 0,
            }
            for number, job in enumerate(self.jobs)
        ]

    def resources_document(self) -> dict[str, list[dict[str, Any]]]:
        """Return `resources.json`."""
        return servers_document(self.servers)

    def job_specs(self) -> list[JobSpec]:
        """Return the jobs as a queue takes them, named `team.task.instance`, so that sending them again is harmless.

        Raises:
            InvalidJobError: when such a name is too long.
        """
        return [_spec(job) for job in self.jobs]

    def resource_specs(self) -> list[ResourceSpec]:
        """Return the servers as a queue takes them."""
        return [server for listed in self.pools.values() for server in listed]


def generated(
    submissions: Sequence[Submission],
    instances: Instances,
    servers: Mapping[str, tuple[ResourceSpec, ...]],
    rules: Rules | None = None,
    has_result: HasResult = lambda _slug, _task, _number: False,
) -> Generation:
    """Return the jobs of the best submissions, one for each (team, task, instance) that has no result.

    Args:
        submissions: of all teams.
        instances: of all tasks.
        servers: slug of a team -> its policy servers.
        rules: what is generated.
        has_result: what is evaluated already.

    Raises:
        InvalidInputError: when `all_tasks_teams` names a team that handed nothing in.
        InvalidJobError: when results of two teams would be mixed.
    """
    rules = rules or Rules()
    unknown = rules.all_tasks_teams - {submission.slug for submission in submissions}
    if unknown:
        raise InvalidInputError(
            f"--all-tasks-team names {min(unknown)!r}, and no submission is of that team",
            next_step="Name a team by its slug: lower case, with _ in place of blanks.",
        )
    chosen = chosen_submissions(submissions, rules.top)
    teams = chosen_teams(chosen, rules.all_tasks_teams)
    skipped: list[Skipped] = []
    jobs = [
        job
        for team in teams
        for task in team.tasks
        for job in _jobs(team, task, instances, servers.get(team.slug, ()), rules, has_result, skipped)
    ]
    if not rules.legacy_groups:
        return Generation(chosen, teams, tuple(jobs), servers, servers, tuple(skipped))
    groups = grouped(servers)
    return Generation(chosen, teams, tuple(_in_groups(jobs, groups)), servers, groups, tuple(skipped))


def _jobs(
    team: ChosenTeam,
    task: str,
    instances: Instances,
    servers: Sequence[ResourceSpec],
    rules: Rules,
    has_result: HasResult,
    skipped: list[Skipped],
) -> Iterator[PlannedJob]:
    """Yield the jobs of one task of a team, and note what is left out."""
    every = instances.by_task.get(task, ())
    if not every:
        skipped.append(Skipped(team.slug, task, Reason.NO_INSTANCES, 0))
        return
    wanted = [instance for instance in every if not has_result(team.slug, task, instance.number)]
    if len(wanted) < len(every):
        skipped.append(Skipped(team.slug, task, Reason.HAS_RESULT, len(every) - len(wanted)))
    is_served = any(server.serves(task) for server in servers)
    if wanted and not is_served and not rules.unserved_too:
        reason = Reason.NOT_SERVED if servers else Reason.NO_SERVERS
        skipped.append(Skipped(team.slug, task, reason, len(wanted)))
        return
    for instance in wanted:
        yield PlannedJob(team.team, team.slug, task, instance, team.slug)


def _in_groups(jobs: Sequence[PlannedJob], groups: Mapping[str, tuple[ResourceSpec, ...]]) -> Iterator[PlannedJob]:
    """Yield the jobs bound to groups of their own team: exactly its, not those of a team whose slug begins alike."""
    of_team: dict[str, list[str]] = {}
    for group in groups:
        of_team.setdefault(group.rpartition("_")[0], []).append(group)
    fitting = [(number, fitting_groups(job.task, of_team[job.slug], groups)) for number, job in enumerate(jobs)]
    bound = bound_evenly(fitting, groups)
    for number, job in enumerate(jobs):
        yield PlannedJob(job.team, job.slug, job.task, job.instance, bound[number])


def _spec(job: PlannedJob) -> JobSpec:
    if (problem := part_problem(job.job_id)) is not None:
        raise refused(f"team {job.slug}", "the job's id, team.task.instance,", problem, job.job_id)
    return JobSpec(
        job_id=job.job_id,
        team=job.slug,
        task=job.task,
        instance=job.instance.file,
        pool=job.slug,
        resource_type=job.resource_type,
        payload=object_text(dict(job.payload)),
    )
