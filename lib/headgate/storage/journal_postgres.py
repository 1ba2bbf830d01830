"""A journal in its own schema of a PostgreSQL database: the holders of one campaign may be on many machines."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar

import psycopg

from headgate.core import HolderId, errors, redacted, require_agreement
from headgate.durable import databases, postgres
from headgate.durable.databases import DatabaseAwayError, PostgresAddress
from headgate.durable.postgres import Connection, columns_of
from headgate.storage.journal_database import JournalDatabase, digest_of, plain_name, prepare

_SESSION: Final = {
    **postgres.INDEXES_ONLY,
    # A transaction takes milliseconds. One that waits this long for its turn waits for a machine that has vanished.
    "lock_timeout": "30000",
    "idle_in_transaction_session_timeout": "20000",
}
_HAS_SCHEMA: Final = b"SELECT 1 FROM pg_namespace WHERE nspname = %s"
_LONGEST_NAME: Final = 63
_AGAIN_S: Final = 0.5
_AWAY: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.ReadOnlySqlTransaction,
)
"""The connection or the server is gone, refuses for now, has no room, or is read-only."""

T = TypeVar("T")


@cache
def _statements() -> Mapping[str, bytes]:
    package = "headgate.storage"
    both = databases.statements(package, "journal.sql", for_postgres=True)
    own = databases.statements(package, "journal_postgres.sql", for_postgres=True)
    return {name: sql.encode() for name, sql in {**both, **own}.items()}


def schema_of(campaign: str) -> str:
    """Return the schema that holds a campaign's journal; PostgreSQL limits names to 63 bytes."""
    name = f"headgate_journal_{plain_name(campaign)}"
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 13]}~{digest_of(campaign)}"


class PostgresJournal(JournalDatabase):
    """Each holder is alive while it renews its lease, by the server's clock. `holders` is the journal itself.

    A holder that was cut off declares no other dead for one lease: others may have been cut off with it.

    Write transactions lock the one row of `turn`, so they run one after another, as on a file. One that has only read
    is rolled back: a commit would wait for the disk, and make the others read the numbers of pairs again. A broken
    connection is replaced. If it breaks during a commit, the server is asked, for as long as it takes, for the number
    that each transaction stores with its holder: so nothing is done twice, and nothing counts as done that is not.
    """

    def __init__(
        self, address: PostgresAddress, campaign: str, holder: HolderId, *, fsync: bool, lease_s: float
    ) -> None:
        self.place = str(address)
        self.holders = self
        self.renew_every_s = lease_s / 3
        self._lease_s = lease_s
        self._renewed_at = time.monotonic()
        self._patient_until = 0.0
        self._buried = 0
        self._said = ""
        self._address = address
        self._me = holder
        self._schema = schema_of(campaign)
        self._settings = {
            **_SESSION,
            "search_path": f'"{self._schema}"',
            "synchronous_commit": "on" if fsync else "off",
        }
        self._sql = _statements()
        self._db: Connection | None = None
        self._interrupted = threading.Event()
        self._is_changing = self._has_written = self._is_claimed = False
        self._writer = ""
        self._numbers = itertools.count(1)  # of committed transactions
        self._open(campaign)

    def _open(self, campaign: str) -> None:
        try:
            db = self._connection()
            require_agreement(time.time(), self.value("clock"), f"the database of {self.place}")
            self.run("prepare_alone")
            if not db.execute(_HAS_SCHEMA, (self._schema,)).fetchone():
                db.execute(f'CREATE SCHEMA "{self._schema}"'.encode())
            prepare(self, campaign)
            self.run("prepared")
            self._join()
        except (psycopg.Error, DatabaseAwayError) as error:
            self._disconnect()
            raise errors.JournalError(
                f"journal {self.place} cannot be opened: {_words(error)}",
                next_step="Check that the server runs, and that its role may create a schema in this database.",
            ) from error
        except BaseException:
            self._disconnect()
            raise

    def run(self, name: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement."""
        return self._execute(self._sql[name], values)

    def value(self, name: str, values: Mapping[str, Any] | None = None) -> Any:
        """Return the single value that a statement returns."""
        ((found,),) = self.run(name, values or {})
        return found

    def many(self, name: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Run a statement for all rows at once."""
        return self._execute(self._sql[name], columns_of(rows)).rowcount if rows else 0

    def each(self, name: str, rows: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Return the rows that a statement returns for all rows at once."""
        listed = list(rows)
        return self._execute(self._sql[name], columns_of(listed)).fetchall() if listed else []

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:  # noqa: ARG002 - all commits are alike here
        """Commit what was written inside, if anything, and wait for the server's disk."""
        try:
            self._begin()
            yield
            if self._has_written:
                if self._is_claimed:
                    self.run("keep_turn", {"holder": self._me})
                self._commit()
        except BaseException:
            self._buried = -1  # check again whether it was declared dead: what it wrote about that was undone
            raise
        finally:
            self._is_changing = False
            if self._db is not None and self._db.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                with contextlib.suppress(psycopg.Error):
                    self._db.execute("ROLLBACK")

    def claim(self) -> bool:
        """Return whether another holder has assigned numbers since this one did."""
        self._is_claimed = self._writer != self._me
        return self._is_claimed

    def make_tables(self) -> None:
        """Create the tables; existing ones are in use, so they are left alone unless an earlier version made fewer."""
        if self.run("has_latest").fetchone() is None:
            self._connection().execute(self._sql["schema"])

    def scrub(self) -> None:
        """Rewrite the tables of samples."""
        self.run("scrub")

    def renew(self) -> None:
        """Renew the lease if it exists; if not, the next transaction takes a new one."""
        self.run("renew", {"holder": self._me, "said": self._said})
        now = time.monotonic()
        if now - self._renewed_at > self._lease_s:
            self._patient_until = now + self._lease_s
        self._renewed_at = now

    def announce(self, said: str) -> None:
        """Publish a text with the lease, now and at every renewal: if the database is unreachable, it appears later."""
        self._said = said
        self.renew()

    def is_dead(self, holder: str) -> bool:
        """Return whether a holder is gone; if so, its lease is removed."""
        now = time.monotonic()
        is_away = now - self._renewed_at > self._lease_s
        if holder == self._me or is_away or now < self._patient_until:
            return False
        return bool(self.value("bury", {"holder": holder}))

    def others(self) -> bool:
        """Return whether another holder is alive."""
        return bool(self.value("others", {"holder": self._me}))

    def interrupt(self) -> None:
        """End the wait for the outcome of a commit."""
        self._interrupted.set()

    def close(self) -> None:
        """Leave the holders, and close the connection."""
        with contextlib.suppress(psycopg.Error, DatabaseAwayError):
            if self._db is not None:
                self.run("leave", {"holder": self._me})
        self._disconnect()

    # Inside.

    def _execute(self, sql: bytes, values: Mapping[str, Any] | Sequence[Any]) -> psycopg.Cursor[tuple[Any, ...]]:
        self._has_written |= not sql.startswith(b"SELECT")
        return self._asked(lambda db: db.execute(sql, values))

    def _begin(self) -> None:
        """Begin a transaction and take the turn."""

        def begin(db: Connection) -> tuple[Any, ...] | None:
            db.execute("BEGIN")
            return db.execute(self._sql["take_turn"]).fetchone()

        found = self._asked(begin)
        assert found is not None, "turn has one row"
        self._is_changing, self._has_written, self._is_claimed = True, False, False
        self._writer, buried = found
        if buried != self._buried:  # it may be among those that were declared dead
            self._buried = buried
            self._join()

    def _join(self) -> None:
        """Become a holder, if this process is not one."""
        about = {"machine": socket.gethostname(), "lease_s": self._lease_s, "said": self._said}
        self.run("join", {"holder": self._me, **about})

    def _asked(self, ask: Callable[[Connection], T], *, is_again: bool = False) -> T:
        """Return the result of a call on the connection; a broken one is replaced, unless a transaction broke with it.

        Raises:
            DatabaseAwayError: there is no answer.
        """
        db = self._connection()
        try:
            return ask(db)
        except _AWAY as error:
            if is_again or self._is_changing or not db.closed:
                raise DatabaseAwayError(_words(error)) from error
        return self._asked(ask, is_again=True)

    def _commit(self) -> None:
        number = str(next(self._numbers))
        self.run("mark", {"holder": self._me, "number": number})
        try:
            self._connection().execute("COMMIT")
        except _AWAY as error:
            if not self._was_committed(number):
                raise DatabaseAwayError(_words(error)) from error

    def _was_committed(self, number: str) -> bool:
        """Return whether a commit without an answer took effect; wait until the server can tell."""
        self._is_changing = False
        while True:
            with contextlib.suppress(DatabaseAwayError):
                return bool(self.value("is_marked", {"holder": self._me, "number": number}))
            if self._interrupted.wait(_AGAIN_S):
                raise errors.JournalError(
                    f"journal {self.place} is unreachable after a commit, whose outcome is unknown; this process ends",
                    next_step="Start the campaign again: what is not in the journal is run again.",
                )

    def _connection(self) -> Connection:
        if self._db is None or self._db.closed:
            if self._is_changing:
                raise DatabaseAwayError("the connection was lost within a transaction")
            try:
                self._db = postgres.connected(self._address, f"headgate {self._me}", self._settings)
            except _AWAY as error:
                raise DatabaseAwayError(_words(error)) from error
        return self._db

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(psycopg.Error):
                db.close()


def announced(address: PostgresAddress) -> list[tuple[float, str]]:
    """Return the holders' texts in all journals of a database, each with when it was last heard of; infinity if alive.

    Raises:
        DatabaseAwayError: if the database does not answer.
    """
    sql = _statements()
    with _looking(address) as db:
        schemas = [schema.encode() for (schema,) in db.execute(sql["schemas_that_say"])]
        each = b" UNION ALL ".join(sql["said_in"].replace(b"SCHEMA", schema) for schema in schemas)
        return db.execute(each).fetchall() if each else []


def has_schema(address: PostgresAddress, campaign: str) -> bool:
    """Return whether a database has a journal of a campaign.

    Raises:
        DatabaseAwayError: if the database does not answer.
    """
    with _looking(address) as db:
        return db.execute(_HAS_SCHEMA, (schema_of(campaign),)).fetchone() is not None


@contextlib.contextmanager
def _looking(address: PostgresAddress) -> Iterator[Connection]:
    try:
        with postgres.connected(address, "headgate, looking for runs", {"statement_timeout": "10000"}) as db:
            yield db
    except psycopg.Error as error:
        raise DatabaseAwayError(f"journal {address} cannot be read: {_words(error)}") from error


def _words(error: Exception) -> str:
    return redacted(" ".join(str(error).split()))
