"""Jobs and servers in and out of a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

import pytest

from headgate.jobqueue import ImportedJob, Instant, Job, JobSpec, JobState, ResourceSpec
from headgate.jobqueue.errors import JobConflictError, StoreFailedError, StoreInUseError
from headgate.jobqueue.generator import (
    Taken,
    contents_of,
    contents_of_server,
    imported_jobs,
    legacy_documents,
    put_into,
    resources_of,
    send,
)
from headgate.jobqueue.generator.exchange import job_of
from headgate.jobqueue.resource import Resource
from headgate.jobqueue.stores import open_store
from headgate.jobqueue.wire import JobIn, JobOut, SubmitOut
from headgate.jobqueue.wire_servers import ResourceIn, ResourceOut
from tests.jobqueue.generator.site import Site, server

_AT = Instant(100.0, 1_700_000_000.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'queue.db'}"


def _put(url: str, jobs: list[ImportedJob], servers: list[ResourceSpec]) -> Taken:
    return put_into(open_store(url), jobs, servers, _AT, "a test")


_DOCUMENT = [
    {"id": 0, "payload": {"team_slug": "a", "task": "radio"}, "resource_type": "a_1", "status": "done", "attempts": 2},
    {
        "id": 1,
        "payload": {"team_slug": "a", "task": "radio"},
        "resource_type": "a_2",
        "status": "in_progress",
        "attempts": 1,
    },
    {"id": 2, "payload": {"team_slug": "b", "task": "x"}, "resource_type": "b_1", "status": "pending", "attempts": 0},
]
_SERVERS = {"a_1": [server("1")], "a_2": [server("2", compatible_task=["radio"])]}


def test_files_go_into_a_database_and_come_out_again(url: str) -> None:
    jobs = imported_jobs(_DOCUMENT)
    servers = resources_of(_SERVERS, [job.spec for job in jobs])
    assert _put(url, jobs, servers) == Taken(added=3, existing=0, servers=2, unserved=1)
    found, resources = contents_of(open_store(url), "a test")
    assert [(job.state, job.epoch) for job in found] == [
        (JobState.DONE, 2), (JobState.PENDING, 1), (JobState.PENDING, 0),
    ]  # fmt: skip
    written, listed = legacy_documents(found, resources)
    assert listed == _SERVERS
    assert [(entry["id"], entry["status"], entry["attempts"]) for entry in written] == [
        (0, "done", 2), (1, "pending", 1), (2, "pending", 0),
    ]  # fmt: skip


def test_the_same_files_again_change_nothing(url: str) -> None:
    jobs = imported_jobs(_DOCUMENT)
    servers = resources_of(_SERVERS, [job.spec for job in jobs])
    _put(url, jobs, servers)
    before = contents_of(open_store(url), "a test")
    assert _put(url, jobs, servers) == Taken(added=0, existing=3, servers=2, unserved=1)
    assert contents_of(open_store(url), "a test") == before


def test_a_job_with_other_contents_is_refused_and_nothing_of_its_file_taken_in(url: str) -> None:
    _put(url, [ImportedJob(JobSpec("1", "a", "t"))], [])
    with pytest.raises(JobConflictError, match="'1' exists with other contents"):
        _put(url, [ImportedJob(JobSpec("0", "a", "t")), ImportedJob(JobSpec("1", "b", "t"))], [])
    assert [job.job_id for job in contents_of(open_store(url), "a test")[0]] == ["1"]


def test_a_database_that_a_server_owns_is_left_alone(url: str) -> None:
    store = open_store(url).own("the server")
    try:
        with pytest.raises(StoreInUseError):
            _put(url, [ImportedJob(JobSpec("0", "a", "t"))], [])
        with pytest.raises(StoreInUseError):
            contents_of(open_store(url), "a test")
    finally:
        store.close()
    assert contents_of(open_store(url), "a test") == ([], [])


def test_looking_into_a_database_that_is_not_there_makes_none(url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreFailedError):
        contents_of(open_store(url), "a test")
    assert list(tmp_path.iterdir()) == []


def test_all_pages_are_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate.jobqueue.generator import exchange

    monkeypatch.setattr(exchange, "_PAGE", 3)
    _put(url, [ImportedJob(JobSpec(str(n), "a", "t")) for n in range(7)], [])
    assert [job.job_id for job in contents_of(open_store(url), "a test")[0]] == [str(n) for n in range(7)]


class _Server:
    """A server that keeps jobs and policy servers in the form in which they travel."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._jobs: dict[str, Job] = {}
        self._resources: dict[str, Resource] = {}

    async def __aenter__(self) -> _Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.calls.append("close")

    async def submit(self, specs: Iterable[JobSpec], /) -> SubmitOut:
        self.calls.append("submit")
        new = [JobIn.of(spec).spec for spec in specs if spec.job_id not in self._jobs]
        self._jobs |= {spec.job_id: Job(spec, len(self._jobs) + n, 1.0) for n, spec in enumerate(new)}
        return SubmitOut(added=len(new), existing=0)

    async def register(self, specs: Sequence[ResourceSpec], /) -> None:
        self.calls.append("register")
        self._resources |= {spec.host: Resource(ResourceIn.of(spec).spec, n) for n, spec in enumerate(specs)}

    async def all_jobs(self) -> AsyncIterator[JobOut]:
        for job in self._jobs.values():
            yield JobOut.of(job)

    async def resources(self) -> Iterable[ResourceOut]:
        return [ResourceOut.of(resource) for resource in self._resources.values()]


async def test_policy_servers_are_sent_before_jobs(site: Site) -> None:
    generation, queue = site.generate(), _Server()
    assert await send(queue, generation.job_specs(), generation.resource_specs()) == Taken(2, 0, 1, 0)
    assert queue.calls == ["register", "submit", "close"]
    assert await send(_Server(), generation.job_specs(), []) == Taken(2, 0, 0, 2)


async def test_what_was_sent_is_what_a_server_tells_again() -> None:
    queue, jobs = _Server(), imported_jobs(_DOCUMENT)
    servers = resources_of(_SERVERS, [job.spec for job in jobs])
    await send(queue, [job.spec for job in jobs], servers)
    found, resources = await contents_of_server(queue)
    assert [job.spec for job in found] == [job.spec for job in jobs]
    assert resources == servers
    assert legacy_documents(found, resources)[1] == _SERVERS


def test_results_travel_with_their_jobs() -> None:
    done = Job(JobSpec("1", "a", "t"), 0, 1.0, JobState.DONE, epoch=2, worker="w", result='{"x":1}', finished_at=2.0)
    assert job_of(JobOut.of(done)) == done
