"""Files of jobs and servers in and out of a queue in a database that no server owns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.jobqueue.job import Job, JobSpec
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.outcomes import ImportedJob, Instant
from headgate.jobqueue.port import JobQuery, Reader, Store
from headgate.jobqueue.resource import ResourceSpec

_PAGE: Final = 5_000


@dataclass(frozen=True, slots=True)
class Taken:
    """What a queue took in.

    Attributes:
        added: jobs that are new.
        existing: jobs that were there with the same contents.
        servers: servers that were registered, new ones and known ones.
        unserved: jobs taken in that wait for a server, while none of their pool takes their task.
    """

    added: int
    existing: int
    servers: int
    unserved: int


def put_into(
    store: Store, jobs: Sequence[ImportedJob], resources: Sequence[ResourceSpec], at: Instant, owner: str
) -> Taken:
    """Write jobs and servers into a store, all or none; it is closed afterwards.

    Raises:
        StoreInUseError: when a server owns it.
        StoreFailedError: when it could not be written.
        JobConflictError: when a job exists with other contents.
    """
    store.own(owner)
    try:
        ledger = Ledger(store, at)
        submitted = ledger.adopt(jobs, at)
        servers = ledger.add_resources(resources, at)
        pending = [job.spec for job in jobs if not job.is_done]
        unserved = unserved_jobs(pending, _specs_of(ledger))
        if ledger.changes:
            store.commit(ledger.changes)
            ledger.committed()
        registered = len({resource.resource_id for resource in servers})
        return Taken(submitted.added, submitted.existing, registered, len(unserved))
    finally:
        store.close()


def contents_of(store: Store, owner: str) -> tuple[list[Job], list[ResourceSpec]]:
    """Return all jobs by submission and all servers of a store, as each pool names them; it is closed afterwards.

    Raises:
        StoreInUseError: when a server owns it: what is in motion is in its memory.
        StoreFailedError: when there is no job queue, or it cannot be read.
    """
    reader = store.reader()  # first: owning a database makes one where there is none
    try:
        store.own(owner)
        return all_jobs(reader), _specs_of(Ledger(store, Instant(0.0, 0.0)))
    finally:
        reader.close()
        store.close()


def _specs_of(ledger: Ledger) -> list[ResourceSpec]:
    """Return all servers by pool, as each pool names them."""
    specs = (spec for resource in ledger.resources().values() for spec in resource.specs)
    return sorted(specs, key=lambda spec: spec.pool)


def all_jobs(reader: Reader) -> list[Job]:
    """Return all jobs by submission."""
    jobs: list[Job] = []
    while page := reader.jobs(JobQuery(after=jobs[-1].seq if jobs else -1, limit=_PAGE)):
        jobs += page
    return jobs


def unserved_jobs(jobs: Iterable[JobSpec], resources: Iterable[ResourceSpec]) -> list[JobSpec]:
    """Return the jobs that need a server while none of their pool takes their task."""
    by_pool: dict[str, list[ResourceSpec]] = {}
    for resource in resources:
        by_pool.setdefault(resource.pool, []).append(resource)
    served: dict[tuple[str, str], bool] = {}
    found: list[JobSpec] = []
    for job in jobs:
        key = (job.pool, job.task)
        if key not in served:
            served[key] = not job.pool or any(server.serves(job.task) for server in by_pool.get(job.pool, ()))
        if not served[key]:
            found.append(job)
    return found
