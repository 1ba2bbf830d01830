"""SQLite connections that let go of a statement as soon as it fails, so that garbage cannot stop a server.

In Python 3.11 the cursor of a failed statement holds on to it until the cursor is collected as garbage, by whichever
thread comes to do so. Letting go takes the lock of its connection. If the connection waits for the database at that
moment, the thread waits with it; and if the thread is the event loop whose next step would free the database, both wait
until SQLite gives up, which is a minute at a Prefect server. Python 3.12 lets go at once by itself.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.engine.interfaces import Dialect


class ReleasingCursor(sqlite3.Cursor):
    """Closes itself when a statement fails, in the thread that runs it."""

    def execute(self, *statement: Any) -> ReleasingCursor:
        """Run a statement; once it has failed, this cursor takes no other."""
        try:
            super().execute(*statement)
        except BaseException:
            self.close()
            raise
        return self

    def executemany(self, *statements: Any) -> ReleasingCursor:
        """Run a statement with each set of parameters; once one has failed, this cursor takes no other."""
        try:
            super().executemany(*statements)
        except BaseException:
            self.close()
            raise
        return self


class ReleasingConnection(sqlite3.Connection):
    """A connection of which every cursor is a `ReleasingCursor`."""

    def cursor(self, factory: Any = ReleasingCursor) -> Any:
        """Return a new cursor."""
        return super().cursor(factory)


def release_failed_statements(of: Engine | type[Engine] = Engine) -> None:
    """Make every SQLite connection that SQLAlchemy opens from now on, in any engine or in one, release them."""
    event.listen(of, "do_connect", _as_releasing)


def _as_releasing(dialect: Dialect, record: Any, arguments: list[Any], options: dict[str, Any]) -> None:
    del record, arguments
    if dialect.name == "sqlite":
        options.setdefault("factory", ReleasingConnection)
