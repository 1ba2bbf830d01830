"""A store in this process's memory: for tests, and for queues that may be forgotten."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection
from threading import Lock
from typing import Any, Self

from headgate.durable import sqlite
from headgate.jobqueue.errors import StoreInUseError
from headgate.jobqueue.stores.rows import Batch, Row
from headgate.jobqueue.stores.sql import Reader
from headgate.jobqueue.stores.sqlite import SqliteStore, prepare

_MEMORY = Path(":memory:")


class _MemoryReader(Reader):
    def _drop(self) -> None:
        """Leave the connection open: it is the store's, and the rows would go with it."""


class MemoryStore(SqliteStore):
    """A `Store` whose rows live as long as this object: a ledger that owns it after another one finds its rows.

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
        """Give ownership up; the rows stay. Legal twice."""
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
