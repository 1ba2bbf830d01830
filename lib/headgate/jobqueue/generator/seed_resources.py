"""`resources.json` of seed 003 and our servers: read the one, write it from the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from headgate.jobqueue.generator.groups import bound_evenly, fitting_groups
from headgate.jobqueue.generator.pools import pools_of
from headgate.jobqueue.generator.problems import Problems
from headgate.jobqueue.generator.seed_jobs import jobs_document
from headgate.jobqueue.generator.servers import grouped, servers_document, servers_of
from headgate.jobqueue.job import Job, JobSpec
from headgate.jobqueue.resource import ResourceSpec


def resources_of(document: object, jobs: Iterable[JobSpec] = (), source: str = "resources.json") -> list[ResourceSpec]:
    """Return the servers of a document, in its order.

    Args:
        document: resource type -> list of servers.
        jobs: those of the `jobs.json` beside it; they tell which resource types are groups of one team's servers,
            which become one pool.
        source: the file, for messages.

    Raises:
        InvalidJobError: listing every rule that the document breaks.
    """
    pools = pools_of((job.resource_type, job.team) for job in jobs)
    problems = Problems(source)
    found: dict[tuple[str, str, int], ResourceSpec] = {}
    for name, listed in servers_of(document, source).items():
        for server in listed:
            pooled = replace(server, pool=pools.pool(name))
            if found.setdefault((pooled.pool, pooled.host, pooled.port), pooled) is not pooled:
                rule = f"{server.host}:{server.port} stands in another group of {pooled.pool} too; list it once"
                problems.add(name, rule)
    problems.refuse_if_any()
    return list(found.values())


def resources_document(resources: Iterable[ResourceSpec]) -> dict[str, list[dict[str, Any]]]:
    """Return `resources.json` with one list per pool."""
    return servers_document(_by_pool(resources))


def seed_documents(
    jobs: Sequence[Job], resources: Iterable[ResourceSpec]
) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Return `jobs.json` and `resources.json` that fit each other, also for a server of the seed.

    A pool whose jobs name other resource types than the pool is split into groups `{pool}_{n}` again. A job keeps its
    group where that still takes its task, and else gets the one with the fewest jobs per server.
    """
    by_pool = _by_pool(resources)
    split = {job.spec.pool for job in jobs if job.spec.resource_type not in {"", job.spec.pool}} & by_pool.keys()
    others = by_pool.keys() | {job.spec.resource_type or job.spec.pool for job in jobs if job.spec.pool not in split}
    listed: dict[str, tuple[ResourceSpec, ...]] = {}
    types: dict[str, str] = {}
    for pool, servers in by_pool.items():
        if pool not in split:
            listed[pool] = servers
            continue
        groups = grouped({pool: servers}, taken=others)
        listed |= groups
        fitting = [(job.job_id, _choices(job.spec, groups)) for job in jobs if job.spec.pool == pool]
        types |= bound_evenly(fitting, groups)
    return jobs_document(jobs, types), servers_document(listed)


def _choices(job: JobSpec, groups: dict[str, tuple[ResourceSpec, ...]]) -> tuple[str, ...]:
    fitting = fitting_groups(job.task, groups, groups)
    return (job.resource_type,) if job.resource_type in fitting else fitting


def _by_pool(resources: Iterable[ResourceSpec]) -> dict[str, tuple[ResourceSpec, ...]]:
    found: dict[str, list[ResourceSpec]] = {}
    for resource in resources:
        found.setdefault(resource.pool, []).append(resource)
    return {pool: tuple(servers) for pool, servers in found.items()}
