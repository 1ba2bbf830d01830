"""A store in a PostgreSQL database, in a schema of its own, `headgate_jobqueue`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

import psycopg

from headgate.core import redacted, require_agreement
from headgate.durable import postgres
from headgate.durable.databases import PostgresAddress
from headgate.durable.postgres import INDEXES_ONLY, Connection, columns_of, texts
from headgate.jobqueue.errors import StoreFailedError, StoreInUseError
from headgate.jobqueue.records import Snapshot
from headgate.jobqueue.stores.rows import Batch, Row
from headgate.jobqueue.stores.sql import Store, check_found, statements, steps_from

_LAST_OWNER_GONE_WITHIN_MS: Final = "1000"
"""PostgreSQL takes a moment to notice that a killed owner is gone; with this wait a restart need not be tried twice."""

_READERS_SETTINGS: Final = {
    **INDEXES_ONLY,
    "default_transaction_read_only": "on",
    # Only a plan made for the requested state can use the index of that state.
    "plan_cache_mode": "force_custom_plan",
}
_WRITERS_SETTINGS: Final = {
    **INDEXES_ONLY,
    # Nothing else locks these tables for long; a commit that hangs would block every worker.
    "lock_timeout": "20000",
}


class PostgresStore(Store):
    """A `Store` in one PostgreSQL database, owned through a lock held by the connection that writes.

    A lost connection therefore loses the lock and its uncommitted changes; `own` connects again. A pooler in between
    must keep one server connection per client connection (session pooling).
    """

    dialect = "postgres"

    def __init__(self, address: PostgresAddress) -> None:
        super().__init__(address)
        self._address = address

    def own(self, owner: str) -> Self:
        """Become the only ledger that writes here."""
        if self._db is not None:
            raise StoreInUseError(f"The job queue in {self._address} is served by this process already")
        with self._failing("opened"):
            db = connected(self._address, f"headgate jobqueue: {owner}", writes=True)
            try:
                self._take_ownership(db)
                _migrate(db, str(self._address))
            except BaseException:
                db.close()
                raise
            self._db = db
        return self

    def load(self) -> Snapshot:
        """Return what a ledger starts from."""
        with self._failing("read"), self._connection().transaction():
            # The connection prefers indexes wherever possible; the counts need every row.
            self._connection().execute("SET LOCAL enable_seqscan = on")
            return super().load()

    def close(self) -> None:
        """Release ownership and close the connection; may be called twice."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(psycopg.Error):
                db.close()

    def _take_ownership(self, db: Connection) -> None:
        try:
            with db.transaction():
                db.execute("SELECT set_config('lock_timeout', %s, true)", (_LAST_OWNER_GONE_WITHIN_MS,))
                self._selected(db, "take_ownership", {})
        except psycopg.errors.LockNotAvailable as error:
            holders = self._selected(db, "holder", {})
            holder = "{} (from {}, server process {})".format(*holders[0]) if holders else "a process that just ended"
            raise StoreInUseError(f"The job queue in {self._address} is served by {holder}") from error
        ((at,),) = _rows(db, "SELECT extract(epoch FROM clock_timestamp())::float8")
        require_agreement(time.time(), at, f"the database of {self._address}")

    @contextmanager
    def _failing(self, done: str) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if self._db is not None and self._db.closed:
                self.close()  # the lock went with the connection
            what = redacted(" ".join(str(error).split()))
            raise StoreFailedError(f"The job queue in {self._address} could not be {done}: {what}") from error

    def _connected_to_read(self) -> Connection:
        return connected(self._address, "headgate jobqueue: reader", writes=False)

    def _version(self, db: Connection) -> int:
        return _version_of(db)

    def _selected(self, db: Connection, name: str, parameters: Mapping[str, Any], filters: str = "") -> list[Row]:
        return _rows(db, statements("postgres", filters)[name], parameters)

    def _array(self, listed: Sequence[str]) -> str:
        return texts(listed)

    def _write(self, db: Connection, batches: Sequence[Batch]) -> None:
        """Write all batches or none.

        One after the other, not in libpq's pipeline mode: there, psycopg can wait for an answer while part of a large
        statement is still unsent, and PostgreSQL waits for that part forever.
        """
        named = statements("postgres")
        with db.transaction():
            for batch in batches:
                done = db.execute(named[batch.statement], columns_of(batch.rows), prepare=True)
                check_found(batch, done.rowcount)


def connected(address: PostgresAddress, application_name: str, *, writes: bool) -> Connection:
    """Return a connection in autocommit mode, prepared for the ledger or for listings.

    Raises:
        psycopg.Error: when it cannot be made.
    """
    settings = {"search_path": "headgate_jobqueue", **(_WRITERS_SETTINGS if writes else _READERS_SETTINGS)}
    return postgres.connected(address, application_name, settings)


def _migrate(db: Connection, place: str) -> None:
    db.execute("CREATE SCHEMA IF NOT EXISTS headgate_jobqueue")
    for step in steps_from(_version_of(db), "postgres", place):
        with db.transaction():
            db.execute(step.sql)
            recorded = {"version": step.version, "name": step.name, "applied_at": time.time()}
            db.execute(statements("postgres")["record_version"], recorded)


def _version_of(db: Connection) -> int:
    named = statements("postgres")
    ((has_tables,),) = _rows(db, named["has_tables"])
    return int(_rows(db, named["version"])[0][0]) if has_tables else 0


def _rows(db: Connection, sql: str, parameters: Mapping[str, Any] | None = None) -> list[Row]:
    return db.execute(sql, parameters).fetchall()
