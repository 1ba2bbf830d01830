"""The app of a private server's process: Prefect's own, on a SQLite database that garbage collection cannot block."""

from __future__ import annotations

import sqlite3
from typing import Any

from fastapi import FastAPI
from prefect.server.api.server import create_app as prefect_app
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.engine.interfaces import Dialect


class ReleasingCursor(sqlite3.Cursor):
    """Closes itself when a statement fails, in the thread that runs it."""

    def execute(self, *statement: Any) -> ReleasingCursor:
        """Run a statement; this cursor is closed if it fails."""
        try:
            super().execute(*statement)
        except BaseException:
            self.close()
            raise
        return self

    def executemany(self, *statements: Any) -> ReleasingCursor:
        """Run a statement with each set of parameters; this cursor is closed if one fails."""
        try:
            super().executemany(*statements)
        except BaseException:
            self.close()
            raise
        return self


class ReleasingConnection(sqlite3.Connection):
    """A connection whose cursors are all `ReleasingCursor`s."""

    def cursor(self, factory: Any = ReleasingCursor) -> Any:
        """Return a new cursor."""
        return super().cursor(factory)


def release_failed_statements(of: Engine | type[Engine] = Engine) -> None:
    """Make SQLAlchemy open SQLite connections as `ReleasingConnection` from now on, in all engines or in one."""
    event.listen(of, "do_connect", _as_releasing)


def _as_releasing(dialect: Dialect, record: Any, arguments: list[Any], options: dict[str, Any]) -> None:
    del record, arguments
    if dialect.name == "sqlite":
        options.setdefault("factory", ReleasingConnection)


def create_app() -> FastAPI:
    """Return the app, for `uvicorn --factory`."""
    release_failed_statements()
    return prefect_app()
