"""Jobs, servers and changes for tests of the stores."""

from __future__ import annotations

from headgate.jobqueue import Changes, Happening, HistoryEntry, Job, JobSpec, JobState, ResourceSpec
from headgate.jobqueue.records import Reply
from headgate.jobqueue.resource import Resource

NOW = 1_760_000_000.25


def a_job(number: int, *, team: str = "red", pool: str = "p", task: str = "t", priority: int = 0) -> Job:
    """A pending job whose id and `seq` say its number."""
    return Job(JobSpec(f"job-{number}", team, task, f"i{number}", pool, priority=priority), number, NOW + number)


def claimed(job: Job) -> Job:
    """The job in the hands of a worker."""
    return job._replace(
        state=JobState.IN_PROGRESS,
        epoch=job.epoch + 1,
        lease_id=f"lease-{job.seq}",
        worker="w",
        lease_s=90.0,
        claimed_at=NOW,
    )


def done(job: Job) -> Job:
    """The job with a result."""
    return job._replace(state=JobState.DONE, finished_at=NOW, result='{"score":1}')


def a_server(index: int, pool: str = "p") -> Resource:
    """A free server."""
    return Resource(ResourceSpec(pool, "10.0.0.1", 8000 + index), index)


def entry(number: int, what: Happening = Happening.SUBMITTED, job_id: str = "", **fields: object) -> HistoryEntry:
    """An entry of the history."""
    return HistoryEntry(number, NOW + number, what, job_id)._replace(**fields)


def a_reply(key: str, at: float = NOW) -> Reply:
    """A remembered reply."""
    return Reply(key, "fingerprint", 200, "{}", at)


def submitted(*jobs: Job, first_entry: int = 0) -> Changes:
    """The submission of jobs."""
    history = [entry(first_entry + at, Happening.SUBMITTED, job.job_id) for at, job in enumerate(jobs)]
    return Changes(new_jobs={job.job_id: job for job in jobs}, history=history)


def changed(*jobs: Job) -> Changes:
    """A change of jobs, without history."""
    return Changes(changed_jobs={job.job_id: job for job in jobs})


def completed(*jobs: Job, first_entry: int) -> Changes:
    """The completion of jobs."""
    history = [entry(first_entry + at, Happening.COMPLETED, job.job_id) for at, job in enumerate(jobs)]
    return Changes(changed_jobs={job.job_id: done(job) for job in jobs}, history=history)


def with_servers(*servers: Resource) -> Changes:
    """New or changed servers."""
    return Changes(resources={server.resource_id: server for server in servers})
