"""PostgreSQL connections with common settings, locks, and many rows as parameters of one statement. Needs psycopg."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg

from headgate.durable.databases import DatabaseAwayError, PostgresAddress
from headgate.durable.locks import LockHeldError

_SETTINGS: Final = {
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
    "client_min_messages": "error",
    "jit": "off",
}
INDEXES_ONLY: Final = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",
}
"""For statements that find their rows by an index. Prepared plans live long: one made for a small table would otherwise
still scan the whole table once it has grown."""

_LOCKED_BY: Final = """
SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = %(key)s
"""

Connection = psycopg.Connection[tuple[Any, ...]]


def connected(address: PostgresAddress, application_name: str, settings: Mapping[str, str]) -> Connection:
    """Return a connection in autocommit mode.

    Args:
        address: the database's address.
        application_name: name of the connection that administrators see.
        settings: session settings, in addition to the common ones.

    Raises:
        psycopg.Error: when it cannot be made.
    """
    # The server truncates a name at 63 bytes and accepts only ASCII.
    name = ascii(application_name)[1:-1][:63]
    parameters = {**address.parameters(), "application_name": name, "client_encoding": "UTF8"}
    db = psycopg.connect(**parameters, autocommit=True)
    try:
        for name, value in {**_SETTINGS, **settings}.items():
            db.execute("SELECT set_config(%s, %s, false)", (name, value))
    except psycopg.Error:
        db.close()
        raise
    return db


class PostgresLock:
    """A name that one database session at a time can lock, from any machine; it is free once that session has ended.

    Used from one thread at a time.
    """

    def __init__(self, address: PostgresAddress, name: str) -> None:
        self._address = address
        self._key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)
        self._db: Connection | None = None

    def take(self, owner: str) -> None:
        """Lock the name, or make sure that it still is locked; reconnects after a lost session.

        Args:
            owner: description of the owner for others who find it locked, truncated to 63 bytes.

        Raises:
            LockHeldError: another owner has it.
            DatabaseAwayError: the database does not answer.
        """
        try:
            if self._db is not None and not self._db.closed:
                with suppress(psycopg.OperationalError):
                    self._db.execute("SELECT 1")
            if self._db is None or self._db.closed:
                self._db = connected(self._address, owner, {})
                taken = self._db.execute("SELECT pg_try_advisory_lock(%s)", (self._key,)).fetchone()
                if taken != (True,):
                    found = self._db.execute(_LOCKED_BY, {"key": self._key}).fetchone()
                    self.give_back()
                    raise LockHeldError(found[0] if found else "a process that has just ended")
        except psycopg.Error as error:
            raise DatabaseAwayError(f"{self._address} cannot be reached: {' '.join(str(error).split())}") from error

    def give_back(self) -> None:
        """Unlock it; may be called twice."""
        db, self._db = self._db, None
        if db is not None:
            db.close()


def columns_of(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return the columns of rows as PostgreSQL array literals; texts must be storable (no NUL), numbers may be None.

    Avoids work per value: a driver's own dumper takes a microsecond each, and ten thousand jobs a second are half a
    million values. Many columns repeat one value, such as the time of a commit, which is formatted once.
    """
    return [_literal(column) for column in zip(*rows, strict=True)]


def _literal(column: tuple[Any, ...]) -> str:
    if len(column) > 1 and column.count(column[0]) == len(column):
        return "{" + ",".join([_literal(column[:1])[1:-1]] * len(column)) + "}"
    if isinstance(column[0], str):
        return texts(column)
    return "{" + ",".join(map(repr, column)).replace("None", "NULL") + "}"


def texts(values: Sequence[str]) -> str:
    """Return an array literal of texts, which must be storable.

    Joined by NUL, which none of them contains, they are escaped as one text.
    """
    if not values:
        return "{}"
    escaped = "\0".join(values).replace("\\", "\\\\").replace('"', '\\"')
    return '{"' + escaped.replace("\0", '","') + '"}'
