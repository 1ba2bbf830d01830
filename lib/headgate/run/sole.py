"""Makes a run the only one of its kind: on this machine, or on all that share a journal."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.core.errors import InvalidInputError
from headgate.durable.locks import FileLock, LockHeldError
from headgate.storage import JournalPlace

if TYPE_CHECKING:
    from headgate.durable.postgres import PostgresLock


class SoleRun:
    """A lock in the place of a journal, which the run that does one thing holds. Owned by that run."""

    def __init__(self, place: JournalPlace, kind: str, name: str, held: str, *, next_step: str, doing: str) -> None:
        """Prepare it.

        Args:
            place: of the journal.
            kind: a word for what is done.
            name: what it is done to.
            held: the error's sentence where another run does it.
            next_step: what to do then.
            doing: tells others what this process does.
        """
        self._held, self._next_step = held, next_step
        self._me = f"process {os.getpid()} on {socket.gethostname()}, which {doing}"
        self._lock: FileLock | PostgresLock
        if isinstance(place, Path):
            digest = hashlib.sha256(name.encode()).hexdigest()[:16]
            self._lock = FileLock(place / f"{kind}-{digest}.lock")
        else:
            from headgate.durable.postgres import PostgresLock  # noqa: PLC0415 - in an optional extra

            self._lock = PostgresLock(place, f"headgate {kind} {name}")

    def close(self) -> None:
        """Release the lock; allowed without holding it."""
        self._lock.give_back()

    def take(self) -> None:
        """Take the lock, or keep it: a lock that the database lost with its connection is taken again.

        Raises:
            InvalidInputError: if another run holds it.
            DatabaseAwayError: the database does not answer.
        """
        if isinstance(self._lock, FileLock) and self._lock.is_held:
            return
        try:
            self._lock.take(self._me)
        except LockHeldError as error:
            raise InvalidInputError(f"{self._held}, by {error.holder}", next_step=self._next_step) from None
