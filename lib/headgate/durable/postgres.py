"""PostgreSQL connections, prepared in one way, and many rows as parameters of one statement. Needs psycopg."""

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
"""For statements that find their rows by an index. Prepared plans live long: one that was made while the table was
small would otherwise read the whole table when it has grown."""

_LOCKED_BY: Final = """
SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = %(key)s
"""

Connection = psycopg.Connection[tuple[Any, ...]]


def connected(address: PostgresAddress, application_name: str, settings: Mapping[str, str]) -> Connection:
    """Return a connection in autocommit mode.

    Args:
        address: of the database.
        application_name: what its administrator sees.
        settings: of the session, beside those that every one has.

    Raises:
        psycopg.Error: when it cannot be made.
    """
    # The server cuts a name at 63 bytes, and takes ASCII only.
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
    """A name that one session of a database at a time has locked, from any machine; it is free when that has ended.

    Used from one thread at a time.
    """

    def __init__(self, address: PostgresAddress, name: str) -> None:
        self._address = address
        self._key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)
        self._db: Connection | None = None

    def take(self, owner: str) -> None:
        """Lock the name, or make sure that it still is: a session that was cut is made anew.

        Args:
            owner: for those who find it locked, at most 63 bytes of it.

        Raises:
            LockHeldError: somebody else has it.
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
        """Unlock it; legal twice."""
        db, self._db = self._db, None
        if db is not None:
            db.close()


def columns_of(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return columns of rows as PostgreSQL's array literals; texts must be storable (no NUL), numbers may be None.

    Made without a step per value: a driver's own dumper takes a microsecond each, and ten thousand jobs a second are
    half a million values. Many columns hold one value only, such as the time of a commit: it is written out once.
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

    Joined by NUL, which none of them holds, they are escaped as one text.
    """
    if not values:
        return "{}"
    escaped = "\0".join(values).replace("\\", "\\\\").replace('"', '\\"')
    return '{"' + escaped.replace("\0", '","') + '"}'
