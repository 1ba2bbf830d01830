"""A journal in PostgreSQL: leases that end, connections that are cut, a server that is started again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from headgate.core import Spending
from headgate.core.errors import JournalError
from headgate.durable.databases import DatabaseAwayError, PostgresAddress
from headgate.storage import AlreadyTaken, Journal, SpendingNeed, SpendingReport, journal_postgres
from headgate_bench.postgres import PrivatePostgres
from tests.storage.journals import NOW, SAT, SMALL, die, opened, opening, sample, spool

pytestmark = pytest.mark.slow


@pytest.fixture
def journal(postgres_place: PostgresAddress) -> Iterator[Journal]:
    made = Journal(postgres_place, "main")
    yield made
    made.close()


# Leases.


def test_a_holder_that_is_not_heard_of_for_a_lease_is_dead_and_fenced_when_it_comes_back(
    journal: Journal, postgres_place: PostgresAddress
) -> None:
    late = Journal(postgres_place, "main", lease_s=0.05)
    taken, kept = opened(late, opening(0), opening(1, model="gone@main"))
    spool(late, 2, first=2)
    time.sleep(0.1)
    assert [task.task_id for task in journal.adopt([SAT], [SMALL])] == [taken.task_id]
    assert journal.spool_state().rows == 2
    late.withdraw([taken.task_id])
    assert late.accept([sample(taken)], NOW) == set()
    assert journal.accept([sample(taken)], NOW) == {taken.task_id}
    # It goes on as a holder like any other; what nobody has taken is its own again, and is in its hands already.
    assert late.adopt([SAT], ["gone@main"]) == []
    assert late.accept([sample(kept), *map(sample, opened(late, opening(9)))], NOW) >= {kept.task_id}
    assert (journal.open_count(), journal.spool_count()) == (0, 5)
    late.close()


def test_a_holder_that_renews_its_lease_is_alive(journal: Journal, postgres_place: PostgresAddress) -> None:
    other = Journal(postgres_place, "main", lease_s=0.2)
    opened(other, opening(0))
    for _ in range(4):
        time.sleep(0.07)
        other.renew()
    assert journal.adopt([SAT], [SMALL]) == []
    other.close()


def test_a_holder_that_was_cut_off_itself_buries_nobody_for_a_lease(
    journal: Journal, postgres_place: PostgresAddress
) -> None:
    opened(journal, opening(0))
    other = Journal(postgres_place, "main", lease_s=0.2)
    die(journal)
    time.sleep(0.25)
    other.renew()
    assert other.adopt([SAT], [SMALL]) == []
    for _ in range(4):
        time.sleep(0.07)
        other.renew()
    assert len(other.adopt([SAT], [SMALL])) == 1
    other.close()


def test_who_was_thought_dead_has_no_grant_any_more(journal: Journal, postgres_place: PostgresAddress) -> None:
    def asks(wanted: int, allowed: int = 0) -> dict[str, SpendingReport]:
        return {
            "a": SpendingReport(
                Spending(), SpendingNeed(Spending(wanted), Spending(), Spending(allowed), Spending(1_000))
            )
        }

    late = Journal(postgres_place, "main", lease_s=0.05)
    assert late.exchange_spending(asks(1_000), NOW)["a"].granted == Spending(1_000)
    time.sleep(0.1)
    assert journal.exchange_spending(asks(600), NOW)["a"].granted == Spending(800)
    assert late.exchange_spending(asks(1_000, allowed=1_000), NOW)["a"].granted == Spending(200)
    late.close()


# The server.


def cut(place: PostgresAddress) -> None:
    """End every connection to the database but this one."""
    with psycopg.connect(**place.parameters()) as database:
        database.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_connections_that_are_cut_between_calls_are_made_anew(
    journal: Journal, postgres_place: PostgresAddress
) -> None:
    task, other = opened(journal, opening(0), opening(1))
    cut(postgres_place)
    assert journal.accept([sample(task)], NOW) == {task.task_id}
    cut(postgres_place)
    assert journal.open_count() == 1
    cut(postgres_place)
    journal.renew()
    journal.withdraw([other.task_id])
    assert journal.open_count() == 0


def test_a_connection_that_is_cut_within_a_transaction_leaves_nothing_half_done(
    journal: Journal, postgres_place: PostgresAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task,) = opened(journal, opening(0))
    count = journal._count
    monkeypatch.setattr(journal, "_count", lambda counted: (cut(postgres_place), count(counted)))
    with pytest.raises(DatabaseAwayError):
        journal.accept([sample(task)], NOW)
    monkeypatch.undo()
    assert (journal.open_count(), journal.spool_count()) == (1, 0)
    assert journal.accept([sample(task)], NOW) == {task.task_id}
    batch = journal.next_batch(10)
    assert batch is not None
    assert [one.task_id for one in batch.samples] == [task.task_id]


def test_a_turn_that_does_not_come_is_waited_for_again(
    postgres_place: PostgresAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(journal_postgres._SESSION, "lock_timeout", "100")
    journal = Journal(postgres_place, "main")
    with psycopg.connect(**postgres_place.parameters()) as slow:
        slow.execute("SELECT FROM headgate_journal_main.turn FOR UPDATE")
        with pytest.raises(DatabaseAwayError, match="lock timeout"):
            journal.open([opening(0)])
    assert [task.sequence for task in opened(journal, opening(0))] == [0]
    journal.close()


def test_a_transaction_that_only_read_is_not_committed(journal: Journal, postgres_place: PostgresAddress) -> None:
    other = Journal(postgres_place, "main")
    opened(journal, opening(0))
    with psycopg.connect(**postgres_place.parameters()) as asked:
        writer = f'SELECT holder FROM "{journal_postgres.schema_of("main")}".turn'
        assert asked.execute(writer.encode()).fetchone() == (journal.holder,)
        (found,) = other.open([opening(0)])
        assert isinstance(found, AlreadyTaken)
        assert asked.execute(writer.encode()).fetchone() == (journal.holder,)
        (task,) = opened(other, opening(1))
        assert asked.execute(writer.encode()).fetchone() == (other.holder,)
    assert [one.sequence for one in opened(journal, opening(2))] == [task.sequence + 1]
    other.close()


@pytest.mark.parametrize("is_reached", [True, False])
def test_a_commit_whose_answer_is_lost_counts_as_what_it_was(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, is_reached: bool
) -> None:
    (task,) = opened(journal, opening(0))
    connection: Any = journal._db._db  # type: ignore[attr-defined]
    execute = connection.execute

    def lossy(sql: Any, *values: Any) -> Any:
        if sql != "COMMIT":
            return execute(sql, *values)
        if is_reached:
            execute(sql)
        connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    connection.execute = lossy
    if is_reached:
        assert journal.accept([sample(task)], NOW) == {task.task_id}
    else:
        with pytest.raises(DatabaseAwayError):
            journal.accept([sample(task)], NOW)
        assert journal.accept([sample(task)], NOW) == {task.task_id}
    assert (journal.open_count(), journal.spool_count()) == (0, 1)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_commit_that_is_still_under_way_is_waited_for(
    journal: Journal, postgres_place: PostgresAddress, is_committed: bool
) -> None:
    database: Any = journal._db
    waiting = "SELECT FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
    with (
        psycopg.connect(postgres_place.url()) as under_way,
        psycopg.connect(postgres_place.url(), autocommit=True) as watching,
        ThreadPoolExecutor(1) as threads,
    ):
        mark = f'UPDATE "{database._schema}".holders SET committed = %s WHERE holder = %s'
        under_way.execute(mark.encode(), ("77", journal.holder))
        asked = threads.submit(database._was_committed, "77")
        until = time.monotonic() + 30
        while not watching.execute(waiting, (f"headgate {journal.holder}",)).fetchall() and time.monotonic() < until:
            assert not asked.done()
        (under_way.commit if is_committed else under_way.rollback)()
        assert asked.result(30) is is_committed


def test_a_commit_that_a_crashed_server_has_lost_was_none(journal: Journal) -> None:
    opened(journal, opening(0))
    database: Any = journal._db
    assert database._was_committed("1")
    assert not database._was_committed("2")
    assert journal.open_count() == 1, "and it goes on"


def test_nothing_is_lost_and_nobody_is_dead_when_the_server_crashes_and_starts_again(
    postgres_server: PrivatePostgres,
) -> None:
    server = postgres_server
    with server.fresh_database() as url:
        place = PostgresAddress(url)
        journals = [Journal(place, "main", lease_s=3.0) for _ in range(2)]
        tasks = [opened(journal, opening(number))[0] for number, journal in enumerate(journals)]
        spool(journals[0], 3, first=5)
        server.stop(immediately=True)
        for refused in (journals[0].open_count, journals[1].renew, lambda: journals[1].open([opening(20)])):
            with pytest.raises(DatabaseAwayError):
                refused()
        with pytest.raises(JournalError, match="cannot be opened"):
            Journal(place, "main")
        server.start()
        assert [journals[1 - number].adopt([SAT], [SMALL]) for number in range(2)] == [[], []]
        for journal, task in zip(journals, tasks, strict=True):
            assert journal.accept([sample(task)], NOW) == {task.task_id}
        assert opened(journals[1], opening(20))[0].sequence == 5
        assert journals[0].spool_count() == 5
        for journal in journals:
            journal.close()


def test_a_journal_of_another_version_is_refused_with_the_next_step(
    journal: Journal, postgres_place: PostgresAddress
) -> None:
    journal._db.run("set_meta", {"key": "schema_version", "value": "9"})
    try:
        with pytest.raises(JournalError, match="has format 9, this version reads 2") as refused:
            Journal(postgres_place, "main")
        assert "version of Headgate that wrote it" in str(refused.value)
    finally:
        journal._db.run("set_meta", {"key": "schema_version", "value": "2"})


def test_a_server_that_is_not_there_is_told_without_the_password() -> None:
    with pytest.raises(JournalError, match="cannot be opened") as refused:
        Journal(PostgresAddress("postgresql://me:not-for-people@127.0.0.1:1/x"), "main")
    assert "not-for-people" not in str(refused.value)
    assert "postgresql://127.0.0.1:1/x" in str(refused.value)
