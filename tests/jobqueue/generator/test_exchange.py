"""Jobs and servers in and out of a queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.jobqueue.errors import JobConflictError, StoreFailedError, StoreInUseError
from headgate.jobqueue.generator import (
    Taken,
    contents_of,
    imported_jobs,
    put_into,
    resources_of,
    seed_documents,
    send,
)
from headgate.jobqueue.job import JobSpec, JobState
from headgate.jobqueue.outcomes import ImportedJob, Instant
from headgate.jobqueue.resource import ResourceSpec
from headgate.jobqueue.stores import open_store
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
    written, listed = seed_documents(found, [resource.spec for resource in resources])
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


class _Queue:
    def __init__(self) -> None:
        self.calls: list[list[object]] = []

    def submit(self, jobs: list[JobSpec], /) -> None:
        self.calls.append([job.job_id for job in jobs])

    def register(self, resources: list[ResourceSpec], /) -> None:
        self.calls.append([resource.host for resource in resources])


def test_servers_are_sent_before_jobs_and_both_in_pages(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate.jobqueue.generator import exchange

    monkeypatch.setattr(exchange, "_PAGE", 2)
    site.add_instances("radio", 3)
    generation, queue = site.generate(), _Queue()
    send(queue, generation.job_specs(), generation.resource_specs())
    assert queue.calls == [["alpha-1"], ["alpha.radio.1", "alpha.radio.2"], ["alpha.radio.3"]]
