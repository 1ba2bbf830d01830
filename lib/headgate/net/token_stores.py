"""Stores of tokens: in memory, in a SQLite file, or in PostgreSQL; only the hashes of secrets are stored."""

from __future__ import annotations

import abc
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.core.errors import HeadgateError
from headgate.durable import sqlite
from headgate.durable.databases import PostgresAddress, place_of, statements
from headgate.net.tokens import Scope, Token

if TYPE_CHECKING:
    import psycopg

SCHEMA_VERSION: Final = 2
_BUSY_S: Final = 10.0
"""Longest wait of a command for the file; a job queue in the same file holds it for milliseconds per transaction."""

_SHORT_TIMEOUTS: Final = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "2",
    "tcp_user_timeout": "5000",
}
"""A dead machine is noticed within seconds, since requests wait while tokens are read."""

_SQL: Final = statements("headgate.net", "tokens.sql")
_Run: TypeAlias = Callable[..., Sequence[Sequence[Any]]]


class TokenStoreError(HeadgateError):
    """The database of tokens could not be read or written; nothing was changed."""

    code = "jobqueue_store_failed"
    http_status = 503
    exit_code = 3
    next_step = "Look at the database and its disk; the request can be sent again."


class TokenStore(abc.ABC):
    """A store of tokens in a database, over its own connection. All methods block; one thread calls them at a time.

    Every method raises `TokenStoreError` when the database cannot be read or written; nothing was changed then, and the
    next call reconnects.
    """

    _db: Any = None

    def tokens(self) -> list[Token]:
        """Return every token, by time of creation."""
        with self._transaction(changes=False) as run:
            return [_token_of(row) for row in run("tokens")]

    def add(self, token: Token, *, forget_before: float) -> None:
        """Store a new token; drop those revoked or expired before the wall time `forget_before`."""
        with self._transaction(changes=True) as run:
            run("forget", before=forget_before)
            run("add", **_row_of(token))

    def change(self, token_id: str, change: Callable[[Token], Token]) -> Token | None:
        """Replace a token by what `change` returns for it and return that; None when there is no such token.

        Nothing else changes it in between. An exception of `change` propagates, and the token stays as it was.
        """
        with self._transaction(changes=True) as run:
            rows = run("token", token_id=token_id)
            if not rows:
                return None
            changed = change(_token_of(rows[0]))
            run("change", **_row_of(changed))
            return changed

    def close(self) -> None:
        """Close the connection; may be called twice."""
        db, self._db = self._db, None
        if db is not None:
            db.close()

    @abc.abstractmethod
    def _transaction(self, *, changes: bool) -> AbstractContextManager[_Run]:
        """Return a function that runs named statements in one transaction, the only writing one when `changes`."""


class SqliteTokens(TokenStore):
    """Tokens in a SQLite file, usually that of the jobs; the file and its folder are created if missing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._transaction(changes=False):
            pass

    @contextmanager
    def _transaction(self, *, changes: bool) -> Iterator[_Run]:
        try:
            said = f"the tokens in {self._path} cannot be read or written"
            with sqlite.failing_as(TokenStoreError, said, self._path):
                db = self._db = self._db or self._opened()
                with sqlite.transaction(db, "BEGIN IMMEDIATE" if changes else "BEGIN"):
                    yield lambda name, /, **values: db.execute(_SQL[name], values).fetchall()
        except TokenStoreError:
            self.close()
            raise

    def _opened(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite.connected(self._path, synchronous="FULL", busy_s=_BUSY_S)
        try:
            if not db.execute(_SQL["sqlite_is_made"]).fetchone()[0]:
                with sqlite.transaction(db, f"BEGIN IMMEDIATE; {_SQL['schema']}"):
                    db.execute(_SQL["note_version"], {"version": SCHEMA_VERSION})
            elif db.execute(_SQL["version"]).fetchone()[0] == 1:
                with sqlite.transaction(db):
                    if db.execute(_SQL["version"]).fetchone()[0] == 1:  # no other process has done it meanwhile
                        for step in _SQL["bind_to_pools"].split(";"):
                            db.execute(step)
                        db.execute(_SQL["note_version"], {"version": SCHEMA_VERSION})
            _check_version(db.execute(_SQL["version"]).fetchone()[0], self._path)
        except BaseException:
            db.close()
            raise
        return db


class MemoryTokens(SqliteTokens):
    """Tokens that end with their process."""

    def __init__(self) -> None:
        super().__init__(Path(":memory:"))


class PostgresTokens(TokenStore):
    """Tokens in the schema `headgate_jobqueue` of a PostgreSQL database."""

    def __init__(self, address: PostgresAddress) -> None:
        import psycopg  # noqa: PLC0415 - of an optional extra

        self._driver = psycopg
        self._address = address
        self._sql = {
            name: sql.encode() for name, sql in statements("headgate.net", "tokens.sql", for_postgres=True).items()
        }
        with self._transaction(changes=False):
            pass

    @contextmanager
    def _transaction(self, *, changes: bool) -> Iterator[_Run]:
        try:
            db = self._db = self._db or self._opened()
            with db.transaction():
                if changes:
                    db.execute(self._sql["postgres_change_alone"])
                yield lambda name, /, **values: self._fetched(db, name, values)
        except self._driver.Error as error:
            self.close()
            detail = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise TokenStoreError(f"the tokens in {self._address} cannot be read or written: {detail}") from error

    def _opened(self) -> psycopg.Connection[tuple[Any, ...]]:
        db: psycopg.Connection[tuple[Any, ...]] = self._driver.connect(
            **self._address.parameters() | _SHORT_TIMEOUTS, autocommit=True, application_name="headgate tokens"
        )
        try:
            db.execute(self._sql["postgres_session"])
            self._make(db)
            _check_version(self._version(db), self._address)
        except BaseException:
            db.close()
            raise
        return db

    def _make(self, db: psycopg.Connection[tuple[Any, ...]]) -> None:
        # Checked first: a server may run as a role that cannot create anything.
        is_made = bool(self._fetched(db, "postgres_is_made")[0][0])
        if is_made and self._version(db) != 1:
            return
        # The job queue may be creating its tables right now: of two concurrent CREATE SCHEMA, one fails.
        with db.transaction():
            db.execute(self._sql["postgres_make_alone"])
            if not is_made:
                try:
                    with db.transaction():
                        db.execute(self._sql["postgres_namespace"])
                except (self._driver.errors.UniqueViolation, self._driver.errors.DuplicateSchema):
                    pass
                db.execute(self._sql["schema"])
            elif self._version(db) == 1:  # no other process has done it meanwhile
                db.execute(self._sql["bind_to_pools"])
            self._fetched(db, "note_version", {"version": SCHEMA_VERSION})

    def _version(self, db: psycopg.Connection[tuple[Any, ...]]) -> int:
        return int(self._fetched(db, "version")[0][0])

    def _fetched(
        self, db: psycopg.Connection[tuple[Any, ...]], name: str, values: dict[str, Any] | None = None
    ) -> Sequence[Sequence[Any]]:
        cursor = db.execute(self._sql[name], values)
        return cursor.fetchall() if cursor.description is not None else ()


def open_tokens(url: str) -> TokenStore:
    """Return the tokens of the database at `url`: `sqlite:///path`, `postgresql://…` or `memory:`.

    They are in the same database as a queue's jobs, so that commands and servers need only one URL.

    Raises:
        InvalidInputError: if the URL has another form.
        TokenStoreError: if the database cannot be opened, or belongs to a newer version of Headgate.
        MissingExtraError: if it is PostgreSQL and its driver is not installed.
    """
    match place_of(url):
        case None:
            return MemoryTokens()
        case Path() as path:
            return SqliteTokens(path)
        case address:
            return PostgresTokens(address)


def _check_version(version: int, place: Path | PostgresAddress) -> None:
    if version > SCHEMA_VERSION:
        raise TokenStoreError(
            f"the tokens in {place} have version {version}, and this Headgate knows {SCHEMA_VERSION}",
            next_step="Use the Headgate that wrote them, or a newer one.",
        )


def _row_of(token: Token) -> dict[str, object]:
    named = {name: getattr(token, name) for name in ("scopes", "teams", "pools")}
    return asdict(token) | {name: None if some is None else json.dumps(sorted(some)) for name, some in named.items()}


def _token_of(row: Sequence[Any]) -> Token:
    token_id, name, scopes, teams, worker, digest, created, expires, revoked, rotated, *more = row
    previous, until, pools, most_priority = more
    return Token(
        token_id=token_id,
        name=name,
        scopes=frozenset(Scope(scope) for scope in json.loads(scopes)),
        digest=digest,
        created_at=created,
        teams=None if teams is None else frozenset(json.loads(teams)),
        pools=None if pools is None else frozenset(json.loads(pools)),
        most_priority=most_priority,
        worker=worker,
        expires_at=expires,
        revoked_at=revoked,
        rotated_at=rotated,
        previous_digest=previous,
        previous_until=until,
    )
