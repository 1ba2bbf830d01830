"""What a store is given it gives back: every field, after reopening too, and all of a commit or nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import fields, replace

import pytest

from headgate.jobqueue import Changes, Happening, HistoryEntry, Job, JobSpec, JobState, ResourceSpec, Store
from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.job import Lane
from headgate.jobqueue.records import Reply
from headgate.jobqueue.resource import Resource, ResourceState
from headgate.jobqueue.stores import sql
from tests.jobqueue.stores.places import Place
from tests.jobqueue.stores.values import (
    a_job,
    a_reply,
    a_server,
    changed,
    claimed,
    done,
    entry,
    submitted,
    with_servers,
)

FULL_JOB = Job(
    JobSpec("id ä", "team", "a/b", "instance 7", "pool", "type", '{"a": [1, "🦊"]}', priority=-3, max_attempts=9),
    seq=2**40,
    submitted_at=0.1 + 0.2,
    state=JobState.IN_PROGRESS,
    epoch=5,
    failures=2,
    lease_id="lease",
    worker="worker {1}, \"two\" \\ 'three'",
    lease_s=61.25,
    claimed_at=1e9 / 3,
    finished_at=2e9 / 3,
    last_error='Traceback:\n\t"x", {y}, \\N, NULL',
    result='{"score": 0.5}',
    result_ref="s3://bucket/key",
    checksum="sha256:00",
)
FULL_SERVER = Resource(
    ResourceSpec("a/b", "host", 65535, frozenset({"x", 'ü", "'}), frozenset({"z"}), '{"k": "ö"}'),
    index=12,
    state=ResourceState.DRAINING,
    epoch=3,
    lease_id="lease",
    job_id="job",
    worker="worker",
    lease_s=20.5,
    reserved_at=1e9 / 7,
    note='why "so"',
    also=(
        ResourceSpec("other", "Host", 65535, frozenset({"y"}), frozenset({'ö "'}), '{"k": "\\\\ ü"}'),
        ResourceSpec("b", "h", 1),
    ),
)
FULL_ENTRY = HistoryEntry(2**41, 1e9 / 11, Happening.LATE_RESULT, "job", 4, "lease", "worker", "a/b/12", 'n"o\\te\n')
FULL_REPLY = Reply("POST /v1 ü", "f", 409, '{"type": "x"}', 1e9 / 13)


@pytest.mark.parametrize("value", [FULL_JOB, FULL_JOB.spec, FULL_SERVER, FULL_SERVER.spec, FULL_ENTRY, FULL_REPLY])
def test_the_examples_leave_no_field_at_its_default(value: object) -> None:
    defaults = getattr(value, "_field_defaults", None) or {one.name: one.default for one in fields(value)}  # type: ignore[arg-type]
    assert defaults
    for name, default in defaults.items():
        assert getattr(value, name) != default


def test_an_empty_store_starts_from_nothing(store: Store) -> None:
    snapshot = store.load()
    assert (dict(snapshot.counts), list(snapshot.in_progress), list(snapshot.resources)) == ({}, [], [])
    assert (snapshot.next_seq, snapshot.next_entry, dict(snapshot.next_index)) == (0, 0, {})


def test_every_field_of_a_new_job_comes_back(store: Store) -> None:
    store.commit(Changes(new_jobs={FULL_JOB.job_id: FULL_JOB}))
    assert store.jobs([FULL_JOB.job_id, "other"]) == {FULL_JOB.job_id: FULL_JOB}
    assert list(store.load().in_progress) == [FULL_JOB]


def test_every_field_of_a_changed_job_comes_back(store: Store) -> None:
    before = Job(FULL_JOB.spec, FULL_JOB.seq, FULL_JOB.submitted_at)
    store.commit(submitted(before))
    store.commit(changed(FULL_JOB))
    assert store.jobs([FULL_JOB.job_id]) == {FULL_JOB.job_id: FULL_JOB}


def test_every_field_of_a_server_an_entry_and_a_reply_comes_back(store: Store) -> None:
    store.commit(
        Changes(
            resources={FULL_SERVER.resource_id: FULL_SERVER}, history=[FULL_ENTRY], replies={FULL_REPLY.key: FULL_REPLY}
        )
    )
    assert list(store.load().resources) == [FULL_SERVER]
    with closing(store.reader()) as reader:
        assert reader.history(-1, 9) == [FULL_ENTRY]
    assert store.reply(FULL_REPLY.key) == FULL_REPLY
    assert store.reply("other") is None


def test_all_of_it_is_there_after_reopening(place: Place) -> None:
    first = place.open().own("first")
    first.commit(submitted(a_job(0), a_job(1)))
    first.commit(changed(claimed(a_job(1))))
    first.commit(with_servers(a_server(0)))
    first.commit(Changes(replies={"k": a_reply("k")}))
    before = first.load()
    first.close()
    second = place.open().own("second")
    assert second.load() == before
    assert second.load().next_seq == 2
    assert second.load().next_entry == 2
    assert second.pending(Lane("red", "p", "t"), None, 9) == [a_job(0)]
    assert second.reply("k") == a_reply("k")
    second.close()


def test_counts_are_of_lanes_and_states(store: Store) -> None:
    store.commit(submitted(a_job(0), a_job(1), a_job(2, team="blue"), a_job(3, task="u")))
    store.commit(changed(claimed(a_job(1)), done(a_job(3, task="u"))))
    assert store.load().counts == {
        Lane("red", "p", "t"): {JobState.PENDING: 1, JobState.IN_PROGRESS: 1},
        Lane("blue", "p", "t"): {JobState.PENDING: 1},
        Lane("red", "p", "u"): {JobState.DONE: 1},
    }


def test_withdrawn_jobs_are_counted_by_team(store: Store) -> None:
    dead = [
        (a_job(n), error) for n, error in enumerate(("withdrawn: late", "withdrawn", "boom: withdrawn", "Withdrawn"))
    ]
    store.commit(submitted(*(job for job, _ in dead)))
    store.commit(changed(*(job._replace(state=JobState.DEAD, last_error=error) for job, error in dead)))
    assert store.load().withdrawn == {dead[0][0].spec.team: 2}


def test_a_servers_number_is_never_free_again(store: Store) -> None:
    store.commit(with_servers(a_server(0), a_server(4), a_server(1, pool="q/r")))
    store.commit(Changes(removed_resources={"p/4", "p/0", "q/r/1"}))
    assert list(store.load().resources) == []
    assert store.load().next_index == {"p": 5, "q/r": 2}


def test_a_server_that_came_and_went_in_one_commit_has_used_its_number(store: Store) -> None:
    store.commit(Changes(resources={"p/1": a_server(1)}, removed_resources={"p/1", "p/2"}))
    assert list(store.load().resources) == []
    assert store.load().next_index == {"p": 3}


def test_the_last_claim_of_each_team_comes_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.commit(submitted(*(a_job(n, team=team) for n, team in enumerate(("red", "blue", "green", "red")))))
    claims = [entry(4 + at, Happening.CLAIMED, f"job-{number}") for at, number in enumerate((1, 0, 1, 3))]
    store.commit(Changes(history=[*claims, entry(8, Happening.CLAIMED, "unknown"), entry(9, job_id="job-2")]))
    assert store.load().last_claims == {"blue": 6, "red": 7}
    monkeypatch.setattr(sql, "CLAIMS_READ", 2)
    assert store.load().last_claims == {"red": 7}


def test_a_server_is_overwritten_by_its_id(store: Store) -> None:
    store.commit(with_servers(a_server(0)))
    store.commit(with_servers(replace(a_server(0), state=ResourceState.DOWN, note="no answer")))
    assert [server.note for server in store.load().resources] == ["no answer"]


def test_old_replies_are_forgotten(store: Store) -> None:
    store.commit(Changes(replies={"old": a_reply("old", 10.0), "edge": a_reply("edge", 20.0)}))
    store.commit(Changes(forget_before=(20.0, 0.0)))
    assert store.reply("old") is None
    assert store.reply("edge") == a_reply("edge", 20.0)


def test_old_late_results_leave_that_there_were_any(store: Store) -> None:
    store.commit(submitted(a_job(1)))
    late = entry(2, Happening.LATE_RESULT, "job-1")._replace(note="{}", lease_id="a")
    store.commit(Changes(history=[late._replace(at=10.0), late._replace(entry=3, at=20.0, lease_id="b")]))
    store.commit(Changes(history=[late._replace(entry=4, what=Happening.FAILED, at=10.0)]))
    store.commit(Changes(forget_before=(0.0, 20.0)))
    with closing(store.reader()) as reader:
        assert [one.note for one in reader.history(1, 10)] == ["", "{}", "{}"]
    found = store.entries("job-1", Happening.LATE_RESULT, 5)
    assert [one.entry for one in found] == [2, 3]
    assert store.entries("job-1", Happening.LATE_RESULT, 1) == found[:1]
    assert store.entries("job-1", Happening.LATE_RESULT, 5, lease_id="b") == found[1:]
    assert store.entries("job-2", Happening.LATE_RESULT, 5) == []


def test_a_reply_is_overwritten_by_its_key(store: Store) -> None:
    store.commit(Changes(replies={"k": a_reply("k", 1.0)}))
    store.commit(Changes(replies={"k": a_reply("k", 2.0)}))
    assert store.reply("k") == a_reply("k", 2.0)


def test_no_changes_are_a_legal_commit(store: Store) -> None:
    store.commit(Changes())
    assert store.load().next_entry == 0


def _everything(store: Store) -> object:
    with closing(store.reader()) as reader:
        return store.load(), reader.history(-1, 99), store.jobs(["job-0", "job-1", "job-2"]), store.reply("k")


BROKEN: list[Callable[[Changes], object]] = [
    lambda changes: changes.new_jobs.update({"job-0": a_job(0)._replace(seq=7)}),
    lambda changes: changes.new_jobs.update({"job-9": a_job(9)._replace(seq=0)}),
    lambda changes: changes.new_jobs.update({"job-9": a_job(9)._replace(seq=2)}),
    lambda changes: changes.new_jobs.update({"job-1": a_job(1)}),
    lambda changes: changes.changed_jobs.update({"job-9": a_job(9)}),
    lambda changes: changes.history.insert(0, entry(1)),
    lambda changes: changes.history.append(changes.history[-1]),
]


@pytest.mark.parametrize("breaks", BROKEN)
def test_changes_with_one_bad_row_in_the_middle_leave_nothing(
    store: Store, breaks: Callable[[Changes], object]
) -> None:
    store.commit(submitted(a_job(0), a_job(1)))
    before = _everything(store)
    changes = Changes(
        new_jobs={"job-2": a_job(2)},
        changed_jobs={"job-1": claimed(a_job(1))},
        resources={"p/0": a_server(0)},
        history=[entry(2), entry(3)],
        replies={"k": a_reply("k")},
    )
    breaks(changes)
    with pytest.raises(StoreFailedError):
        store.commit(changes)
    assert _everything(store) == before
    store.commit(submitted(a_job(2), first_entry=2))
    assert store.load().next_seq == 3
