"""The sink: moves samples from the spool into the store, in batches, until the store confirms them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, ParamSpec, Protocol, TypeVar

from headgate.core import Clock, Sample, SystemClock, errors, until_set
from headgate.core.events import (
    BatchStored,
    ClockStepped,
    Emit,
    JournalBlocked,
    JournalRecovered,
    RowsQuarantined,
    StoreFailed,
    unheard,
)
from headgate.storage.batches import StoredBatch
from headgate.storage.journal import Journal
from headgate.storage.journal_database import JOURNAL_AWAY
from headgate.storage.spool import LARGEST_BATCH_BYTES, SpooledBatch, SpoolState

P = ParamSpec("P")
T = TypeVar("T")

_RETRY_S: Final = 2.0
"""Pause before a blocked write is tried again: people free a full disk, which takes a while."""


class JournalThread:
    """Runs a journal's methods in order on a separate thread.

    Owned by the campaign; `close` waits for calls in progress and closes the journal.

    Attributes:
        problem: why the last try to write the journal failed (a full disk), and which journal; calls of `write` wait
            meanwhile. Empty while writing works.
        unblocked: called when writing works again.
    """

    def __init__(
        self, journal: Journal, *, inline: bool = False, clock: Clock | None = None, emit: Emit = unheard
    ) -> None:
        """Take ownership of a journal.

        Args:
            journal: the journal, used only through this object from now on.
            inline: run calls on the caller's thread, since in simulated time another thread would race the clock.
            clock: clock for retries of a blocked write.
            emit: receives events when writing is blocked, and when it works again.
        """
        self.journal = journal
        self.problem = ""
        self.unblocked: Callable[[], None] = lambda: None
        self._clock = clock or SystemClock()
        self._emit = emit
        self._blocked_at = 0.0
        self._pool = None if inline else ThreadPoolExecutor(1, thread_name_prefix="headgate-journal")

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a journal method; cancelling the caller does not stop a call in progress."""

        def run() -> T:
            with self.journal.told():
                return function(*args, **kwargs)

        if self._pool is None:
            return run()
        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    async def write(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a journal method, retrying until the journal can be written.

        Raises:
            JournalError: if the file is damaged.
            Exception: the database driver's error, if a retry cannot help because the call itself is wrong.
        """
        while True:
            try:
                result = await self.call(function, *args, **kwargs)
            except JOURNAL_AWAY as error:
                if not self.problem:
                    self.problem = f"{error} ({self.journal.place})"
                    self._blocked_at = self._clock.monotonic()
                    self._emit(JournalBlocked(self.problem))
                await self._clock.sleep(_RETRY_S)
                continue
            if self.problem:
                self.problem = ""
                self._emit(JournalRecovered(self._clock.monotonic() - self._blocked_at))
                self.unblocked()
                with contextlib.suppress(*JOURNAL_AWAY):
                    await self.call(self.journal.announce)
            return result

    async def reconcile(self, now: float, due_s: Mapping[str, float]) -> None:
        """Correct times of the journal that are ahead of `now` and report that; see `Journal.reconcile`."""
        ahead_s, times = await self.write(self.journal.reconcile, now, due_s)
        if times:
            self._emit(ClockStepped(self.journal.campaign, ahead_s, times))

    async def keep(self) -> None:
        """Renew this process's lease of a shared journal, if it needs one, until cancelled."""
        while (every_s := self.journal.renew_every_s) is not None:
            await self._clock.sleep(every_s)
            with contextlib.suppress(*JOURNAL_AWAY):
                await self.call(self.journal.renew)

    def close(self) -> None:
        """Close the journal after the pending calls, for which this blocks; idempotent."""
        self.journal.interrupt()
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        self.journal.close()


_FIRST_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 60.0
"""A store that is down is tried once a minute; the spool keeps the samples meanwhile."""

_MOST_DOUBLINGS: Final = 6
"""Enough to exceed the longest pause; without a bound, the power would overflow after a day of failures."""


class BatchStore(Protocol):
    """Stores batches of samples: the sample store, or a test double."""

    async def put_batch(self, batch_id: str, samples: list[Sample]) -> StoredBatch:
        """Make the samples visible under `batch_id`; idempotent.

        Raises:
            StoreError: if that failed; it may be retried.
        """


@dataclass(frozen=True, slots=True)
class SinkRules:
    """When a batch is stored: at `batch_size` samples, or when the oldest has waited `max_wait_s`.

    Everything that waits then goes with it, up to `largest` samples, since a part costs the same with ten rows or a
    thousand. `is_last`: no later process uses this spool, so a batch that fails at the end is retried, too.
    """

    batch_size: int = 300
    max_wait_s: float = 300.0
    largest: int = 5_000
    is_last: bool = False


class Sink:
    """Stores spooled samples, one batch at a time. Owned by the campaign; `run` lives as long as it.

    A batch leaves the spool only after the store has confirmed it. A failed one keeps its id and rows and is retried
    with growing pauses; samples that arrive meanwhile wait in the spool, on disk.
    """

    def __init__(
        self,
        journal: JournalThread,
        store: BatchStore,
        rules: SinkRules,
        *,
        clock: Clock,
        now: Callable[[], float],
        emit: Emit,
    ) -> None:
        self._journal = journal
        self._store = store
        self._rules = rules
        self._clock = clock
        self._now = now
        self._emit = emit
        self._wake = asyncio.Event()
        self._finishing = asyncio.Event()
        self._spool = SpoolState(0, None, 0)
        self._chars = 0
        self._failures = 0
        self._rng = random.Random(0)
        self.stored = 0
        self.problem = ""
        """Why the store did not accept the last batch; empty once it accepts one."""

    @property
    def spooled(self) -> int:
        """Number of this process's samples that wait to be stored."""
        return self._spool.rows

    def note_accepted(self, rows: int, chars: int = 0) -> None:
        """Note that rows have entered the spool, with conversations of so many characters."""
        self._chars += chars
        if not rows:
            return
        now = self._now()
        is_first = self._spool.oldest_at is None
        oldest = now if self._spool.oldest_at is None else self._spool.oldest_at
        self._spool = SpoolState(self._spool.rows + rows, oldest, self._spool.assigned)
        if is_first or self._is_due(now):
            self._wake.set()

    async def look(self) -> None:
        """Reread the spool's state, at the start and after another process has left its samples."""
        with contextlib.suppress(*JOURNAL_AWAY):
            self._spool = await self._journal.call(self._journal.journal.spool_state)
        self._wake.set()

    async def run(self) -> None:
        """Store batches as they fall due until `finish` is called, then store the rest and return."""
        await self.look()
        while not self._finishing.is_set():
            now = self._now()
            if self._is_due(now):
                if (pause_s := await self._store_one()) is not None:
                    await until_set(self._finishing, pause_s)
                continue
            self._wake.clear()
            oldest = self._spool.oldest_at
            await until_set(self._wake, None if oldest is None else max(0.0, oldest + self._rules.max_wait_s - now))
        while self._spool.rows:
            pause = await self._store_one()
            if pause is not None and not self._rules.is_last:
                return
            await self._clock.sleep(pause or 0.0)

    def finish(self) -> None:
        """Make `run` store all spooled samples, in full batches or not, and return.

        Samples that the store then refuses stay in the spool for the next campaign.
        """
        self._finishing.set()
        self._wake.set()

    def _is_due(self, now: float) -> bool:
        spool = self._spool
        if spool.assigned or spool.rows >= self._rules.batch_size or self._chars >= LARGEST_BATCH_BYTES:
            return True
        return spool.oldest_at is not None and now >= spool.oldest_at + self._rules.max_wait_s

    async def _store_one(self) -> float | None:
        """Store one batch; return how long to wait before the next try, None when it worked."""
        journal = self._journal.journal
        batch: SpooledBatch | None = None
        try:
            batch = await self._journal.call(journal.next_batch, max(self._rules.batch_size, self._rules.largest))
            if batch is not None:
                began = self._clock.monotonic()
                stored = await self._store.put_batch(batch.batch_id, list(batch.samples))
                await self._journal.call(journal.batch_stored, batch.batch_id)
                self._chars = max(0, self._chars - sum(len(one.conversation) for one in batch.samples))
                self._tell(stored, self._clock.monotonic() - began)
            self._spool = await self._journal.call(journal.spool_state)
            self._chars = self._chars if self._spool.rows else 0
        except (errors.StoreError, *JOURNAL_AWAY) as error:
            # A journal on a full disk is like an unavailable store: the batch keeps its id, which the store knows.
            return self._failed(batch, error)
        self._failures, self.problem = 0, ""
        return None

    def _failed(self, batch: SpooledBatch | None, error: Exception) -> float:
        self._failures += 1
        doublings = min(self._failures - 1, _MOST_DOUBLINGS)
        pause = min(_FIRST_RETRY_S * 2.0**doublings, _LONGEST_RETRY_S) * self._rng.uniform(0.75, 1.25)
        self.problem = error.message if isinstance(error, errors.StoreError) else ""
        batch_id, rows = (batch.batch_id, len(batch.samples)) if batch else ("", self._spool.rows)
        self._emit(StoreFailed(batch_id, rows, str(error), pause, self._failures))
        return pause

    def _tell(self, stored: StoredBatch, seconds: float) -> None:
        self.stored += stored.rows
        self._emit(BatchStored(stored.batch_id, stored.rows, stored.parts, seconds))
        if stored.quarantined_rows:
            where, why = stored.quarantine_path or "", stored.reason or ""
            self._emit(RowsQuarantined(stored.batch_id, stored.quarantined_rows, where, why))
