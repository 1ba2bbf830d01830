"""The legacy protocol's groups of servers: which pool each belongs to, and binding jobs to them again.

That protocol splits a team's servers into groups `{slug}_{n}` of equal constraints and binds a job to one of them.
Headgate matches a job and a server when the server is asked for, so all servers of the team are one pool, and no group
stands idle while jobs wait for another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from headgate.jobqueue.resource import ResourceSpec

UNNAMED: Final = "default"
"""Team or task of a job whose payload names none."""

Bound = TypeVar("Bound")

_GROUP: Final = re.compile(r"(?P<slug>.+)_[1-9][0-9]*", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of one pair of files.

    Attributes:
        users: resource type -> teams whose jobs name it.
        teams: teams that have jobs.
        grouped: those of them whose jobs name groups of their own.
    """

    users: dict[str, set[str]]
    teams: frozenset[str]
    grouped: frozenset[str]

    def pool(self, resource_type: str) -> str:
        """Return the pool of a resource type: the team whose group it surely is, else its own name."""
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
            of_type.discard(UNNAMED)  # a job without a team makes no group common to several
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

    Binding every job to the first group that fits would leave servers of later groups without work for ever.

    Args:
        jobs: each with the groups that fit it.
        groups: group -> its servers.
    """
    loads = dict.fromkeys(groups, 0)
    bound: dict[Bound, str] = {}
    for job, fitting in sorted(jobs, key=lambda pair: len(pair[1])):  # stable: of equal ones the earlier first
        if not fitting:
            continue
        group = min(fitting, key=lambda name: loads[name] / len(groups[name]))
        loads[group] += 1
        bound[job] = group
    return bound
