"""Jobs and policy servers in and out of a queue: through its server, or a database that no server owns yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.core.errors import InvalidInputError
from headgate.jobqueue.generator.json_files import read_json
from headgate.jobqueue.generator.legacy_files import by_name_of_pool, imported_jobs, resources_of
from headgate.jobqueue.job import Job, JobSpec
from headgate.jobqueue.ledger import Ledger
from headgate.jobqueue.names import object_text
from headgate.jobqueue.outcomes import ImportedJob, Instant, Submitted
from headgate.jobqueue.records import JobQuery
from headgate.jobqueue.resource import ResourceSpec
from headgate.jobqueue.stores.sql import Reader, Store
from headgate.jobqueue.wire import JobOut
from headgate.jobqueue.wire_servers import ResourceIn, ResourceOut

if TYPE_CHECKING:
    from headgate.jobqueue.worker import JobQueueClient  # importing files needs no client


_PAGE: Final = 5_000


@dataclass(frozen=True, slots=True)
class Taken:
    """What a queue accepted.

    Attributes:
        existing: jobs that existed with the same contents.
        servers: servers that were registered, new ones and known ones.
        unserved: accepted jobs that need a server, while no server of their pool takes their task.
        others: further servers of the same pools, registered earlier, which the queue continues to assign.
    """

    added: int
    existing: int
    servers: int
    unserved: int
    others: tuple[str, ...] = ()


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
    with closing(store):
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


def contents_of(store: Store, owner: str) -> tuple[list[Job], list[ResourceSpec]]:
    """Return all jobs by submission and all servers of a store, as each pool names them; it is closed afterwards.

    Raises:
        StoreInUseError: when a server owns it: its memory holds the current state.
        StoreFailedError: when there is no job queue in it, or it cannot be read.
    """
    reader = store.reader()  # first: owning a database creates one where there is none
    with closing(store), closing(reader):
        store.own(owner)
        return all_jobs(reader), _specs_of(Ledger(store, Instant(0.0, 0.0)))


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
    """Return the jobs that need a server while no server of their pool takes their task."""
    by_pool = by_name_of_pool(resources)
    served: dict[tuple[str, str], bool] = {}
    found: list[JobSpec] = []
    for job in jobs:
        key = (job.pool, job.task)
        if key not in served:
            served[key] = not job.pool or any(server.serves(job.task) for server in by_pool.get(job.pool, ()))
        if not served[key]:
            found.append(job)
    return found


async def send(client: JobQueueClient, jobs: Sequence[JobSpec], resources: Sequence[ResourceSpec]) -> Taken:
    """Send policy servers and jobs, in this order, so that a worker that gets a job finds them.

    Sending the same again changes nothing, so an interrupted transfer is simply repeated.

    Raises:
        InvalidJobError: a job or policy server breaks a rule.
        JobConflictError: a job exists with other contents.
    """
    async with client:
        if resources:
            await client.register(resources)
        taken = await client.submit(jobs)
        known = await client.resources()
    pools, registered = {spec.pool for spec in resources}, {spec.address for spec in resources}
    others = [
        one for one in known if pools & {*one.pools} and registered.isdisjoint(s.address for s in _specs_told([one]))
    ]
    unserved = unserved_jobs(jobs, _specs_told(known))
    return Taken(taken.added, taken.existing, len(registered), len(unserved), tuple(one.resource_id for one in others))


async def contents_of_server(client: JobQueueClient) -> tuple[list[Job], list[ResourceSpec]]:
    """Return all jobs by submission and all policy servers, as each pool names them, at the time of reading."""
    async with client:
        jobs = [job_of(job) async for job in client.all_jobs()]
        return jobs, sorted(_specs_told(await client.resources()), key=lambda spec: spec.pool)


def job_of(body: JobOut) -> Job:
    """Return a job of the ledger from its HTTP body, which has no lease."""
    spec = JobSpec(
        body.id, body.team, body.task, body.instance, body.pool, body.resource_type, object_text(body.payload),
        body.priority, body.max_attempts,
    )  # fmt: skip
    return Job(
        spec, body.seq, body.submitted_at, body.state, body.epoch, body.failures, worker=body.worker,
        claimed_at=body.claimed_at or 0.0, finished_at=body.finished_at or 0.0, last_error=body.last_error,
        result="" if body.result is None else object_text(body.result), result_ref=body.result_ref,
        checksum=body.checksum,
    )  # fmt: skip


def _specs_told(resources: Iterable[ResourceOut]) -> Iterator[ResourceSpec]:
    for body in resources:
        for named in ({**body.resource, "pool": body.pool}, *body.also):
            yield ResourceIn.model_validate({"host": body.host, "port": body.port, **named}).spec


@dataclass(frozen=True, slots=True)
class Imports:
    """The contents of files of jobs and policy servers."""

    jobs: Sequence[ImportedJob] = ()
    resources: Sequence[ResourceSpec] = ()

    def into(self, ledger: Ledger, at: Instant) -> Submitted:
        """Add everything to a ledger; what exists with the same contents is left alone.

        Raises:
            JobConflictError: a job exists with other contents; nothing was added.
        """
        submitted = ledger.adopt(self.jobs, at)
        ledger.add_resources(self.resources, at)
        return submitted


def read_imports(files: Sequence[Path]) -> Imports:
    """Return the contents of files: a list is a `jobs.json`, an object a `resources.json`; at most one of each.

    Raises:
        InvalidInputError: for two of a kind.
        InvalidJobError: for a file that cannot be read or breaks a rule.
    """
    jobs_file: tuple[str, list[Any]] | None = None
    servers_file: tuple[str, Any] | None = None
    for file in files:
        document = read_json(file, "file of jobs or policy servers")
        if isinstance(document, list) and jobs_file is None:
            jobs_file = str(file), document
        elif not isinstance(document, list) and servers_file is None:
            servers_file = str(file), document
        else:
            kind = "jobs" if isinstance(document, list) else "policy servers"
            raise InvalidInputError(f"{file} is a second file of {kind}", next_step="Import one file of each kind.")
    jobs = [] if jobs_file is None else imported_jobs(jobs_file[1], jobs_file[0])
    if servers_file is None:
        return Imports(jobs)
    return Imports(jobs, resources_of(servers_file[1], (job.spec for job in jobs), servers_file[0]))
