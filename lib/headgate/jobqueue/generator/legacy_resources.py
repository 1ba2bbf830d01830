"""`resources.json` of the legacy protocol: read, and written with the `jobs.json` that fits it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headgate.jobqueue.errors import InvalidJobError
from headgate.jobqueue.generator.legacy_groups import bound_evenly, fitting_groups, pools_of
from headgate.jobqueue.generator.legacy_jobs import jobs_document
from headgate.jobqueue.generator.problems import Problems
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
    found: dict[tuple[str, tuple[str, int]], ResourceSpec] = {}
    for name, listed in servers_of(document, source, pools.pool).items():
        for server in listed:
            if found.setdefault((server.pool, server.address), server) is not server:
                rule = f"{server.host}:{server.port} stands in another group of {server.pool} too; list it once"
                problems.add(name, rule)
    problems.refuse_if_any()
    return list(found.values())


def resources_document(resources: Iterable[ResourceSpec]) -> dict[str, list[dict[str, Any]]]:
    """Return `resources.json` with one list per pool."""
    return servers_document(_by_pool(resources))


def legacy_documents(
    jobs: Sequence[Job], resources: Iterable[ResourceSpec]
) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Return `jobs.json` and `resources.json` that fit each other, also for a server of the legacy protocol.

    A pool whose jobs name other resource types than the pool is split into groups `{pool}_{n}` again. A job keeps its
    group where that still takes its task, and else gets the one with the fewest jobs per server. Where the files would
    be read otherwise than the queue is, their entries say what it is: read again, they are the same queue.
    """
    servers_before = list(resources)
    by_pool = _by_pool(servers_before)
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
        fitting = [(job.job_id, _choices(job.spec, groups)) for job in jobs if job.spec.pool == pool]
        types |= bound_evenly(fitting, groups)
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


def _choices(job: JobSpec, groups: dict[str, tuple[ResourceSpec, ...]]) -> tuple[str, ...]:
    fitting = fitting_groups(job.task, groups, groups)
    return (job.resource_type,) if job.resource_type in fitting else fitting


def _by_pool(resources: Iterable[ResourceSpec]) -> dict[str, tuple[ResourceSpec, ...]]:
    found: dict[str, list[ResourceSpec]] = {}
    for resource in resources:
        found.setdefault(resource.pool, []).append(resource)
    return {pool: tuple(servers) for pool, servers in found.items()}
