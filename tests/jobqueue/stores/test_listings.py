"""What readers of a store see: filters, limits, cursors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.jobqueue import Changes, Happening, JobQuery, JobState, Reader, Store
from tests.jobqueue.stores.values import a_job, changed, claimed, completed, done, entry, submitted


@pytest.fixture
def reader(store: Store) -> Iterator[Reader]:
    reader = store.reader()
    yield reader
    reader.close()


def seqs(reader: Reader, **query: object) -> list[int]:
    return [job.seq for job in reader.jobs(JobQuery(**query))]  # type: ignore[arg-type]


def finished(reader: Reader, after: int = -1, limit: int = 9, teams: frozenset[str] | None = None) -> list[str]:
    return [one.job.job_id for one in reader.finished(after, limit, teams)]


def test_jobs_are_listed_by_submission_behind_a_cursor(store: Store, reader: Reader) -> None:
    store.commit(submitted(*(a_job(number) for number in range(5))))
    assert seqs(reader) == [0, 1, 2, 3, 4]
    assert seqs(reader, after=1, limit=2) == [2, 3]
    assert reader.jobs(JobQuery(after=3)) == [a_job(4)]


def test_filters_of_a_listing_are_joined(store: Store, reader: Reader) -> None:
    store.commit(submitted(a_job(0), a_job(1, team="blue"), a_job(2, task="u"), a_job(3, pool="q"), a_job(4, pool="")))
    store.commit(changed(claimed(a_job(0))))
    assert seqs(reader, state=JobState.IN_PROGRESS) == [0]
    assert seqs(reader, state=JobState.PENDING, task="t") == [1, 3, 4]
    assert seqs(reader, pool="") == [4]
    assert seqs(reader, task="u", pool="p", state=JobState.PENDING, teams=frozenset({"red"})) == [2]
    assert seqs(reader, task="u", pool="q") == []


def test_several_teams_are_listed_together_in_order(store: Store, reader: Reader) -> None:
    teams = ["red", "blue", "green", "blue", "red", "green"]
    store.commit(submitted(*(a_job(number, team=team) for number, team in enumerate(teams))))
    assert seqs(reader, teams=frozenset({"red", "blue"})) == [0, 1, 3, 4]
    assert seqs(reader, teams=frozenset({"red", "blue"}), after=0, limit=2) == [1, 3]
    assert seqs(reader, teams=frozenset()) == []


def test_a_listing_sees_what_is_committed_later(store: Store, reader: Reader) -> None:
    assert seqs(reader) == []
    store.commit(submitted(a_job(0)))
    assert seqs(reader) == [0]


def test_completed_jobs_come_in_order_of_completion_behind_a_cursor(store: Store, reader: Reader) -> None:
    jobs = [a_job(number, team="red" if number % 2 else "blue") for number in range(4)]
    store.commit(submitted(*jobs))
    store.commit(completed(jobs[3], jobs[0], first_entry=4))
    store.commit(completed(jobs[1], first_entry=6))
    assert finished(reader) == ["job-3", "job-0", "job-1"]
    assert [(one.entry, one.job) for one in reader.finished(4, 1)] == [(5, done(jobs[0]))]
    assert finished(reader, teams=frozenset({"red"})) == ["job-3", "job-1"]
    assert finished(reader, teams=frozenset({"red", "blue"}), limit=2) == ["job-3", "job-0"]
    assert finished(reader, teams=frozenset()) == []
    assert finished(reader, after=6) == []


def test_the_very_first_entry_can_be_a_completion(store: Store, reader: Reader) -> None:
    store.commit(Changes(new_jobs={"job-0": done(a_job(0))}, history=[entry(0, Happening.COMPLETED, "job-0")]))
    assert finished(reader) == ["job-0"]
    assert finished(reader, after=0) == []


def test_a_job_that_was_completed_twice_shows_once_at_the_latter(store: Store, reader: Reader) -> None:
    store.commit(submitted(a_job(0), a_job(1)))
    store.commit(completed(a_job(0), a_job(1), first_entry=2))
    store.commit(completed(a_job(0), first_entry=4))
    assert [(one.entry, one.job.job_id) for one in reader.finished(-1, 9)] == [(3, "job-1"), (4, "job-0")]


def test_a_job_that_was_completed_and_is_changed_later_stays_completed(store: Store, reader: Reader) -> None:
    store.commit(submitted(a_job(0)))
    store.commit(completed(a_job(0), first_entry=1))
    store.commit(changed(done(a_job(0))._replace(checksum="sha256:1")))
    assert [(one.entry, one.job.checksum) for one in reader.finished(-1, 9)] == [(1, "sha256:1")]


def test_the_history_is_read_behind_a_cursor(store: Store, reader: Reader) -> None:
    store.commit(Changes(history=[entry(number) for number in range(5)]))
    store.commit(Changes(history=[entry(9)]))
    assert [one.entry for one in reader.history(2, 9)] == [3, 4, 9]
    assert [one.entry for one in reader.history(-1, 2)] == [0, 1]


def test_the_history_is_read_by_job_and_kind(store: Store, reader: Reader) -> None:
    kinds = [Happening.SUBMITTED, Happening.CLAIMED, Happening.FAILED, Happening.CLAIMED, Happening.COMPLETED]
    store.commit(Changes(history=[entry(number, what, f"job-{number % 2}") for number, what in enumerate(kinds)]))
    assert [one.entry for one in reader.history(-1, 9, job_id="job-1")] == [1, 3]
    assert [one.entry for one in reader.history(-1, 9, what=[Happening.CLAIMED])] == [1, 3]
    wanted = [Happening.COMPLETED, Happening.CLAIMED, Happening.SUBMITTED]
    assert [one.entry for one in reader.history(0, 2, what=wanted)] == [1, 3]
    assert [one.entry for one in reader.history(-1, 9, what=wanted, job_id="job-0")] == [0, 4]
    assert reader.history(-1, 9, job_id="nobody") == []


def test_a_reader_can_be_closed_twice(store: Store) -> None:
    reader = store.reader()
    reader.close()
    reader.close()
