"""The journal, off the event loop: one thread, one call at a time."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from headgate.core import Clock, SystemClock
from headgate.core.events import ClockStepped, Emit, Event, JournalBlocked, JournalRecovered
from headgate.durable.sqlite import damage_told
from headgate.storage.journal import Journal

P = ParamSpec("P")
T = TypeVar("T")

_RETRY_S: Final = 2.0
"""A full disk is freed by people, not in milliseconds."""


def _unheard(_: Event) -> None:
    return


class JournalThread:
    """Runs calls of a journal in order, on a thread of its own.

    Owned by the campaign; `close` waits for the calls under way and closes the journal.

    Attributes:
        is_blocked: the journal could not be written at the last try (a full disk); calls of `write` wait meanwhile.
        unblocked: called when it can be written again.
    """

    def __init__(
        self, journal: Journal, *, inline: bool = False, clock: Clock | None = None, emit: Emit = _unheard
    ) -> None:
        """Take charge of a journal.

        Args:
            journal: which from now on is used through this object only.
            inline: run calls on the caller's thread: in simulated time another thread would race the clock.
            clock: by which a blocked write is tried again.
            emit: told when writing is blocked, and when it works again.
        """
        self.journal = journal
        self.is_blocked = False
        self.unblocked: Callable[[], None] = lambda: None
        self._clock = clock or SystemClock()
        self._emit = emit
        self._blocked_at = 0.0
        self._pool = None if inline else ThreadPoolExecutor(1, thread_name_prefix="headgate-journal")

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a method of the journal returns; cancelling the caller does not stop a call under way."""

        def run() -> T:
            with damage_told(self.journal.file):
                return function(*args, **kwargs)

        if self._pool is None:
            return run()
        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    async def write(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a method of the journal returns, as soon as the journal can be written.

        Raises:
            JournalError: if the file is damaged.
            sqlite3.Error: if trying again cannot help: the call is wrong.
        """
        while True:
            try:
                result = await self.call(function, *args, **kwargs)
            except sqlite3.OperationalError as error:
                self._block(error)
                await self._clock.sleep(_RETRY_S)
                continue
            self._unblock()
            return result

    async def reconcile(self, now: float, due_s: Mapping[str, float]) -> None:
        """Have no time of the journal be ahead of `now`, and tell if one was; as `Journal.reconcile`."""
        ahead_s, times = await self.write(self.journal.reconcile, now, due_s)
        if times:
            self._emit(ClockStepped(self.journal.campaign, ahead_s, times))

    def close(self) -> None:
        """Close the journal after the calls so far; blocks for them. Legal more than once."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        self.journal.close()

    def _block(self, error: sqlite3.OperationalError) -> None:
        if not self.is_blocked:
            self.is_blocked = True
            self._blocked_at = self._clock.monotonic()
            self._emit(JournalBlocked(str(error)))

    def _unblock(self) -> None:
        if self.is_blocked:
            self.is_blocked = False
            self._emit(JournalRecovered(self._clock.monotonic() - self._blocked_at))
            self.unblocked()
