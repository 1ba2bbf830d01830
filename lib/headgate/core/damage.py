"""Damaged SQLite files, told alike wherever one is found, with the command that saves what is whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.core.errors import JournalError


class DamagedRowError(sqlite3.DatabaseError):
    """A row does not hold what was written: SQLite checks the shape of its pages, and not their contents."""


def is_damage(error: BaseException) -> bool:
    """Return whether a database's error says that its file is damaged: trying again does not help."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    is_known = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or str(error).startswith("Could not decode")
    return isinstance(error, DamagedRowError) or (isinstance(error, sqlite3.Error) and is_known)


def next_step_after(error: BaseException, path: Path) -> str | None:
    """Return what to do about a database's error; None where its file is not damaged."""
    said = f"Stop what uses it, and run `headgate repair {path}`: it saves what is whole, and says what is not."
    return said if is_damage(error) else None


@contextmanager
def damage_told(path: Path) -> Iterator[None]:
    """Raise `JournalError` where the file turns out to be damaged; let all other errors pass."""
    try:
        yield
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        raise JournalError(f"{path} is damaged: {error}", next_step=next_step_after(error, path)) from error
