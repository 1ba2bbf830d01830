"""SQLite files: common settings, transactions, and errors that name the repair command when a file is damaged."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from headgate.core.errors import HeadgateError, JournalError

_AGAIN_S: Final = 0.01


class DamagedRowError(sqlite3.DatabaseError):
    """A row does not contain what was written: SQLite checks the structure of its pages, not their contents."""


def connected(path: Path, *, synchronous: Literal["FULL", "NORMAL"], busy_s: float = 5.0) -> sqlite3.Connection:
    """Return a connection to a file, creating it if missing; readers never wait for a writer (WAL).

    It starts no transactions by itself, and threads may take turns using it.

    Args:
        path: the file; its folder must exist.
        synchronous: FULL keeps every commit through a power cut; NORMAL may lose the last ones, but none at a kill.
        busy_s: longest wait in seconds for its turn when others hold the file.

    Raises:
        sqlite3.Error: if the file cannot be opened, or is not a database.
    """
    db = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        until = time.monotonic() + busy_s
        # Checked first: changing the mode needs exclusive access, which another running process prevents.
        while db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                db.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                # Of two concurrent changes, SQLite refuses one without waiting.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                    raise
                time.sleep(_AGAIN_S)
        db.execute(f"PRAGMA synchronous = {synchronous}")
    except BaseException:
        db.close()
        raise
    return db


def connected_to_read(path: Path, *, busy_s: float = 5.0) -> sqlite3.Connection:
    """Return a read-only connection to an existing file; raises `sqlite3.Error` where there is none."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False)


@contextmanager
def transaction(db: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Commit all changes made inside, or none; `begin` may be a script whose first statement begins the transaction."""
    if db.in_transaction:  # the previous one's rollback failed, too
        db.execute("ROLLBACK")
    try:
        if ";" in begin:
            db.executescript(begin)
        else:
            db.execute(begin)
        yield
        db.execute("COMMIT")
    finally:
        # SQLite ends some failed transactions itself and leaves others open, such as a COMMIT on a full disk.
        if db.in_transaction:
            db.execute("ROLLBACK")


def is_damage(error: BaseException) -> bool:
    """Return whether a database error means that its file is damaged, so that retrying does not help."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    is_known = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or str(error).startswith("Could not decode")
    return isinstance(error, DamagedRowError) or (isinstance(error, sqlite3.Error) and is_known)


@contextmanager
def failing_as(kind: type[HeadgateError], said: str, path: Path) -> Iterator[None]:
    """Raise errors of SQLite and the operating system as Headgate's, with what to do about damage.

    Args:
        kind: class of the error.
        said: the sentence before the reason, such as `journal x.db cannot be opened`.
        path: the file.
    """
    try:
        yield
    except (sqlite3.Error, OSError, OverflowError) as error:
        raise kind(f"{said}: {str(error).rstrip('.')}", next_step=_next_step(error, path)) from error


@contextmanager
def damage_told(path: Path) -> Iterator[None]:
    """Raise `JournalError` if the file turns out to be damaged; all other errors propagate unchanged."""
    try:
        yield
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        raise JournalError(f"{path} is damaged: {error}", next_step=_next_step(error, path)) from error


def _next_step(error: BaseException, path: Path) -> str | None:
    said = f"Stop what uses it, and run `headgate repair {path}`: it saves what is intact and lists what is not."
    return said if is_damage(error) else None
