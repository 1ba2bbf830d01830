"""The port behind which a journal's tables lie: one SQLite file, or a schema of a PostgreSQL database."""

from __future__ import annotations

import hashlib
import re
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

from headgate.core import errors
from headgate.durable.databases import DatabaseAwayError, PostgresAddress

SCHEMA_VERSION: Final = "2"

JournalPlace = Path | PostgresAddress
"""Where journals are: a folder of this machine, or a database that machines share."""

JOURNAL_AWAY: Final = (sqlite3.OperationalError, DatabaseAwayError)
"""The journal cannot be written or reached for now. Nothing of the transaction has happened; it may be tried again."""

JOURNAL_REFUSED: Final = (sqlite3.Error, DatabaseAwayError)
"""The journal did not do what was asked of it."""


class Cursor(Protocol):
    """What a statement gave."""

    @property
    def rowcount(self) -> int:
        """Rows that were changed."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return the rest of the rows."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the rest of the rows."""


class HolderRegistry(Protocol):
    """Who of the processes that opened a journal is alive. Asked inside of the journal's write transactions."""

    def is_dead(self, holder: str) -> bool:
        """Return whether a holder is gone: what it left may be taken over, and it can touch it no more."""

    def others(self) -> bool:
        """Return whether another holder is alive."""


class JournalDatabase(Protocol):
    """The tables of one campaign's journal, opened by one holder; its statements are named in `journal.sql`.

    Write transactions of all holders run one after the other. Used from one thread at a time.
    """

    @property
    def holders(self) -> HolderRegistry:
        """The holders of the journal."""

    @property
    def place(self) -> str:
        """Where it is, for people."""

    @property
    def renew_every_s(self) -> float | None:
        """How often `renew` is to be called; None when a holder's life shows by itself."""

    def run(self, name: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> Cursor:
        """Run a statement, in the transaction that is open or on its own."""

    def many(self, name: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Run a statement for every row, if any; return how many rows were changed."""

    def each(self, name: str, rows: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Return the rows that a statement gives for all of these, in any order."""

    def transaction(self, *, durable: bool = False) -> AbstractContextManager[None]:
        """Commit what happens inside, or nothing of it; a durable one outlives a power cut.

        Raises:
            sqlite3.OperationalError, DatabaseAwayError: see `JOURNAL_AWAY`.
        """

    def claim(self) -> bool:
        """Have the numbers of pairs and tasks for this transaction; return whether another holder changed them."""

    def has_tables(self) -> bool:
        """Return whether the tables are there."""

    def make_tables(self) -> None:
        """Make what is missing of them."""

    def told(self) -> AbstractContextManager[None]:
        """Raise damage as a `JournalError`; let all other errors pass."""

    def check(self) -> None:
        """Look for damage of the tables; what raises is raised as by `told`."""

    def scrub(self) -> None:
        """Have the disk hold nothing of what was removed from the tables."""

    def renew(self) -> None:
        """Say that this holder is alive."""

    def interrupt(self) -> None:
        """End a wait of another thread for a database that is away: that call fails."""

    def close(self) -> None:
        """Leave the holders, and close."""


def prepare(db: JournalDatabase, campaign: str) -> None:
    """Make the tables, or check whose they are; with everybody else kept out.

    Raises:
        JournalError: if they are of another format, or of another campaign.
    """
    if db.has_tables() and (version := meta_of(db, "schema_version")) is not None and version != SCHEMA_VERSION:
        raise errors.JournalError(
            f"journal {db.place} has format {version}, this version reads {SCHEMA_VERSION}",
            next_step="Run the version of Headgate that wrote it, or choose another place with --journal.",
        )
    db.make_tables()
    for key, value in (("schema_version", SCHEMA_VERSION), ("campaign", campaign), ("journal_id", uuid.uuid4().hex)):
        db.run("set_meta_once", {"key": key, "value": value})
    owner = meta_of(db, "campaign")
    if owner != campaign:
        raise errors.JournalError(f"journal {db.place} belongs to campaign {owner!r}, not {campaign!r}")


def meta_of(db: JournalDatabase, key: str) -> str | None:
    """Return a value of the journal's `meta`, None where there is none."""
    found = db.run("meta", {"key": key}).fetchone()
    return None if found is None else str(found[0])


def plain_name(campaign: str) -> str:
    """Return a name for the journal of a campaign: another one for every name, no longer than file systems allow."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "~", campaign)
    if plain == campaign and plain.strip("."):
        return plain
    return f"{plain}~{digest_of(campaign)}"


def digest_of(campaign: str) -> str:
    """Return a few characters that differ where campaigns do."""
    return hashlib.blake2b(campaign.encode(), digest_size=6).hexdigest()
