"""Stores of jobs: in memory, in a SQLite file or in a PostgreSQL database."""

from __future__ import annotations

from pathlib import Path

from headgate.durable.databases import place_of
from headgate.jobqueue.stores.sql import Store
from headgate.jobqueue.stores.sqlite import MemoryStore, SqliteStore

__all__ = ["MemoryStore", "SqliteStore", "open_store"]


def open_store(url: str) -> Store:
    """Return the store of a URL; nothing is opened or created before `own` or `reader`.

    Args:
        url: `sqlite:///relative/file.db`, `sqlite:////absolute/file.db`, `postgresql://…` or `memory:`.

    Raises:
        InvalidInputError: when the URL has another form.
        MissingExtraError: when it names PostgreSQL and its driver is not installed.
    """
    match place_of(url):
        case None:
            return MemoryStore()
        case Path() as path:
            return SqliteStore(path)
        case address:
            from headgate.jobqueue.stores.postgres import PostgresStore  # noqa: PLC0415 - an optional extra

            return PostgresStore(address)
