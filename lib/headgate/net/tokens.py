"""Tokens: who may do what for which teams, and where they are kept; of a secret only its hash is."""

from __future__ import annotations

import abc
import hashlib
import hmac
import json
import re
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from headgate.core import MAX_NAME_CHARS, MOST_PRIORITY, Secret, checked_text, credible
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.durable import sqlite
from headgate.durable.databases import PostgresAddress, place_of, statements

if TYPE_CHECKING:
    import psycopg

SCHEMA_VERSION: Final = 2
_BUSY_S: Final = 10.0
"""A job queue in the same file works in transactions of milliseconds; a command waits this long for its turn."""

_IMPATIENT: Final = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "2",
    "tcp_user_timeout": "5000",
}
"""A machine that is gone is noticed within seconds: requests wait for the reading of tokens."""

SECRET_BYTES: Final = 32
_ID_BYTES: Final = 6
_TEXT: Final = re.compile(r"hgq_([0-9a-f]{12})\.([A-Za-z0-9_-]{43})")
_NO_DIGEST: Final = secrets.token_hex(32)
"""What a secret is compared with where there is nothing to compare it with; no secret has this hash."""

_SQL: Final = statements("headgate.net", "tokens.sql")
_Run: TypeAlias = Callable[..., Sequence[Sequence[Any]]]


class Scope(StrEnum):
    """What a token allows."""

    SUBMIT = "submit"
    CLAIM = "claim"
    COMPLETE = "complete"
    READ = "read"
    LEGACY = "legacy"
    ADMIN = "admin"


class Refusal(StrEnum):
    """Why a request was not let in. Only whoever has the right secret learns more than `unknown`."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    ROTATED = "rotated"
    EXPIRED = "expired"
    REVOKED = "revoked"
    TOO_MANY_REQUESTS = "too_many_requests"
    UNAVAILABLE = "unavailable"


class TokenStoreError(HeadgateError):
    """The database of tokens could not be read or written; nothing was changed."""

    code = "jobqueue_store_failed"
    http_status = 503
    exit_code = 3
    next_step = "Look at the database and its disk; the request can be sent again."


class TokenParts(NamedTuple):
    """A token's text taken apart."""

    token_id: str
    secret: str


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is kept; its secret cannot be told from it.

    Attributes:
        token_id: public part of its text, unique.
        name: what people call it.
        scopes: what it allows; `admin` allows everything.
        digest: SHA-256 of its secret, in hex.
        created_at: wall time, seconds since the epoch.
        teams: only jobs of these; None for all.
        pools: only servers of these; None for all.
        most_priority: that its jobs may have; None for any.
        worker: only this worker may use it; None for any.
        expires_at: wall time from which it is refused, or None.
        revoked_at: wall time at which it was revoked, or None.
        rotated_at: wall time at which it got its present secret, or None when it is the first one.
        previous_digest: of the secret before that, or empty.
        previous_until: wall time from which that one is refused.
    """

    token_id: str
    name: str
    scopes: frozenset[Scope]
    digest: str = field(repr=False)
    created_at: float
    teams: frozenset[str] | None = None
    pools: frozenset[str] | None = None
    most_priority: int | None = None
    worker: str | None = None
    expires_at: float | None = None
    revoked_at: float | None = None
    rotated_at: float | None = None
    previous_digest: str = field(default="", repr=False)
    previous_until: float = 0.0

    def ended_by(self, now: float) -> Refusal | None:
        """Return why nobody can use it at wall time `now`, or None."""
        if self.revoked_at is not None:
            # Set means revoked, whatever the time: the clock of whoever revoked it may be ahead.
            return Refusal.REVOKED
        if self.expires_at is not None and now >= self.expires_at:
            return Refusal.EXPIRED
        return None


def new_token(
    name: str,
    scopes: Iterable[Scope],
    *,
    now: float,
    teams: Iterable[str] | None = None,
    pools: Iterable[str] | None = None,
    most_priority: int | None = None,
    worker: str | None = None,
    lifetime_s: float | None = None,
) -> tuple[Token, Secret]:
    """Return a new token and its text, which is known to nobody afterwards.

    One that is bound to teams has, unless more is given, the pools of their names and jobs of priority 0 at most: what
    the queue does for others is not for a team to say.

    Raises:
        InvalidInputError: if a name breaks a rule, there is no scope or team, or it would have expired already.
    """
    allowed = frozenset(scopes)
    bound_to = None if teams is None else frozenset(_checked(team, "team") for team in teams)
    served_by = bound_to if pools is None else frozenset(_checked(pool, "pool") for pool in pools)
    if not allowed:
        raise InvalidInputError("a token needs at least one scope", next_step=f"Scopes are {', '.join(Scope)}.")
    if bound_to is not None and not bound_to:
        raise InvalidInputError("a token bound to no team could do nothing", next_step="Name a team, or leave it out.")
    if most_priority is not None and abs(most_priority) > MOST_PRIORITY:
        raise InvalidInputError(f"a priority must be within ±{MOST_PRIORITY} (got {most_priority})")
    token_id = secrets.token_hex(_ID_BYTES)
    secret = secrets.token_urlsafe(SECRET_BYTES)
    token = Token(
        token_id=token_id,
        name=_checked(name, "name"),
        scopes=allowed,
        digest=_digest(secret),
        created_at=now,
        teams=bound_to,
        pools=served_by,
        most_priority=0 if most_priority is None and bound_to is not None else most_priority,
        worker=None if worker is None else _checked(worker, "worker"),
        expires_at=_expiry(lifetime_s, now),
    )
    return token, _text(token_id, secret)


def rotated(token: Token, *, now: float, overlap_s: float, lifetime_s: float | None = None) -> tuple[Token, Secret]:
    """Return the token with a new secret, and its text; the old one is good for `overlap_s` more seconds.

    A secret that was rotated away before ends at once, and the old one never outlives the expiry that it was given.

    Args:
        token: as it is.
        now: wall time.
        overlap_s: 0 ends the old secret at once.
        lifetime_s: seconds until the token expires; None leaves its expiry as it is.

    Raises:
        InvalidInputError: if it was revoked, it has expired and gets no new lifetime, or a duration is negative.
    """
    ended = token.ended_by(now)
    if ended is Refusal.REVOKED or (ended is Refusal.EXPIRED and lifetime_s is None):
        raise InvalidInputError(f"token {token.token_id} is {ended.value}", next_step="Create a new one.")
    if overlap_s < 0:
        raise InvalidInputError(f"overlap must be >= 0 s (got {overlap_s:g})")
    secret = secrets.token_urlsafe(SECRET_BYTES)
    until = now + overlap_s
    changed = replace(
        token,
        digest=_digest(secret),
        rotated_at=now,
        previous_digest=token.digest,
        previous_until=until if token.expires_at is None else min(until, token.expires_at),
        expires_at=token.expires_at if lifetime_s is None else _expiry(lifetime_s, now),
    )
    return changed, _text(token.token_id, secret)


def revoked(token: Token, *, now: float) -> Token:
    """Return the token revoked; one that was revoked before keeps the time of it."""
    return token if token.revoked_at is not None else replace(token, revoked_at=now)


def parsed(text: str) -> TokenParts | None:
    """Return the parts of a token's text, or None when it is not one."""
    match = _TEXT.fullmatch(text)
    return None if match is None else TokenParts(*match.groups())


def refusal_of(token: Token | None, secret: str, now: float) -> Refusal | None:
    """Return why `secret` does not open `token` at wall time `now`, or None when it does.

    The work is the same for an id that nobody has (`token` None) and for a wrong secret, and both are `unknown`: how
    long an answer takes does not say which ids there are.
    """
    digest = _digest(secret)
    current = _NO_DIGEST if token is None else token.digest
    previous = (token.previous_digest if token is not None else "") or _NO_DIGEST
    is_current = hmac.compare_digest(digest, current)
    is_previous = hmac.compare_digest(digest, previous)
    if token is None or not (is_current or is_previous):
        return Refusal.UNKNOWN
    ended = token.ended_by(now)
    # Rotated by a clock that was ahead, it would be let in until that time has come.
    is_possible = token.rotated_at is None or credible(token.rotated_at, now) == token.rotated_at
    if ended is None and not is_current and not (is_possible and now < token.previous_until):
        return Refusal.ROTATED
    return ended


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _text(token_id: str, secret: str) -> Secret:
    return Secret(f"hgq_{token_id}.{secret}")


def _expiry(lifetime_s: float | None, now: float) -> float | None:
    if lifetime_s is not None and lifetime_s <= 0:
        raise InvalidInputError(f"a token's lifetime must be > 0 s (got {lifetime_s:g})")
    return None if lifetime_s is None else now + lifetime_s


def _checked(value: str, what: str) -> str:
    if not 0 < len(value) <= MAX_NAME_CHARS:
        raise InvalidInputError(f"a {what} must have 1 to {MAX_NAME_CHARS} characters (got {len(value)})")
    try:
        return checked_text(value)
    except ValueError as error:
        raise InvalidInputError(f"a {what} {error}") from None


class DatabaseTokens(abc.ABC):
    """Tokens in a database, with a connection of their own.

    Every method raises `TokenStoreError` when the database cannot be read or written; nothing was changed then, and
    the next call connects anew.
    """

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
        """Replace a token by what `change` makes of it and return that; None when there is none.

        Nobody else changes it in between. What `change` raises is passed on, and the token stays as it was.
        """
        with self._transaction(changes=True) as run:
            rows = run("token", token_id=token_id)
            if not rows:
                return None
            changed = change(_token_of(rows[0]))
            run("change", **_row_of(changed))
            return changed

    @abc.abstractmethod
    def close(self) -> None:
        """Give the connection up; legal twice."""

    @abc.abstractmethod
    def _transaction(self, *, changes: bool) -> AbstractContextManager[_Run]:
        """Return what runs statements by name in one transaction; alone among those that change when `changes`."""


class MemoryTokens:
    """Tokens that end with their process."""

    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}

    def tokens(self) -> list[Token]:
        """Return every token; see `DatabaseTokens`."""
        return sorted(self._tokens.values(), key=lambda token: (token.created_at, token.token_id))

    def add(self, token: Token, *, forget_before: float) -> None:
        """Keep a new token; see `DatabaseTokens`."""
        for old in list(self._tokens.values()):
            if any(at is not None and at < forget_before for at in (old.revoked_at, old.expires_at)):
                del self._tokens[old.token_id]
        self._tokens[token.token_id] = token

    def change(self, token_id: str, change: Callable[[Token], Token]) -> Token | None:
        """Replace a token; see `DatabaseTokens`."""
        if token_id in self._tokens:
            self._tokens[token_id] = change(self._tokens[token_id])
        return self._tokens.get(token_id)

    def close(self) -> None:
        """Do nothing: there is no connection."""


TokenStore: TypeAlias = MemoryTokens | DatabaseTokens
"""Where tokens are kept. All methods block, and one thread calls them at a time."""


class SqliteTokens(DatabaseTokens):
    """Tokens in a file of SQLite, most often that of the jobs; it and its folder are made when they are not there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        with self._transaction(changes=False):
            pass

    def close(self) -> None:
        """Give the connection up; legal twice."""
        if self._db is not None:
            self._db.close()
            self._db = None

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
                    if db.execute(_SQL["version"]).fetchone()[0] == 1:  # nobody else has done it meanwhile
                        for step in _SQL["bind_to_pools"].split(";"):
                            db.execute(step)
                        db.execute(_SQL["note_version"], {"version": SCHEMA_VERSION})
            _check_version(db.execute(_SQL["version"]).fetchone()[0], self._path)
        except BaseException:
            db.close()
            raise
        return db


class PostgresTokens(DatabaseTokens):
    """Tokens in the schema `headgate_jobqueue` of a PostgreSQL database."""

    def __init__(self, address: PostgresAddress) -> None:
        import psycopg  # noqa: PLC0415 - of an optional extra

        self._driver = psycopg
        self._address = address
        self._sql = {
            name: sql.encode() for name, sql in statements("headgate.net", "tokens.sql", for_postgres=True).items()
        }
        self._db: psycopg.Connection[tuple[Any, ...]] | None = None
        with self._transaction(changes=False):
            pass

    def close(self) -> None:
        """Give the connection up; legal twice."""
        if self._db is not None:
            self._db.close()
            self._db = None

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
            **self._address.parameters() | _IMPATIENT, autocommit=True, application_name="headgate tokens"
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
        # Asked first: a server may run as a role that cannot create anything.
        is_made = bool(self._fetched(db, "postgres_is_made")[0][0])
        if is_made and self._version(db) != 1:
            return
        # The job queue's own tables may be in the making: creating the schema twice at once fails in one of them.
        with db.transaction():
            db.execute(self._sql["postgres_make_alone"])
            if not is_made:
                try:
                    with db.transaction():
                        db.execute(self._sql["postgres_namespace"])
                except (self._driver.errors.UniqueViolation, self._driver.errors.DuplicateSchema):
                    pass
                db.execute(self._sql["schema"])
            elif self._version(db) == 1:  # nobody else has done it meanwhile
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

    They lie beside the jobs of a queue in the same database, so that commands and servers need no other place.

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
    return asdict(token) | {name: _listed(getattr(token, name)) for name in ("scopes", "teams", "pools")}


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
