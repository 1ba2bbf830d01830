"""Files of jobs and servers in and out of a queue by its server, whatever client speaks with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from headgate.jobqueue.generator.exchange import Taken, unserved_jobs
from headgate.jobqueue.job import Job, JobSpec
from headgate.jobqueue.names import object_text
from headgate.jobqueue.resource import ResourceSpec
from headgate.jobqueue.wire import JobOut, ResourceIn, ResourceOut, SubmitOut


class QueueServer(Protocol):
    """A job queue's server, as its client has it."""

    def submit(self, specs: Iterable[JobSpec], /) -> SubmitOut:
        """Take jobs in; those that are there with the same contents are left alone."""
        ...

    def register(self, specs: Sequence[ResourceSpec], /) -> object:
        """Take policy servers in; one that is there gets the new rules."""
        ...

    def all_jobs(self) -> Iterable[JobOut]:
        """Return all jobs by submission."""
        ...

    def resources(self) -> Iterable[ResourceOut]:
        """Return all policy servers by pool and index."""
        ...


def send(server: QueueServer, jobs: Sequence[JobSpec], resources: Sequence[ResourceSpec]) -> Taken:
    """Send policy servers and jobs, in this order: whoever gets a job finds them.

    Sending the same again changes nothing, so what broke off half-way is simply sent again.

    Raises:
        InvalidJobError: a job or policy server breaks a rule.
        JobConflictError: a job exists with other contents.
    """
    if resources:
        server.register(resources)
    taken = server.submit(jobs)
    known = _specs_of(server.resources()) if jobs else ()
    registered = len({spec.address for spec in resources})
    return Taken(taken.added, taken.existing, registered, len(unserved_jobs(jobs, known)))


def contents_of_server(server: QueueServer) -> tuple[list[Job], list[ResourceSpec]]:
    """Return all jobs by submission and all policy servers, as each pool names them, when they were read."""
    return [job_of(job) for job in server.all_jobs()], sorted(_specs_of(server.resources()), key=lambda s: s.pool)


def job_of(body: JobOut) -> Job:
    """Return a job as a ledger has it; its lease stays with the server."""
    return Job(
        JobSpec(
            body.id,
            body.team,
            body.task,
            body.instance,
            body.pool,
            body.resource_type,
            object_text(body.payload),
            body.priority,
            body.max_attempts,
        ),
        body.seq,
        body.submitted_at,
        body.state,
        body.epoch,
        body.failures,
        worker=body.worker,
        claimed_at=body.claimed_at or 0.0,
        finished_at=body.finished_at or 0.0,
        last_error=body.last_error,
        result="" if body.result is None else object_text(body.result),
        result_ref=body.result_ref,
        checksum=body.checksum,
    )


def _specs_of(resources: Iterable[ResourceOut]) -> Iterator[ResourceSpec]:
    for body in resources:
        for named in ({**body.resource, "pool": body.pool}, *body.also):
            yield ResourceIn.model_validate({"host": body.host, "port": body.port, **named}).spec
