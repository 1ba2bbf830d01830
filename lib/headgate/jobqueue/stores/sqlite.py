"""A store in a SQLite file: durable without a server of its own."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Self

import orjson

from headgate.core import next_step_after
from headgate.jobqueue.errors import StoreFailedError, StoreInUseError
from headgate.jobqueue.stores.rows import Batch, Row
from headgate.jobqueue.stores.sql import SqlReader, SqlStore, check_found
from headgate.jobqueue.stores.statements import check_version, migrations, statements, steps_from

_BUSY_S = 5.0  # another process may hold the file for a moment, e.g. to copy it


class LockFile:
    """A file that one owner at a time has locked. The operating system frees it when the owner dies, however it does.

    The file stays when it is given back: removing it would let two owners lock two files of the same name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def take(self, owner: str) -> None:
        """Lock it and write down who has it.

        Raises:
            StoreInUseError: when it is locked, here or by another process.
            StoreFailedError: when it cannot be made.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreFailedError(f"The lock file {self._path} could not be opened: {error.strerror}") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 1_000, 0).decode(errors="replace").strip() or "a process that just started"
            os.close(handle)
            raise StoreInUseError(f"The job queue of {self._path} is served by {holder}") from error
        except OSError as error:
            os.close(handle)
            raise StoreFailedError(f"The lock file {self._path} could not be locked: {error.strerror}") from error
        with suppress(OSError):  # on a full disk, the lock holds without its words
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} ({owner})\n".encode(errors="replace"), 0)
        self._handle = handle

    def give_back(self) -> None:
        """Unlock it; legal twice."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


class SqliteStore(SqlStore[sqlite3.Connection]):
    """A `Store` in one SQLite file, owned through a lock file beside it, which ends with its process."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path = path
        self._lock_file = LockFile(path.with_name(path.name + ".lock"))

    def own(self, owner: str) -> Self:
        """Become the only ledger that writes here, creating or migrating tables as needed.

        Raises:
            StoreInUseError: when another process owns it.
            StoreFailedError: when it cannot be opened or written, or is newer than this Headgate.
        """
        self._lock_file.take(owner)
        try:
            with self._failing("opened"):
                self._db = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
                _prepare(self._db)
        except BaseException:
            self.close()
            raise
        return self

    def reader(self) -> SqlReader:
        """Return a reader with a connection of its own.

        Raises:
            StoreFailedError: when there is not a job queue in the file, or one of another version.
        """
        lock = Lock()  # one connection, which threads of a server share
        with self._failing("opened"):
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            db = sqlite3.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                check_version(_version_of(db), "sqlite", str(self._path))
            except (sqlite3.Error, StoreFailedError):
                db.close()
                raise

        def select(name: str, parameters: Mapping[str, Any], filters: str = "") -> list[Row]:
            with lock, self._failing("read"):
                return self._selected(db, name, parameters, filters)

        return SqlReader(select, db.close)

    def close(self) -> None:
        """Give ownership and the connection up; legal twice."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):  # what was committed is safe; the log is merged at the next opening
                db.close()
        self._lock_file.give_back()

    @contextmanager
    def _failing(self, done: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, OverflowError) as error:
            raise StoreFailedError(
                f"The job queue in {self._path} could not be {done}: {str(error).rstrip('.')}",
                next_step=next_step_after(error, self._path),
            ) from error

    @staticmethod
    def _selected(db: sqlite3.Connection, name: str, parameters: Mapping[str, Any], filters: str = "") -> list[Row]:
        with closing(db.cursor()) as cursor:
            return cursor.execute(statements("sqlite", filters)[name], parameters).fetchall()

    @staticmethod
    def _array(listed: Sequence[str]) -> str:
        return orjson.dumps(listed).decode()

    @staticmethod
    def _write(db: sqlite3.Connection, batches: Sequence[Batch]) -> None:
        with _transaction(db), closing(db.cursor()) as cursor:
            for batch in batches:
                cursor.executemany(statements("sqlite")[batch.statement], batch.rows)
                check_found(batch, cursor.rowcount)


def _prepare(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")  # in WAL mode, NORMAL can forget acknowledged commits at a power cut
    db.execute("PRAGMA journal_size_limit = 67108864")
    place = db.execute("PRAGMA database_list").fetchone()[2]
    for step in steps_from(_version_of(db), "sqlite", place):
        with _transaction(db, first=step.sql):
            recorded = {"version": step.version, "name": step.name, "applied_at": time.time()}
            db.execute(statements("sqlite")["record_version"], recorded)


@contextmanager
def _transaction(db: sqlite3.Connection, first: str = "") -> Iterator[None]:
    """Commit what happens inside, or nothing of it; `first` is a script, which has to begin the transaction itself."""
    if db.in_transaction:  # the rollback of the last one failed, too
        db.execute("ROLLBACK")
    try:
        db.executescript(f"BEGIN IMMEDIATE;\n{first}")
        yield
        db.execute("COMMIT")
    finally:
        # SQLite ends the transaction itself on a full disk, but not on a broken constraint.
        if db.in_transaction:
            db.execute("ROLLBACK")


def _version_of(db: sqlite3.Connection) -> int:
    named = statements("sqlite")
    ((has_tables,),) = db.execute(named["has_tables"])
    if not has_tables:
        return 0
    (version,) = db.execute(named["version"]).fetchone()
    return _version_by_tables(db) if version is None else int(version)


def _version_by_tables(db: sqlite3.Connection) -> int:
    """Return the version of a queue that lost the record of it, as a repaired one may have; 1 when no tables are it."""
    version = 1
    with closing(sqlite3.connect(":memory:")) as made:
        for step in migrations("sqlite"):
            made.executescript(step.sql)
            if _tables(made) <= _tables(db):
                version = step.version
    return version


def _tables(db: sqlite3.Connection) -> set[str]:
    return {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")}
