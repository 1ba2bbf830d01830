"""The journal, off the event loop: one thread, one call at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from headgate.storage.journal import Journal

P = ParamSpec("P")
T = TypeVar("T")


class JournalThread:
    """Runs calls of a journal in order, on a thread of its own.

    `inline=True` runs them on the caller's thread instead: in simulated time a thread would race the clock.
    Owned by the campaign; `close` waits for the calls under way and closes the journal.
    """

    def __init__(self, journal: Journal, *, inline: bool = False) -> None:
        self.journal = journal
        self._pool = None if inline else ThreadPoolExecutor(1, thread_name_prefix="headgate-journal")

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a method of the journal returns; cancelling the caller does not stop a call under way."""
        if self._pool is None:
            return function(*args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Close the journal after the calls so far; blocks for them. Legal more than once."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        self.journal.close()
