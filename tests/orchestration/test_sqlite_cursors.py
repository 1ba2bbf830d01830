"""A failed statement that is collected as garbage holds nobody up."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 3.0
"""How long a connection waits for the database: a test takes as long if it fails."""


def _connection(path: Path) -> sqlite3.Connection:
    from headgate.orchestration.server_app import ReleasingConnection

    opened: sqlite3.Connection = sqlite3.connect(
        path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False, factory=ReleasingConnection
    )
    opened.execute("pragma journal_mode = wal")
    return opened


def test_dropping_the_cursor_of_a_failed_statement_waits_for_no_one(tmp_path: Path) -> None:
    holder, waiter = _connection(tmp_path / "db"), _connection(tmp_path / "db")
    holder.execute("create table names (name text unique)")
    holder.execute("insert into names values ('taken')")
    failed = waiter.cursor()
    with pytest.raises(sqlite3.IntegrityError):
        failed.execute("insert into names values ('taken')")

    holder.execute("begin immediate")
    said: list[str] = []

    def wait_for_the_holder() -> None:
        try:
            waiter.execute("insert into names values ('late')")
        except sqlite3.OperationalError as error:
            said.append(str(error))

    waiting = threading.Thread(target=wait_for_the_holder)
    waiting.start()
    time.sleep(0.3)
    del failed
    holder.execute("commit")
    waiting.join()
    assert said == []
    assert holder.execute("select count(*) from names").fetchone() == (2,)
    holder.close()
    waiter.close()


@pytest.mark.parametrize(
    ("method", "given"),
    [("execute", ("select * from absent",)), ("executemany", ("insert into absent values (?)", []))],
)
def test_a_cursor_is_closed_by_what_fails_and_only_by_that(tmp_path: Path, method: str, given: tuple[Any, ...]) -> None:
    connection = _connection(tmp_path / "db")
    cursor = connection.cursor()
    assert cursor.execute("select 1").fetchall() == [(1,)]
    assert cursor.execute("select 2").fetchall() == [(2,)]
    with pytest.raises(sqlite3.OperationalError, match="absent"):
        getattr(cursor, method)(*given)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        cursor.execute("select 3")
    connection.close()


def test_every_connection_of_sqlalchemy_releases_what_failed(tmp_path: Path) -> None:
    from sqlalchemy import create_engine, text
    from sqlalchemy.exc import IntegrityError

    from headgate.orchestration.server_app import ReleasingConnection, release_failed_statements

    engine = create_engine(f"sqlite:///{tmp_path / 'db'}")
    release_failed_statements(engine)
    with engine.begin() as connection:
        assert isinstance(connection.connection.driver_connection, ReleasingConnection)
        connection.execute(text("create table names (name text unique)"))
        connection.execute(text("insert into names values (:name)"), [{"name": "a"}, {"name": "b"}])
    with pytest.raises(IntegrityError), engine.begin() as connection:
        connection.execute(text("insert into names values (:name)"), [{"name": "c"}, {"name": "a"}])
    with engine.connect() as connection:
        assert connection.execute(text("select name from names order by name")).scalars().all() == ["a", "b"]
    engine.dispose()
