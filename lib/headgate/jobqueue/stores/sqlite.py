"""A store in a SQLite file: durable without a server of its own."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Self

import orjson

from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.job import Job, Lane, Place
from headgate.jobqueue.port import Changes, Reply, Snapshot
from headgate.jobqueue.stores import reading
from headgate.jobqueue.stores.lock_file import LockFile
from headgate.jobqueue.stores.rows import Row, job_of_row, storable_text
from headgate.jobqueue.stores.statements import check_version, statements, steps_from
from headgate.jobqueue.stores.writing import Batch, batches_of, flaw_of

_BUSY_S = 5.0  # another process may hold the file for a moment, e.g. to copy it


class SqliteStore:
    """A `Store` in one SQLite file, owned through a lock file beside it, which ends with its process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_file = LockFile(path.with_name(path.name + ".lock"))
        self._db: sqlite3.Connection | None = None

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

    def load(self) -> Snapshot:
        """Return what a ledger starts from."""
        return reading.snapshot(self._select)

    def jobs(self, job_ids: Sequence[str]) -> dict[str, Job]:
        """Return those of the jobs that exist, by id."""
        asked = orjson.dumps([storable_text(job_id) for job_id in job_ids]).decode()
        jobs = map(job_of_row, self._select("jobs_by_id", {"job_ids": asked}))
        return {job.job_id: job for job in jobs}

    def pending(self, lane: Lane, after: Place | None, limit: int) -> list[Job]:
        """Return up to `limit` pending jobs of a lane behind a place (None: from the first), by place."""
        return reading.pending(self._select, lane, after, limit)

    def reply(self, key: str) -> Reply | None:
        """Return the remembered reply of a key."""
        return reading.reply(self._select, key)

    def commit(self, changes: Changes) -> None:
        """Write all changes durably, or none.

        Raises:
            StoreFailedError: when they could not be written.
        """
        if flaw := flaw_of(changes):
            raise StoreFailedError(f"The job queue in {self._path} refused the changes: {flaw}")
        with self._failing("written"):
            db = self._connection()
            with _transaction(db):
                for batch in batches_of(changes):
                    _write(db, batch)

    def reader(self) -> reading.SqlReader:
        """Return a reader with a connection of its own.

        Raises:
            StoreFailedError: when there is no job queue in the file, or one of another version.
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
                return _selected(db, name, parameters, filters)

        return reading.SqlReader(select, db.close)

    def close(self) -> None:
        """Give ownership and the connection up; legal twice."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):  # what was committed is safe; the log is merged at the next opening
                db.close()
        self._lock_file.give_back()

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreFailedError(
                f"The job queue in {self._path} is not owned", next_step="Call `own` before reading or writing it."
            )
        return self._db

    def _select(self, name: str, parameters: Mapping[str, Any], filters: str = "") -> list[Row]:
        with self._failing("read"):
            return _selected(self._connection(), name, parameters, filters)

    @contextmanager
    def _failing(self, done: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, OverflowError) as error:
            raise StoreFailedError(
                f"The job queue in {self._path} could not be {done}: {str(error).rstrip('.')}"
            ) from error


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
    return int(db.execute(named["version"]).fetchone()[0]) if has_tables else 0


def _selected(db: sqlite3.Connection, name: str, parameters: Mapping[str, Any], filters: str) -> list[Row]:
    with closing(db.cursor()) as cursor:
        return cursor.execute(statements("sqlite", filters)[name], parameters).fetchall()


def _write(db: sqlite3.Connection, batch: Batch) -> None:
    with closing(db.cursor()) as cursor:
        cursor.executemany(statements("sqlite")[batch.statement], batch.rows)
        if batch.must_match and cursor.rowcount != len(batch.rows):
            raise StoreFailedError(
                f"{len(batch.rows)} jobs were to be changed, and {cursor.rowcount} of them are in the database"
            )
