"""Stores in SQLite: a file, durable without a database server, and memory, for queues that may be lost."""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from sqlite3 import Connection
from threading import Lock
from typing import Any, Self

import orjson

from headgate.durable import sqlite
from headgate.durable.locks import FileLock, LockHeldError
from headgate.jobqueue.errors import StoreFailedError, StoreInUseError
from headgate.jobqueue.stores.rows import Batch, Row
from headgate.jobqueue.stores.sql import (
    Reader,
    Store,
    check_found,
    migrations,
    statements,
    steps_from,
)


class SqliteStore(Store):
    """A `Store` in one SQLite file, owned through a lock on a file beside it, which ends with its process."""

    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path = path
        self._lock = FileLock(path.with_name(path.name + ".lock"))

    def own(self, owner: str) -> Self:
        """Become the only ledger that writes here."""
        try:
            self._lock.take(f"process {os.getpid()} ({owner})\n")
        except LockHeldError as error:
            raise StoreInUseError(f"The job queue of {self._path} is served by {error.holder}") from error
        except OSError as error:
            raise StoreFailedError(f"The lock file {self._path}.lock could not be opened: {error.strerror}") from error
        try:
            with self._failing("opened"):
                self._db = sqlite.connected(self._path, synchronous="FULL")
                prepare(self._db)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Release ownership and close the connection; may be called twice."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):  # what was committed is safe; the log is merged at the next opening
                db.close()
        self._lock.give_back()

    def _failing(self, done: str) -> AbstractContextManager[None]:
        return sqlite.failing_as(StoreFailedError, f"The job queue in {self._path} could not be {done}", self._path)

    def _connected_to_read(self) -> sqlite3.Connection:
        return sqlite.connected_to_read(self._path)

    def _version(self, db: sqlite3.Connection) -> int:
        return _version_of(db)

    def _selected(
        self, db: sqlite3.Connection, name: str, parameters: Mapping[str, Any], filters: str = ""
    ) -> list[Row]:
        with closing(db.cursor()) as cursor:
            return cursor.execute(statements("sqlite", filters)[name], parameters).fetchall()

    def _array(self, listed: Sequence[str]) -> str:
        return orjson.dumps(listed).decode()

    def _write(self, db: sqlite3.Connection, batches: Sequence[Batch]) -> None:
        with sqlite.transaction(db), closing(db.cursor()) as cursor:
            for batch in batches:
                cursor.executemany(statements("sqlite")[batch.statement], batch.rows)
                check_found(batch, cursor.rowcount)


def prepare(db: sqlite3.Connection) -> None:
    """Create or migrate the tables."""
    db.execute("PRAGMA journal_size_limit = 67108864")
    place = db.execute("PRAGMA database_list").fetchone()[2]
    for step in steps_from(_version_of(db), "sqlite", place):
        with sqlite.transaction(db, f"BEGIN IMMEDIATE;\n{step.sql}"):
            recorded = {"version": step.version, "name": step.name, "applied_at": time.time()}
            db.execute(statements("sqlite")["record_version"], recorded)


def _version_of(db: sqlite3.Connection) -> int:
    named = statements("sqlite")
    ((has_tables,),) = db.execute(named["has_tables"])
    if not has_tables:
        return 0
    (version,) = db.execute(named["version"]).fetchone()
    return _version_by_tables(db) if version is None else int(version)


def _version_by_tables(db: sqlite3.Connection) -> int:
    """Return the version of a queue that lost its version record, as a repaired file may; 1 when no tables match."""
    version = 1
    with closing(sqlite3.connect(":memory:")) as made:
        for step in migrations("sqlite"):
            made.executescript(step.sql)
            if _tables(made) <= _tables(db):
                version = step.version
    return version


def _tables(db: sqlite3.Connection) -> set[str]:
    return {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")}


_MEMORY = Path(":memory:")


class _MemoryReader(Reader):
    def _drop(self) -> None:
        """Leave the connection open: it is the store's, and closing it would lose the rows."""


class MemoryStore(SqliteStore):
    """A `Store` whose rows live as long as this object: a later ledger that owns it finds the rows of an earlier one.

    The ledger and all readers share one connection; a lock keeps readers from seeing half a commit.
    """

    def __init__(self) -> None:
        super().__init__(_MEMORY)
        self._rows = sqlite.connected(_MEMORY, synchronous="NORMAL")
        self._turn = Lock()
        self._owner = ""
        weakref.finalize(self, self._rows.close)
        prepare(self._rows)

    def own(self, owner: str) -> Self:
        """Become the only ledger that writes here."""
        if self._db is not None:
            raise StoreInUseError(f"This job queue in memory is served by {self._owner!r}")
        self._db, self._owner = self._rows, owner
        return self

    def close(self) -> None:
        """Release ownership and keep the rows; may be called twice."""
        self._db = None

    def reader(self) -> Reader:
        """Return a reader of the same rows."""
        return _MemoryReader(lambda: self._rows, self._read)

    def _selected(self, db: Connection, name: str, parameters: Mapping[str, Any], filters: str = "") -> list[Row]:
        with self._turn:
            return super()._selected(db, name, parameters, filters)

    def _write(self, db: Connection, batches: Sequence[Batch]) -> None:
        with self._turn:
            super()._write(db, batches)
