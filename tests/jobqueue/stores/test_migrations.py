"""Tables of earlier versions are brought up to date, those of later ones are refused."""

from __future__ import annotations

from contextlib import closing

import pytest

from headgate.jobqueue import ClaimRequest, Completion, Ended, Instant, JobQuery, JobState, LeaseRef, Ledger
from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.stores import sql
from headgate.jobqueue.stores.sql import Dialect, Migration, migrations
from tests.jobqueue.stores.places import Place
from tests.jobqueue.stores.values import a_job, submitted

IN_VERSION_1 = """
INSERT INTO jobs VALUES (7, 'old', 'red', 't', 'i', 'p', 'r', '{}', -2, 3, 1.5, 'dead', 4, 3, 'l', 'w', 90.5, 2.5, 3.5,
                         'e', '', '', '', -1);
INSERT INTO history VALUES (9, 1.5, 'died', 'old', 4, 'l', 'w', '', 'e');
INSERT INTO pools VALUES ('p', 3);
INSERT INTO pools VALUES ('q', 1);
INSERT INTO resources VALUES ('p', 0, 'gpu-1', 80, '[]', '[]', '{}', 'draining', 2, '', '', '', 0, 0, 'why');
INSERT INTO resources VALUES ('p', 2, 'gpu-2', 80, '[]', '[]', '{}', 'open', 2, '', '', '', 0, 0, '');
INSERT INTO resources VALUES ('q', 0, 'GPU-1', 80, '["t"]', '[]', '{"k":1}', 'open', 4, '', '', '', 0, 0, '');
"""

IN_VERSION_3 = """
INSERT INTO jobs VALUES (0, 'waits', 'red', 't', 'i', 'p', 'r', '{}', -2, 3, 1.5, 'pending', 2, 2, '', '', 0, 2.5, 0,
                         'e', '', '', '', -1);
INSERT INTO jobs VALUES (1, 'runs', 'red', 't', 'i', '', '', '{}', 0, 3, 1.5, 'in_progress', 1, 0, 'l1', 'w', 90.5, 2.5,
                         0, '', '', '', '', -1);
INSERT INTO jobs VALUES (4, 'done', 'blue', 't', 'i', '', '', '{}', 0, 3, 1.5, 'done', 1, 0, 'l4', 'w', 90.5, 2.5, 3.5,
                         '', '{"score":1}', 's3://r', 'sha256:0', 6);
INSERT INTO jobs VALUES (5, 'dead', 'blue', 't', 'i', '', '', '{}', 0, 3, 1.5, 'dead', 3, 3, '', 'w', 0, 2.5, 3.5,
                         'e', '', '', '', -1);
INSERT INTO history VALUES (6, 3.5, 'completed', 'done', 1, 'l4', 'w', '', '');
"""


def use_steps(monkeypatch: pytest.MonkeyPatch, steps: list[Migration]) -> None:
    """Let this Headgate know these steps alone."""
    monkeypatch.setattr(sql, "migrations", lambda dialect: tuple(steps))


def steps_of(place: Place) -> list[Migration]:
    return list(migrations("sqlite" if place.kind == "sqlite" else "postgres"))


def versions_in(place: Place) -> list[int]:
    """Return the versions that a place has recorded."""
    store = place.open().own("me")
    try:
        return [version for (version,) in store._db.execute("SELECT version FROM migrations ORDER BY version")]
    finally:
        store.close()


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_steps_are_numbered_from_one_without_gaps(dialect: Dialect) -> None:
    steps = migrations(dialect)
    assert [step.version for step in steps] == list(range(1, len(steps) + 1))
    assert all(step.name for step in steps)


def test_both_dialects_take_the_same_steps() -> None:
    sqlite, postgres = ([(step.version, step.name) for step in migrations(d)] for d in ("sqlite", "postgres"))
    assert sqlite == postgres


def test_a_queue_of_version_1_is_read_by_this_version(sql_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        use_steps(earlier, steps_of(sql_place)[:1])
        old = sql_place.open().own("old")
        for statement in IN_VERSION_1.split(";\n"):
            old._db.execute(statement)
        old.close()
    store = sql_place.open().own("new")
    snapshot = store.load()
    assert (snapshot.next_seq, snapshot.next_entry, snapshot.next_index) == (8, 10, {"p": 3, "q": 1})
    with closing(store.reader()) as reader:
        (job,) = reader.jobs(JobQuery(state=JobState.DEAD))
    assert (job.job_id, job.spec.priority, job.failures, job.lease_s, job.last_error) == ("old", 2, 3, 90.5, "e")
    store.commit(submitted(a_job(8), first_entry=10))
    ledger = Ledger(store, Instant(0.0, 4.5))
    assert {one.resource_id: [spec.pool for spec in one.specs] for one in ledger.resources().values()} == {
        "p/2": ["p"],
        "q/0": ["q", "p"],
    }
    store.commit(ledger.changes)
    before = ledger.resources()
    store.close()
    assert Ledger(store.own("again"), Instant(0.0, 5.5)).resources() == before
    store.close()
    assert versions_in(sql_place) == [step.version for step in steps_of(sql_place)]


def test_jobs_of_version_3_are_as_they_were_and_go_on(sql_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        use_steps(earlier, steps_of(sql_place)[:3])
        old = sql_place.open().own("old")
        for statement in IN_VERSION_3.split(";\n"):
            old._db.execute(statement)
        old.close()
    store = sql_place.open().own("new")
    with closing(store.reader()) as reader:
        assert [(job.job_id, str(job.state), job[6:]) for job in reader.jobs(JobQuery())] == [
            ("waits", "pending", ("", "", 0.0, 2.5, 0.0, "e", "", "", "")),
            ("runs", "in_progress", ("l1", "w", 90.5, 2.5, 0.0, "", "", "", "")),
            ("done", "done", ("l4", "w", 90.5, 2.5, 3.5, "", '{"score":1}', "s3://r", "sha256:0")),
            ("dead", "dead", ("", "w", 0.0, 2.5, 3.5, "e", "", "", "")),
        ]
        assert [found.entry for found in reader.finished(-1, 9)] == [6]
        ledger, at = Ledger(store, Instant(0.0, 4.5)), Instant(1.0, 5.5)
        assert ledger.totals() == dict.fromkeys(JobState, 1)
        ledger.requeue("dead", at)
        assert isinstance(ledger.claims.complete(LeaseRef("runs", "l1", 1), Completion(), at), Ended)
        taken = ledger.claims.claim(ClaimRequest("w2", 9, pools=frozenset({""})), at)
        assert [(job.job_id, job.epoch) for job in taken] == [("dead", 4)]
        store.commit(ledger.changes)
        assert [found.job.job_id for found in reader.finished(-1, 9)] == ["done", "runs"]
        assert [job.job_id for job in reader.jobs(JobQuery(state=JobState.IN_PROGRESS))] == ["dead"]
    before = store.load()
    store.close()
    assert store.own("again").load() == before
    store.close()


def test_steps_that_are_missing_are_taken_once(sql_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    known = steps_of(sql_place)
    first = sql_place.open().own("old")
    first.commit(submitted(a_job(0)))
    first.close()
    last = known[-1].version
    extra = [
        Migration(last + 1, "a", "CREATE TABLE a (x INTEGER)"),
        Migration(last + 2, "b", "CREATE TABLE b (x INTEGER)"),
    ]
    use_steps(monkeypatch, known + extra)
    for _ in range(2):
        assert versions_in(sql_place) == [*range(1, last + 3)]
    store = sql_place.open().own("new")
    assert store.load().next_seq == 1
    store.close()


def test_a_step_that_fails_in_the_middle_leaves_the_version_before(
    sql_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = steps_of(sql_place)
    sql_place.open().own("old").close()
    bad = Migration(known[-1].version + 1, "bad", "CREATE TABLE a (x INTEGER); INSERT INTO nowhere VALUES (1);")
    with monkeypatch.context() as later:
        use_steps(later, [*known, bad])
        for _ in range(2):  # the second try would find the table of the first
            with pytest.raises(StoreFailedError, match="nowhere"):
                sql_place.open().own("new")
    assert versions_in(sql_place) == [step.version for step in known]


def test_a_queue_of_a_later_version_is_refused_and_not_touched(
    sql_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = steps_of(sql_place)
    extra = Migration(known[-1].version + 1, "later", "CREATE TABLE later (x INTEGER);")
    with monkeypatch.context() as later:
        use_steps(later, [*known, extra])
        sql_place.open().own("new").close()
    for _ in range(2):  # the lock is free after a refusal
        with pytest.raises(StoreFailedError, match=f"tables of version {extra.version}; this Headgate knows version"):
            sql_place.open().own("old")
    with pytest.raises(StoreFailedError, match="Use the Headgate that wrote it"):
        sql_place.open().reader()


def test_a_reader_refuses_tables_that_the_server_has_yet_to_change(
    sql_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = steps_of(sql_place)
    sql_place.open().own("old").close()
    use_steps(monkeypatch, [*known, Migration(known[-1].version + 1, "a", "CREATE TABLE a (x INTEGER)")])
    with pytest.raises(StoreFailedError, match=f"tables of version {known[-1].version} in .*Start the server"):
        sql_place.open().reader()
