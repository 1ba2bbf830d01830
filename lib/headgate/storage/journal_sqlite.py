"""A journal in one local SQLite file that survives any kill; its holders are processes on this machine."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from headgate.core import HolderId, errors
from headgate.durable import sqlite
from headgate.durable.databases import statements
from headgate.durable.locks import Holders, folder_locked
from headgate.storage.journal_database import JournalDatabase, prepare


class SqliteJournal(JournalDatabase):
    """Each holder locks a file, and the system frees that lock when the holder dies."""

    def __init__(self, file: Path, campaign: str, holder: HolderId, *, fsync: bool) -> None:
        self.file = file
        folder = file.parent
        self.place = str(folder.absolute())
        self._fsync = fsync
        self._version: int | None = None
        self._sql = statements("headgate.storage", "journal.sql")
        said = f"journal {folder} cannot be opened"
        with sqlite.failing_as(errors.JournalError, said, self.file), contextlib.ExitStack() as undo:
            self.holders = Holders(folder / "holders", holder)
            undo.callback(self.holders.leave)
            # SQLite does not wait for a lock while it turns a new file into a WAL database.
            with folder_locked(folder):
                self._db = sqlite.connected(self.file, synchronous="NORMAL", busy_s=30.0)
                undo.callback(self._db.close)
                self._db.execute("PRAGMA temp_store = MEMORY")
                prepare(self, campaign)
            undo.pop_all()

    def run(self, name: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run a statement."""
        return self._db.execute(self._sql[name], values)

    def many(self, name: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Run a statement for every row."""
        return self._db.executemany(self._sql[name], rows).rowcount if rows else 0

    def each(self, name: str, rows: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Return the rows that a statement returns for every row."""
        sql = self._sql[name]
        return [found for row in rows for found in self._db.execute(sql, row)]

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """Commit what happens inside; without `durable`, a power cut may undo it, but not a kill."""
        durable = durable and self._fsync
        if durable:
            self._db.execute("PRAGMA synchronous = FULL")
        try:
            with sqlite.transaction(self._db):
                yield
        finally:
            if durable:
                self._db.execute("PRAGMA synchronous = NORMAL")

    def claim(self) -> bool:
        """Return whether another process has written since the last call."""
        before, self._version = self._version, self._db.execute("PRAGMA data_version").fetchone()[0]
        return before != self._version

    def make_tables(self) -> None:
        """Create missing tables and columns."""
        self._db.executescript(self._sql["schema"])
        if self.run("lacks_columns").fetchone() is not None:
            self._db.executescript(self._sql["add_columns"])

    def told(self) -> AbstractContextManager[None]:
        """Raise damage of the file as a `JournalError`."""
        return sqlite.damage_told(self.file)

    def check(self) -> None:
        """Check the file's pages for damage."""
        (found,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite.DamagedRowError(found)

    def scrub(self) -> None:
        """Rewrite the file; SQLite keeps the bytes of removed rows until it needs the space."""
        self._db.execute("VACUUM")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Leave the holders, and close the file."""
        self._db.close()
        self.holders.leave()
