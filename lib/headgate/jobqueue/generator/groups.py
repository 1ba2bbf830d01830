"""Binding jobs to seed 003's groups of servers, for servers that cannot match a job and a server by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from headgate.jobqueue.resource import ResourceSpec

Bound = TypeVar("Bound")


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
