"""Repairs a damaged SQLite file: copies what is intact into a new one, and reports what cannot be read."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from headgate.core import errors
from headgate.durable.databases import statements
from headgate.durable.sqlite import is_damage
from headgate.storage.spool import is_readable

_LARGEST_GAP: Final = 100_000
"""Maximum rows between two readable ones that are tried one by one; more than any damaged page holds."""

_JOURNAL: Final = {"spool", "spooled_samples", "pairs", "open_tasks", "meta"}
"""Tables that identify a journal of samples."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a repair.

    Attributes:
        rows: saved rows by table.
        lost: what could not be saved.
        kept_as: path of the unchanged damaged file; None if nothing was damaged.
    """

    rows: dict[str, int]
    lost: tuple[str, ...] = ()
    kept_as: Path | None = None


def repair(path: Path, now: float) -> Repaired:
    """Copy the intact rows of a SQLite file into one that replaces it, and keep the damaged file beside it.

    Args:
        path: a journal of samples or of placement, a job queue, or its tokens. An intact file is left as it is.
        now: wall time in seconds; becomes the time of acceptance of samples that lost theirs.

    Raises:
        JournalError: if the file does not exist, a process uses it, or the new one cannot be written.
    """
    if not path.is_file():
        raise errors.JournalError(f"there is no file {path} to repair", next_step="Name the file of the database.")
    new = path.with_name(f"{path.name}.repairing")
    new.unlink(missing_ok=True)
    try:
        with closing(_alone(path)) as damaged:
            if _is_whole(damaged):
                return Repaired({})
            with closing(sqlite3.connect(new, isolation_level=None)) as fresh:
                rows, lost = _saved(damaged, fresh)
                if rows.keys() >= _JOURNAL:
                    lost = _journal_repaired(fresh, set(lost), now)
        return Repaired(rows, tuple(lost), _put_in_place(path, new, now))
    except (OSError, sqlite3.Error) as error:
        raise errors.JournalError(
            f"{path} cannot be repaired: {error}",
            next_step="Stop what uses it, and make sure that its folder is writable and has room for a copy.",
        ) from error


def _alone(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=1.0, isolation_level=None)
    db.text_factory = lambda text: text.decode(errors="replace")
    try:
        db.execute("PRAGMA writable_schema = ON")  # without it, SQLite reads nothing from a truncated file
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        db.execute("ROLLBACK")
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            db.close()
            raise
    return db


def _is_whole(db: sqlite3.Connection) -> bool:
    try:
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        chunks = db.execute("SELECT samples FROM spooled_samples") if names >= _JOURNAL else ()
        is_sound: bool = db.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
        return is_sound and all(is_readable(chunk) for (chunk,) in chunks)
    except sqlite3.Error:
        return False


def _saved(damaged: sqlite3.Connection, fresh: sqlite3.Connection) -> tuple[dict[str, int], list[str]]:
    """Copy the schema and every readable row; return the rows by table, and what is incomplete."""
    made: list[tuple[str, str, str]] = []
    with suppress(sqlite3.Error):
        made.extend(damaged.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
        fresh.execute(f"PRAGMA user_version = {damaged.execute('PRAGMA user_version').fetchone()[0]}")
    rows, lost = {}, []
    fresh.execute("BEGIN")
    for kind, name, sql in sorted(made, key=lambda one: one[0] != "table"):
        if name.startswith("sqlite_"):
            continue
        with suppress(sqlite3.IntegrityError):  # a unique index that the remaining rows violate
            fresh.execute(sql)
        if kind == "table":
            if not _copied(damaged, fresh, name, has_rowid="WITHOUT ROWID" not in sql.upper()):
                lost.append(f"rows of {name}")
            rows[name] = fresh.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608 - its own name
    fresh.execute("COMMIT")
    return rows, lost if rows else ["everything"]


def _copied(damaged: sqlite3.Connection, fresh: sqlite3.Connection, name: str, *, has_rowid: bool) -> bool:
    """Copy a table from both ends up to the damage, then rows in between one by one; return whether it is complete."""
    columns = fresh.execute(f'PRAGMA table_info("{name}")').fetchall()
    key = ["rowid"] if has_rowid else [column[1] for column in sorted(columns, key=lambda each: each[5]) if column[5]]
    names = ["rowid"] * has_rowid + [f'"{column[1]}"' for column in columns]
    put = f'INSERT OR IGNORE INTO "{name}" ({", ".join(names)}) VALUES ({", ".join("?" * len(names))})'  # noqa: S608
    select = f'SELECT {", ".join(names)} FROM "{name}" NOT INDEXED'  # noqa: S608 - names of its own schema, as above
    reached = []
    for way in ("", " DESC"):
        numbers = count()
        try:
            found = damaged.execute(f"{select} ORDER BY {', '.join(part + way for part in key)}")
            saved = fresh.executemany(put, (row for row, _ in zip(found, numbers, strict=False))).rowcount
        except sqlite3.DatabaseError:
            reached.append(fresh.execute(f'SELECT max({key[0]}) FROM "{name}"').fetchone()[0] or 0)  # noqa: S608
        else:
            # Pages beyond a truncation read as zeros: such rows lack required values, so they were not inserted.
            return not reached and saved == next(numbers)
    if has_rowid:
        above = f'SELECT min(rowid) FROM "{name}" WHERE rowid > ?'  # noqa: S608 - as above
        last = fresh.execute(above, (reached[0],)).fetchone()[0] or 0
        for number in range(max(reached[0] + 1, last - _LARGEST_GAP), last):
            with suppress(sqlite3.DatabaseError):
                fresh.executemany(put, damaged.execute(f"{select} WHERE rowid = {number}"))
    return False


def _journal_repaired(db: sqlite3.Connection, damaged: set[str], now: float) -> list[str]:
    """Make the tables of a journal consistent again; return what is lost."""
    db.create_function("readable", 1, is_readable)
    db.create_function("wall", 0, lambda: now)
    (samples,) = db.execute(statements("headgate.storage", "journal.sql")["unreadable_samples"]).fetchone()
    db.executescript(statements("headgate.storage", "journal.sql")["agree"])
    lost = [f"samples that the store had not confirmed: {samples}"] if samples else []
    if not samples and damaged & {"rows of spool", "rows of spooled_samples"}:
        lost.append("samples that the store had not confirmed, if what cannot be read held any")
    if damaged & {"rows of pairs", "rows of meta", "rows of counts"}:
        db.executescript(statements("headgate.storage", "journal.sql")["forget_restored"])
        lost.append("numbers and due times, which the next start takes over from the store")
    others = damaged - {f"rows of {name}" for name in ("spool", "spooled_samples", "pairs", "meta", "counts")}
    return lost + sorted(others)


def _put_in_place(path: Path, new: Path, now: float) -> Path:
    """Move the damaged file and its log aside, and the new one into its place; return the damaged file's path."""
    kept = path.with_name(f"{path.name}.damaged-{now:.0f}")
    with new.open("rb") as file:
        os.fsync(file.fileno())
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{kept}{suffix}")
    new.rename(path)
    return kept
