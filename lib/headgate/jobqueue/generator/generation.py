"""Generation of jobs from submissions, test instances and servers; deterministic."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.generator.json_files import read_json, shown
from headgate.jobqueue.generator.legacy_files import bound_evenly, fitting_groups, grouped, servers_document, servers_of
from headgate.jobqueue.generator.results import ResultFolder
from headgate.jobqueue.generator.submissions import (
    DEFAULT_TOP,
    ChosenTeam,
    Instance,
    Instances,
    Submission,
    chosen_submissions,
    chosen_teams,
    read_instances,
    read_submissions,
)
from headgate.jobqueue.job import JobSpec
from headgate.jobqueue.names import object_text, part_problem
from headgate.jobqueue.resource import ResourceSpec

HasResult = Callable[[str, str, int], bool]
"""Whether a result exists for a team (slug), task and instance (number)."""


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
        all_tasks_teams: slugs of teams that are evaluated on tasks without a score, too.
        legacy_groups: bind each job to one of the legacy protocol's groups instead of one pool per team.
        unserved_too: also generate jobs that no server takes yet.
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
        jobs: as a queue accepts them, in order of their ids.
        pools: slug of a team -> its servers, in the order of the file.
        servers: what the jobs' resource types name: `pools`, or the legacy protocol's groups -> their servers.
        ignored: files (`task/name`) that are not named like a test instance.
        unreadable: result files that cannot be read as results; their instances are evaluated again.
    """

    submissions: tuple[Submission, ...]
    teams: tuple[ChosenTeam, ...]
    jobs: tuple[JobSpec, ...]
    pools: Mapping[str, tuple[ResourceSpec, ...]]
    servers: Mapping[str, tuple[ResourceSpec, ...]]
    skipped: tuple[Skipped, ...]
    ignored: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()

    def jobs_document(self) -> list[dict[str, Any]]:
        """Return `jobs.json`, with ids from 0."""
        return [
            {
                "id": number,
                "payload": json.loads(job.payload),
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
        """Return the jobs to send, named `team.task.instance`, so that sending them again is harmless.

        Raises:
            InvalidJobError: when such a name is too long.
        """
        for job in self.jobs:
            if (problem := part_problem(job.job_id)) is not None:
                raise InvalidJobError(
                    f"team {job.team}: the job's id, team.task.instance, {problem} (got {shown(job.job_id)})"
                )
        return list(self.jobs)

    def resource_specs(self) -> list[ResourceSpec]:
        """Return the servers as a queue accepts them."""
        return [server for listed in self.pools.values() for server in listed]


def generated(
    submissions: Sequence[Submission],
    instances: Instances,
    servers: Mapping[str, tuple[ResourceSpec, ...]],
    rules: Rules | None = None,
    has_result: HasResult | None = None,
) -> Generation:
    """Return the jobs of the best submissions, one for each (team, task, instance) that has no result.

    Args:
        submissions: of all teams.
        instances: of all tasks.
        servers: slug of a team -> its policy servers.
        rules: what is generated.
        has_result: which instances have a result already; None: none.

    Raises:
        InvalidInputError: when `all_tasks_teams` names a team that submitted nothing.
        InvalidJobError: when results of two teams would be mixed.
    """
    rules = rules or Rules()
    unknown = rules.all_tasks_teams - {submission.slug for submission in submissions}
    if unknown:
        raise InvalidInputError(
            f"--all-tasks-team names {min(unknown)!r}, but that team has no submission",
            next_step="Name a team by its slug: lower case, with _ in place of blanks.",
        )
    chosen = chosen_submissions(submissions, rules.top)
    teams = chosen_teams(chosen, rules.all_tasks_teams)
    jobs: list[JobSpec] = []
    skipped: list[Skipped] = []
    for team in teams:
        for task in team.tasks:
            every = instances.by_task.get(task, ())
            wanted = [one for one in every if has_result is None or not has_result(team.slug, task, one.number)]
            own = servers.get(team.slug, ())
            if not every:
                skipped.append(Skipped(team.slug, task, Reason.NO_INSTANCES, 0))
            if len(wanted) < len(every):
                skipped.append(Skipped(team.slug, task, Reason.HAS_RESULT, len(every) - len(wanted)))
            if wanted and not rules.unserved_too and not any(server.serves(task) for server in own):
                reason = Reason.NOT_SERVED if own else Reason.NO_SERVERS
                skipped.append(Skipped(team.slug, task, reason, len(wanted)))
            else:
                jobs += [_job(team, task, instance) for instance in wanted]
    groups = servers
    if rules.legacy_groups:
        groups = grouped(servers)
        jobs = _in_groups(jobs, groups)
    return Generation(chosen, teams, tuple(jobs), servers, groups, tuple(skipped))


def generated_from(
    submissions_dir: Path, instances_dir: Path, resources_file: Path, results_dir: Path | None, rules: Rules
) -> Generation:
    """Return what `generated` makes of folders and a file of policy servers; None as `results_dir` means no results.

    Raises:
        InvalidInputError: as `generated`.
        InvalidJobError: as `generated`, or when a file or folder breaks a rule.
    """
    results = None if results_dir is None else ResultFolder(results_dir)
    submissions, instances = read_submissions(submissions_dir), read_instances(instances_dir)
    servers = servers_of(read_json(resources_file, "file of policy servers"), str(resources_file))
    has_result = None if results is None else results.has_result
    made = generated(submissions, instances, servers, rules, has_result)
    return replace(made, ignored=instances.ignored, unreadable=() if results is None else tuple(results.unreadable))


def _job(team: ChosenTeam, task: str, instance: Instance) -> JobSpec:
    payload = {"team": team.team, "team_slug": team.slug, "task": task, "instance_basename": instance.file}
    return JobSpec(
        job_id=f"{team.slug}.{task}.{instance.number}",
        team=team.slug,
        task=task,
        instance=instance.file,
        pool=team.slug,
        resource_type=team.slug,
        payload=object_text(payload),
    )


def _in_groups(jobs: Sequence[JobSpec], groups: Mapping[str, tuple[ResourceSpec, ...]]) -> list[JobSpec]:
    """Return the jobs bound to groups of exactly their own team, not of a team whose slug merely begins the same."""
    of_team: dict[str, list[str]] = {}
    for group in groups:
        of_team.setdefault(group.rpartition("_")[0], []).append(group)
    fitting = [(job.job_id, fitting_groups(job.task, of_team[job.team], groups)) for job in jobs]
    bound = bound_evenly(fitting, groups)
    return [replace(job, resource_type=bound[job.job_id]) for job in jobs]
