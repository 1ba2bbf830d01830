"""The journal: the ledger's state in a SQLite file, so that a killed ledger resumes where it was."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import orjson
from pydantic import TypeAdapter

from headgate.core import credible
from headgate.core.errors import JournalError
from headgate.durable import sqlite
from headgate.durable.locks import FileLock, LockHeldError, lock_of
from headgate.placement.pool import Group, Pool
from headgate.placement.request import Occupancy
from headgate.placement.service.protocol import Outcome, WorkKind, WorkOrder

_VERSION: Final = 1
_LONGEST_RETRY_S: Final = 3_600.0

_POOLS: Final = TypeAdapter(Pool)
_GROUPS: Final = TypeAdapter(Group)
_REQUESTS: Final = TypeAdapter(Occupancy)
_COUNTS: Final = TypeAdapter(list[float])
R = TypeVar("R")

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pools (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS groups (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS requests (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS durations (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS payloads (name TEXT PRIMARY KEY, kind TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS states (name TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS results (name TEXT PRIMARY KEY, kind TEXT NOT NULL, body BLOB NOT NULL, why TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Writes:
    """The writes of one step, in one transaction; a value of None deletes the row.

    Attributes:
        pools: name -> pool.
        groups: group id -> group.
        requests: request id -> request; None deletes its payload, state and result, too.
        durations: kind of work -> how many runs of it ended in each bin.
        payloads: request id -> how it runs and its payload.
        states: request id -> state that its work has saved.
        results: request id -> how it ended.
        meta: name -> a value of the service itself.
        spent: requests that have ended: their payload and state are deleted.
    """

    pools: Mapping[str, Pool | None] = field(default_factory=dict)
    groups: Mapping[str, Group | None] = field(default_factory=dict)
    requests: Mapping[str, Occupancy | None] = field(default_factory=dict)
    durations: Mapping[str, list[float] | None] = field(default_factory=dict)
    payloads: Mapping[str, tuple[WorkKind, bytes]] = field(default_factory=dict)
    states: Mapping[str, bytes] = field(default_factory=dict)
    results: Mapping[str, Outcome] = field(default_factory=dict)
    meta: Mapping[str, object] = field(default_factory=dict)
    spent: Iterable[str] = ()


@dataclass(frozen=True, slots=True)
class Journalled:
    """The content of a journal, with times on the clock of this process."""

    pools: list[Pool]
    groups: list[Group]
    requests: list[Occupancy]
    durations: dict[str, list[float]] = field(default_factory=dict)


class Journal:
    """One SQLite file in WAL mode, owned by one service at a time through a lock file beside it.

    A commit survives the death of the process. A power failure may lose the last few (`synchronous=NORMAL`), but then
    everything in Ray is gone anyway.

    Attributes:
        generation: number of this opening; grows by one each time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = 0
        self._lock = FileLock(_lock_of(path))
        self._db: sqlite3.Connection | None = None

    def open(self) -> Self:
        """Lock this journal for one service, and increment its generation.

        Raises:
            JournalError: another service has it open, it cannot be written, or it is of a newer Headgate.
        """
        self._take_lock()
        try:
            with self._failing("opened"):
                self._db = sqlite.connected(self.path, synchronous="NORMAL")
                self._prepare(self._db)
        except BaseException:
            self.close()
            raise
        return self

    def load(self, *, now: float, wall: float) -> Journalled:
        """Return the journal's content, with monotonic times of an earlier boot or machine converted to this clock."""
        before = self.meta("clock")
        offset = wall - now
        shift = before - offset if isinstance(before, float) else 0.0
        self.commit(Writes(meta={"clock": offset}))
        groups = [replace(each, since=min(each.since + shift, now)) for each in self._read("groups", _GROUPS)]
        requests = [_moved(each, shift, now) for each in self._read("requests", _REQUESTS)]
        with self._failing("read"):
            counted = self._connection().execute("SELECT name, body FROM durations").fetchall()
        durations = {name: _COUNTS.validate_json(body) for name, body in counted}
        return Journalled(list(self._read("pools", _POOLS)), groups, requests, durations)

    def commit(self, writes: Writes) -> None:
        """Write a step.

        Raises:
            JournalError: it could not be written; none of it is journalled.
        """
        with self._failing("written"):
            db = self._connection()
            with sqlite.transaction(db):
                _write(db, writes)

    def meta(self, name: str) -> Any:
        """Return the service's value under a name, or None."""
        row = self._one("SELECT value FROM meta WHERE name = ?", name)
        return None if row is None else orjson.loads(row[0])

    def payload(self, request_id: str) -> tuple[WorkKind, bytes]:
        """Return how a request runs and its payload; a lease if none is journalled."""
        row = self._one("SELECT kind, body FROM payloads WHERE name = ?", request_id)
        return ("lease", b"") if row is None else (row[0], row[1])

    def state(self, request_id: str) -> bytes | None:
        """Return the state that a request's work saved last; None if there is none."""
        row = self._one("SELECT body FROM states WHERE name = ?", request_id)
        return None if row is None else row[0]

    def result(self, request_id: str) -> Outcome | None:
        """Return how a request's work ended by itself."""
        row = self._one("SELECT kind, body, why FROM results WHERE name = ?", request_id)
        return None if row is None else Outcome(*row)

    def order(self, request: Occupancy) -> WorkOrder:
        """Return the order to start a request's work, or to adopt it after a restart."""
        kind, payload = self.payload(request.request_id)
        return WorkOrder(
            request.request_id,
            request.lease_id,
            request.epoch,
            kind,
            payload,
            self.state(request.request_id),
            request.request.bundles,
        )

    def names(self, table: str) -> set[str]:
        """Return the names of journalled pools, groups or requests; for the audit."""
        assert table in {"pools", "groups", "requests"}, table
        with self._failing("read"):
            return {row[0] for row in self._connection().execute(f"SELECT name FROM {table}")}  # noqa: S608 - see above

    def close(self) -> None:
        """Close the journal and release its lock; legal twice."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):  # what was committed is safe; the log is merged at the next opening
                db.close()
        self._lock.give_back()

    def _take_lock(self) -> None:
        try:
            self._lock.take(f"process {os.getpid()}\n")
        except LockHeldError as error:
            raise JournalError(
                f"The journal {self.path} is written by {error.holder}",
                next_step="Each cluster has a ledger of its own: give this one another journal.",
            ) from error
        except OSError as error:
            raise JournalError(f"The journal {self.path} could not be opened: {error.strerror}") from error

    def _prepare(self, db: sqlite3.Connection) -> None:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise JournalError(
                f"The journal {self.path} is of version {version}, this Headgate writes {_VERSION}",
                next_step="Use the newer Headgate, or another journal.",
            )
        db.executescript(_TABLES)
        db.execute(f"PRAGMA user_version={_VERSION}")
        self.generation = int(self.meta("generation") or 0) + 1
        self.commit(Writes(meta={"generation": self.generation}))

    def _read(self, table: str, adapter: TypeAdapter[R]) -> Iterator[R]:
        with self._failing("read"):
            rows = self._connection().execute(f"SELECT body FROM {table} ORDER BY name").fetchall()  # noqa: S608 - ours
        for (body,) in rows:
            yield adapter.validate_json(body)

    def _one(self, statement: str, name: str) -> Any:
        with self._failing("read"):
            return self._connection().execute(statement, (name,)).fetchone()

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise JournalError(f"The journal {self.path} is closed")
        return self._db

    def _failing(self, done: str) -> AbstractContextManager[None]:
        return sqlite.failing_as(JournalError, f"The journal {self.path} could not be {done}", self.path)


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def read_journal(path: Path) -> tuple[Journalled, float]:
    """Return the content of a journal that a service has open, and the seconds to add to its times for wall time.

    Raises:
        JournalError: there is none, no ledger has it open, it cannot be read, or it is of a newer Headgate.
    """
    with suppress(OSError):  # a lock that this user may not read tells nothing
        if path.exists() and not lock_of(_lock_of(path))[0]:
            raise JournalError(f"no ledger runs: no process has the journal {path} open")
    failing = sqlite.failing_as(JournalError, f"The journal {path} could not be read", path)
    with failing, contextlib.closing(sqlite.connected_to_read(path)) as db:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise JournalError(f"The journal {path} is of version {version}, this Headgate reads {_VERSION}")
        with sqlite.transaction(db, "BEGIN"):
            clock = db.execute("SELECT value FROM meta WHERE name = 'clock'").fetchone()
            pools, groups, requests = (
                [body for (body,) in db.execute(f"SELECT body FROM {table} ORDER BY name")]  # noqa: S608 - ours
                for table in ("pools", "groups", "requests")
            )
    found = Journalled(
        [_POOLS.validate_json(body) for body in pools],
        [_GROUPS.validate_json(body) for body in groups],
        [_REQUESTS.validate_json(body) for body in requests],
    )
    return found, float(orjson.loads(clock[0])) if clock else 0.0


def _write(db: sqlite3.Connection, writes: Writes) -> None:
    tables: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("pools", writes.pools),
        ("groups", writes.groups),
        ("requests", writes.requests),
        ("durations", writes.durations),
    )
    for table, rows in tables:
        for name, row in rows.items():
            if row is None:
                db.execute(f"DELETE FROM {table} WHERE name = ?", (name,))  # noqa: S608 - one of the four above
            else:
                body = orjson.dumps(row, default=list)  # sets
                db.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", (name, body))  # noqa: S608 - as above
    gone = [(name,) for name, row in writes.requests.items() if row is None]
    spent = [*gone, *((name,) for name in writes.spent)]
    payloads = [(name, kind, payload) for name, (kind, payload) in writes.payloads.items()]
    results = [(name, ended.kind, ended.payload, ended.why) for name, ended in writes.results.items()]
    meta = [(name, orjson.dumps(value)) for name, value in writes.meta.items()]
    db.executemany("DELETE FROM payloads WHERE name = ?", spent)
    db.executemany("DELETE FROM states WHERE name = ?", spent)
    db.executemany("DELETE FROM results WHERE name = ?", gone)
    db.executemany("INSERT OR REPLACE INTO payloads VALUES (?, ?, ?)", payloads)
    db.executemany("INSERT OR REPLACE INTO states VALUES (?, ?)", writes.states.items())
    db.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", results)
    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta)


def _moved(request: Occupancy, shift: float, now: float) -> Occupancy:
    """Return a request with its times converted to this clock; times that lie ahead of it become `now`."""
    return replace(
        request,
        submitted_at=min(request.submitted_at + shift, now),
        started_at=None if request.started_at is None else min(request.started_at + shift, now),
        saved_at=min(request.saved_at + shift, now),
        waiting_since=min(request.waiting_since + shift, now),
        not_before=credible(request.not_before + shift, now, ahead_s=_LONGEST_RETRY_S),
        stop_at=min(request.stop_at + shift, now),
    )
