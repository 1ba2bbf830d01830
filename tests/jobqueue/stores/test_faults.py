"""Databases that are full, read-only, broken or gone: a sentence, nothing half written, and work goes on afterwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headgate.jobqueue import Changes, JobQuery, Store
from headgate.jobqueue.errors import StoreFailedError, StoreInUseError
from headgate.jobqueue.stores import SqliteStore, open_store
from tests.jobqueue.stores.values import a_job, changed, claimed, entry, submitted

BIG = Changes(
    new_jobs={f"job-{number}": a_job(number) for number in range(1, 400)},
    history=[entry(number, note="x" * 1000) for number in range(1, 400)],
)


def refused(store: Store, changes: Changes, why: str) -> None:
    """Assert that a commit fails for a reason that its message gives, and leaves nothing."""
    with pytest.raises(StoreFailedError, match=why) as failure:
        store.commit(changes)
    assert "could not be written" in failure.value.message
    assert store.load().next_seq == 1
    assert store.load().next_entry == 1


def test_a_full_disk_leaves_a_sqlite_queue_as_it_was(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "queue.db").own("me")
    store.commit(submitted(a_job(0)))
    ((pages,),) = store._db.execute("PRAGMA page_count")
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    refused(store, BIG, "full")
    store._db.execute("PRAGMA max_page_count = 100000")
    store.commit(BIG)
    assert store.load().next_seq == 400
    store.close()


def test_a_read_only_sqlite_queue_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "queue.db").own("me")
    store.commit(submitted(a_job(0)))
    store._db.execute("PRAGMA query_only = ON")
    refused(store, BIG, "readonly")
    store.close()


def test_a_number_that_no_database_holds_is_refused(sql_store: Store) -> None:
    sql_store.commit(submitted(a_job(0)))
    refused(sql_store, submitted(a_job(2**64), first_entry=1), "queue")


def _garbage(path: Path) -> None:
    path.write_bytes(b"no database " * 1000)


@pytest.mark.parametrize(("spoil", "why"), [(_garbage, "not a database"), (Path.mkdir, "unable to open")])
def test_a_file_that_is_no_database_is_refused_and_not_touched(
    tmp_path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    path = tmp_path / "queue.db"
    spoil(path)
    before = path.stat()
    for _ in range(2):  # a failed opening leaves the lock free
        with pytest.raises(StoreFailedError, match=why):
            SqliteStore(path).own("me")
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_a_damaged_page_is_reported_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    store = SqliteStore(path).own("me")
    store.commit(submitted(*(a_job(number) for number in range(500))))
    store.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(bytes(content))
    with pytest.raises(StoreFailedError, match=r"malformed|not a database"):
        SqliteStore(path).own("me").load()


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreFailedError, match=r"lock file .*file/queue\.db\.lock could not be opened"):
        SqliteStore(tmp_path / "file" / "queue.db").own("me")


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a" / "b" / "queue.db").own("me")
    store.commit(submitted(a_job(0)))
    store.close()


def test_a_reader_of_nothing_is_refused_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreFailedError, match="unable to open"):
        SqliteStore(tmp_path / "queue.db").reader()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_reader_of_an_empty_database_is_refused(postgres_url: str) -> None:
    with pytest.raises(StoreFailedError, match="no job queue in postgresql://"):
        open_store(postgres_url).reader()


def _raise_on_insert(db: psycopg.Connection, timing: str, sql_state: str) -> None:
    db.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '{sql_state}'; END $$"
    )
    db.execute(
        f"CREATE CONSTRAINT TRIGGER failing AFTER INSERT ON history {timing} FOR EACH ROW EXECUTE FUNCTION fail()"
    )


@pytest.mark.slow
@pytest.mark.parametrize("timing", ["NOT DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"])
def test_a_full_disk_leaves_a_postgres_queue_as_it_was(postgres_url: str, timing: str) -> None:
    store = open_store(postgres_url).own("me")
    store.commit(submitted(a_job(0)))
    _raise_on_insert(store._db, timing, "53100")
    refused(store, BIG, "could not extend file")
    store._db.execute("DROP TRIGGER failing ON history")
    store.commit(BIG)
    assert store.load().next_seq == 400
    store.close()


@pytest.mark.slow
def test_a_read_only_postgres_queue_says_so(postgres_url: str) -> None:
    store = open_store(postgres_url).own("me")
    store.commit(submitted(a_job(0)))
    store._db.execute("SET default_transaction_read_only = on")
    refused(store, BIG, "read-only transaction")
    store.close()


def _end_connection_of(postgres_url: str, store: Store) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(%s, 5000)", (store._db.info.backend_pid,))


@pytest.mark.slow
def test_a_lost_connection_loses_the_ownership_and_owning_again_gives_it_back(postgres_url: str) -> None:
    store = open_store(postgres_url).own("me")
    store.commit(submitted(a_job(0)))
    _end_connection_of(postgres_url, store)
    with pytest.raises(StoreFailedError, match="could not be written"):
        store.commit(changed(claimed(a_job(0))))
    with pytest.raises(StoreFailedError, match="not owned"):
        store.load()
    store.own("me again").commit(submitted(a_job(1), first_entry=1))
    assert list(store.load().in_progress) == []
    store.close()


@pytest.mark.slow
def test_an_owner_that_lost_its_connection_to_another_one_writes_no_more(postgres_url: str) -> None:
    first, second = open_store(postgres_url).own("first"), open_store(postgres_url)
    _end_connection_of(postgres_url, first)
    second.own("second").commit(submitted(a_job(0)))
    with pytest.raises(StoreFailedError):
        first.commit(submitted(a_job(1), first_entry=1))
    with pytest.raises(StoreInUseError, match="headgate jobqueue: second"):
        first.own("first")
    assert second.load().next_seq == 1
    second.close()


@pytest.mark.slow
def test_a_reader_finds_back_after_a_lost_connection(postgres_url: str) -> None:
    store = open_store(postgres_url).own("me")
    with closing(store.reader()) as reader, psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name ~ 'jobqueue: reader'"
        )
        with pytest.raises(StoreFailedError, match="could not be read"):
            reader.jobs(JobQuery())
        assert reader.jobs(JobQuery()) == []
    store.close()


@pytest.mark.slow
def test_a_password_stands_in_no_message() -> None:
    store = open_store("postgresql://someone:hunter2hunter2@127.0.0.1:1/queue")
    with pytest.raises(StoreFailedError) as failure:
        store.own("me")
    assert "postgresql://127.0.0.1:1/queue" in str(failure.value)
    assert "hunter2" not in str(failure.value) + repr(store) + repr(vars(store))
