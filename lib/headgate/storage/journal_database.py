"""The interface to a journal's tables, which are in one SQLite file or in a schema of a PostgreSQL database."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.core import CLOCK_TOLERANCE_S, DAY_S, errors
from headgate.durable.databases import DatabaseAwayError, PostgresAddress
from headgate.durable.locks import Holders

if TYPE_CHECKING:
    from headgate.storage.journal_postgres import PostgresJournal

SCHEMA_VERSION: Final = "2"

JournalPlace = Path | PostgresAddress
"""Where journals are: a folder on this machine, or a database shared by several machines."""

JOURNAL_AWAY: Final = (sqlite3.OperationalError, DatabaseAwayError)
"""The journal cannot be written or reached at present. The transaction had no effect and may be retried."""

JOURNAL_REFUSED: Final = (sqlite3.Error, DatabaseAwayError)
"""The journal failed to do what was requested."""


class JournalDatabase(Protocol):
    """The tables of one campaign's journal, opened by one holder; its statements are named in `journal.sql`.

    Write transactions of all holders run one after another. Used from one thread at a time.
    """

    holders: Holders | PostgresJournal
    """Tells which of the processes that opened the journal are alive. Used inside its write transactions."""
    place: str
    """Its location, for messages."""
    renew_every_s: float | None = None
    """Interval at which to call `renew`; None if a holder's life shows by itself."""

    def run(self, name: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> Any:
        """Run a statement, in the open transaction or on its own; return the driver's cursor."""

    def many(self, name: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Run a statement for every row, if any; return the number of changed rows."""

    def each(self, name: str, rows: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Return the rows that a statement returns for all of these rows, in any order."""

    def transaction(self, *, durable: bool = False) -> AbstractContextManager[None]:
        """Commit everything inside, or nothing; a durable transaction survives a power cut.

        Raises:
            sqlite3.OperationalError, DatabaseAwayError: see `JOURNAL_AWAY`.
        """

    def claim(self) -> bool:
        """Reserve the numbers of pairs and tasks for this transaction; return whether another holder changed them."""

    def make_tables(self) -> None:
        """Create missing tables."""

    def told(self) -> AbstractContextManager[None]:
        """Raise damage as a `JournalError`, where it shows here; let all other errors pass."""
        return nullcontext()

    def check(self) -> None:
        """Check the tables for damage, unless a server does; errors are raised as by `told`."""
        return

    def scrub(self) -> None:
        """Erase from the disk what was removed from the tables."""

    def renew(self) -> None:
        """Report that this holder is alive, where that does not show by itself."""
        return

    def interrupt(self) -> None:
        """End another thread's wait for an unreachable database, if there can be one: that call fails."""
        return

    def close(self) -> None:
        """Leave the holders, and close."""


def prepare(db: JournalDatabase, campaign: str) -> None:
    """Create the tables, or check whose they are; the caller keeps all others out.

    Raises:
        JournalError: if they have another format, or belong to another campaign.
    """
    version = meta_of(db, "schema_version") if db.run("has_meta").fetchone() is not None else None
    if version not in {None, SCHEMA_VERSION}:
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
    """Return a value of the journal's `meta`, None if there is none."""
    found = db.run("meta", {"key": key}).fetchone()
    return None if found is None else str(found[0])


def plain_name(campaign: str) -> str:
    """Return a name for a campaign's journal: unique for each name, and within the limits of file systems."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "~", campaign)
    if plain == campaign and plain.strip("."):
        return plain
    return f"{plain}~{digest_of(campaign)}"


def digest_of(campaign: str) -> str:
    """Return a few characters that differ for different campaigns."""
    return hashlib.blake2b(campaign.encode(), digest_size=6).hexdigest()


_MINUTE_S: Final = 60.0

_DOUBT: Final = "clock_doubt"
"""Key in the journal's `meta`: when the clock last showed an impossible time, and by how many seconds it was set back:
the last time, and in total since the journal has lived by one clock for a day."""

_SEEN: Final = "clock_seen"
"""Likewise: when a process last started."""


class JournalTimes:
    """Compares a journal's times with the clock whenever a process opens it. Owned by the journal.

    A journal alone cannot tell whether a clock that jumped was right before or is right now. So nothing is lost either
    way:

    - Times ahead of the clock become `now`: sampling continues at once, and their spending counts for 24 h from now.
    - A clock that was set back may be set ahead again. For a day, spending and due times are then shifted ahead with
      it, by as much as it was set back: as if it had never been touched.
    - If a journal is a day or more behind the clock, it was idle, or the clock is ahead. For a day of its life, nothing
      is deleted because of its age.
    """

    def __init__(self, db: JournalDatabase) -> None:
        self._db = db

    def latest(self) -> float | None:
        """Return the latest time at which something happened; None if nothing has."""
        found: float | None = self._db.run("latest_time").fetchone()[0]
        return found

    def reconcile(self, now: float, due_s: Mapping[str, float]) -> tuple[float, int]:
        """Correct every time that is impossible at `now`; inside a write transaction. See `Journal.reconcile`."""
        latest = self.latest()
        times = self._bring_back(now, due_s)
        ahead_s = 0.0 if latest is None else latest - now
        if times and self._db.holders.others():
            raise errors.ClockDisagreesError(
                f"the journal holds times that lie up to {max(ahead_s, CLOCK_TOLERANCE_S):.0f} s ahead of this "
                "machine's clock, and another process of it is running",
                next_step="End the other processes of the campaign, set the clock if it is wrong, and start again.",
            )
        if latest is not None:
            self._note(now, latest)
        return max(ahead_s, 0.0), times

    def oldest_kept(self, now: float) -> int | None:
        """Return the minute before which rows are deleted; None while the clock is in doubt."""
        at = self._doubt()[0]
        # Two days, not one: a step of less than a day does not put the clock in doubt.
        return None if abs(now - at) < DAY_S else int((now - 2 * DAY_S) // _MINUTE_S)

    def _bring_back(self, now: float, due_s: Mapping[str, float]) -> int:
        """Set every impossible time to `now`; return how many there were."""
        limit = now + CLOCK_TOLERANCE_S
        times = self._move(int(limit // _MINUTE_S) + 1, 0, now)
        limits = {"bring_back_spool": limit, "bring_back_tasks": limit, "bring_back_pauses": now + DAY_S}
        for name, most in limits.items():
            times += self._db.run(name, {"now": now, "limit": most}).rowcount
        for environment, most in due_s.items():
            values = {"now": now, "limit": now + max(most, CLOCK_TOLERANCE_S), "environment": environment}
            times += self._db.run("bring_back_dues", values).rowcount
        return times

    def _note(self, now: float, latest: float) -> None:
        at, last_s, total_s = self._doubt()
        if latest - at >= DAY_S:
            total_s = 0.0  # the journal has lived by this clock for a day
        idle_s = now - latest
        if idle_s < -CLOCK_TOLERANCE_S:
            at, last_s, total_s = now, -idle_s, total_s - idle_s
        elif total_s and idle_s >= last_s - CLOCK_TOLERANCE_S and not self._db.holders.others():
            by_s = min(idle_s, total_s)
            self._move(int((latest - DAY_S) // _MINUTE_S), int(by_s // _MINUTE_S), now)
            self._db.run("move_dues", {"since": latest - DAY_S, "by": by_s, "now": now})
            at, total_s, idle_s = at + by_s, 0.0, idle_s - by_s
        if idle_s >= DAY_S:
            at = now
        for key, value in ((_DOUBT, json.dumps([at, last_s, total_s])), (_SEEN, repr(now))):
            self._db.run("set_meta", {"key": key, "value": value})

    def _move(self, since: int, by: int, now: float) -> int:
        """Move spending and counts since a minute `by` minutes ahead, but not beyond now; return the number of rows."""
        values, moved = {"since": since, "by": by, "now": int(now // _MINUTE_S)}, 0
        for table, put in (("spent", "count_spent"), ("counts", "count")):
            rows = self._db.run(f"{table}_moved", values).fetchall()
            self._db.run(f"forget_{table}_since", {"minute": since})
            moved += self._db.many(put, rows)
        return moved

    def _doubt(self) -> tuple[float, float, float]:
        found = meta_of(self._db, _DOUBT)
        return (-DAY_S, 0.0, 0.0) if found is None else tuple(json.loads(found))
