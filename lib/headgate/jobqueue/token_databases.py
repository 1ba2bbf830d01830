"""Tokens in SQLite and in PostgreSQL: one set of statements, two ways to run them."""

from __future__ import annotations

import abc
import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headgate.core import next_step_after
from headgate.core.errors import MissingExtraError
from headgate.jobqueue.errors import StoreFailedError
from headgate.jobqueue.tokens import Scope, Token

if TYPE_CHECKING:
    import psycopg

SCHEMA_VERSION: Final = 2
_AGAIN_S: Final = 0.01
_BUSY_S: Final = 10.0
"""The queue's own transactions last milliseconds; a command waits this long for its turn."""

_IMPATIENT: Final = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "2",
    "tcp_user_timeout": "5000",
}
"""A machine that is gone is noticed within seconds: requests wait for the reading of tokens."""

_Run: TypeAlias = Callable[..., Sequence[Sequence[Any]]]


@cache
def statements() -> Mapping[str, str]:
    """Return the statements of `tokens.sql` by their names."""
    text = resources.files(__package__).joinpath("tokens.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True))


class _DatabaseTokens(abc.ABC):
    """What both databases have in common; see `TokenStore` for the methods."""

    @abc.abstractmethod
    def _transaction(self, *, changes: bool) -> AbstractContextManager[_Run]:
        """Return what runs statements by name in one transaction; alone among those that change when `changes`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Give the connection up; legal twice."""

    def tokens(self) -> list[Token]:
        """Return every token, by the time of its creation."""
        with self._transaction(changes=False) as run:
            return [_token_of(row) for row in run("tokens")]

    def add(self, token: Token, *, forget_before: float) -> None:
        """Keep a new token; drop those that were revoked or expired before that wall time."""
        with self._transaction(changes=True) as run:
            run("forget", before=forget_before)
            run("add", **_row_of(token))

    def change(self, token_id: str, change: Callable[[Token], Token]) -> Token | None:
        """Replace a token by what `change` makes of it and return that; None when there is none."""
        with self._transaction(changes=True) as run:
            rows = run("token", token_id=token_id)
            if not rows:
                return None
            changed = change(_token_of(rows[0]))
            run("change", **_row_of(changed))
            return changed


class SqliteTokens(_DatabaseTokens):
    """Tokens in a file of SQLite, most often that of the jobs: a reader never waits for a writer (WAL).

    Args:
        path: the file; it and its folder are made when they are not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        with self._transaction(changes=False):
            pass

    @contextmanager
    def _transaction(self, *, changes: bool) -> Iterator[_Run]:
        try:
            db = self._opened()
            db.execute("BEGIN IMMEDIATE" if changes else "BEGIN")
            yield lambda name, /, **values: db.execute(statements()[name], values).fetchall()
            db.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise _failed(str(self._path), error, next_step_after(error, self._path)) from error
        finally:
            if self._db is not None and self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def close(self) -> None:
        """Give the connection up; legal twice."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Threads take turns (`TokenStore`).
            db = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                _prepare(db)
                _check_version(db.execute(statements()["version"]).fetchone()[0], str(self._path))
            except BaseException:
                db.close()
                raise
            self._db = db
        return self._db


class PostgresTokens(_DatabaseTokens):
    """Tokens in the schema `headgate_jobqueue` of a PostgreSQL database.

    Args:
        url: `postgresql://…`; never shown, it may hold a password.

    Raises:
        InvalidInputError: if the URL cannot be understood.
    """

    def __init__(self, url: str) -> None:
        _driver()
        from headgate.jobqueue.stores.postgres_connection import Address  # noqa: PLC0415 - needs the driver

        self._address = Address(url)
        self._db: psycopg.Connection[tuple[Any, ...]] | None = None
        with self._transaction(changes=False):
            pass

    @contextmanager
    def _transaction(self, *, changes: bool) -> Iterator[_Run]:
        driver = _driver()
        try:
            db = self._opened()
            with db.transaction():
                if changes:
                    db.execute(_for_postgres("postgres_change_alone"))
                yield lambda name, /, **values: _fetched(db.execute(_for_postgres(name), values))
        except driver.Error as error:
            self.close()
            raise _failed(str(self._address), error) from error

    def close(self) -> None:
        """Give the connection up; legal twice."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _opened(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._db is None:
            db: psycopg.Connection[tuple[Any, ...]] = _driver().connect(
                **self._address.parameters() | _IMPATIENT, autocommit=True, application_name="headgate tokens"
            )
            try:
                db.execute(_for_postgres("postgres_session"))
                _make(db)
                _check_version(_fetched(db.execute(_for_postgres("version")))[0][0], str(self._address))
            except BaseException:
                db.close()
                raise
            self._db = db
        return self._db


def _prepare(db: sqlite3.Connection) -> None:
    until = time.monotonic() + _BUSY_S
    # Asked first: changing the mode needs the file for itself, which a server that runs does not give.
    while db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:  # of two that change it at once, SQLite refuses one without waiting
            if time.monotonic() >= until:
                raise
            time.sleep(_AGAIN_S)
    db.execute("PRAGMA synchronous = FULL")
    if not db.execute(statements()["sqlite_is_made"]).fetchone()[0]:
        db.executescript(f"BEGIN IMMEDIATE; {statements()['schema']}")
        db.execute(statements()["note_version"], {"version": SCHEMA_VERSION})
        db.execute("COMMIT")
    elif db.execute(statements()["version"]).fetchone()[0] == 1:
        db.execute("BEGIN IMMEDIATE")
        if db.execute(statements()["version"]).fetchone()[0] == 1:  # nobody else has done it meanwhile
            for step in statements()["bind_to_pools"].split(";"):
                db.execute(step)
            db.execute(statements()["note_version"], {"version": SCHEMA_VERSION})
        db.execute("COMMIT")


def _make(db: psycopg.Connection[tuple[Any, ...]]) -> None:
    # Asked first: a server may run as a role that cannot create anything.
    is_made = bool(_fetched(db.execute(_for_postgres("postgres_is_made")))[0][0])
    if is_made and _fetched(db.execute(_for_postgres("version")))[0][0] != 1:
        return
    driver = _driver()
    # The job queue's own tables may be in the making: creating the schema twice at once fails in one of them.
    with db.transaction():
        db.execute(_for_postgres("postgres_make_alone"))
        if is_made:
            if _fetched(db.execute(_for_postgres("version")))[0][0] == 1:  # nobody else has done it meanwhile
                db.execute(_for_postgres("bind_to_pools"))
                db.execute(_for_postgres("note_version"), {"version": SCHEMA_VERSION})
            return
        try:
            with db.transaction():
                db.execute(_for_postgres("postgres_namespace"))
        except (driver.errors.UniqueViolation, driver.errors.DuplicateSchema):
            pass
        db.execute(_for_postgres("schema"))
        db.execute(_for_postgres("note_version"), {"version": SCHEMA_VERSION})


def _check_version(version: int, place: str) -> None:
    if version > SCHEMA_VERSION:
        raise StoreFailedError(
            f"the tokens in {place} have version {version}, and this Headgate knows {SCHEMA_VERSION}",
            next_step="Use the Headgate that wrote them, or a newer one.",
        )


def _failed(place: str, error: Exception, next_step: str | None = None) -> StoreFailedError:
    detail = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return StoreFailedError(f"the tokens in {place} cannot be read or written: {detail}", next_step=next_step)


def _driver() -> Any:
    try:
        import psycopg  # noqa: PLC0415 - of an optional extra
    except ImportError as error:
        raise MissingExtraError("a job queue in PostgreSQL", "postgres") from error
    return psycopg


@cache
def _for_postgres(name: str) -> bytes:
    return re.sub(r":(\w+)", r"%(\1)s", statements()[name]).encode()


def _fetched(cursor: psycopg.Cursor[tuple[Any, ...]]) -> Sequence[Sequence[Any]]:
    return cursor.fetchall() if cursor.description is not None else ()


def _row_of(token: Token) -> dict[str, object]:
    return {
        "token_id": token.token_id,
        "name": token.name,
        "scopes": json.dumps(sorted(token.scopes)),
        "teams": _listed(token.teams),
        "pools": _listed(token.pools),
        "most_priority": token.most_priority,
        "worker": token.worker,
        "digest": token.digest,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
        "rotated_at": token.rotated_at,
        "previous_digest": token.previous_digest,
        "previous_until": token.previous_until,
    }


def _listed(names: frozenset[str] | None) -> str | None:
    return None if names is None else json.dumps(sorted(names))


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
