"""Acceptance: makes finished samples durable, many per disk write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from headgate.core import Clock, Sample
from headgate.run.budgets.keeper import Budgets
from headgate.storage import JournalThread

GATHER_S: Final = 0.02
"""How long a finished sample waits for others to share its write: a transaction costs as much as fifty samples."""


class Acceptance:
    """Writes finished samples into the journal. Owned by the campaign; `run` lives as long as it.

    Samples that finish within `GATHER_S`, or during a write, share the next write; no worker waits for it. While the
    journal cannot be written (a full disk), samples wait in memory.
    """

    def __init__(
        self,
        journal: JournalThread,
        *,
        clock: Clock,
        now: Callable[[], float],
        accepted: Callable[[Sequence[Sample], set[str]], None],
        spending: Budgets | None = None,
    ) -> None:
        """Prepare it; `accepted` receives the samples that were written, and the ids that the journal accepted."""
        self._journal = journal
        self._clock = clock
        self._now = now
        self._accepted = accepted
        self._spending = spending
        self._waiting: list[Sample] = []
        self._begun: dict[str, bool] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        """Samples that are not durable yet."""
        return len(self._waiting)

    def is_waiting(self, task_id: str) -> bool:
        """Return whether a task's sample has finished but is not durable yet; for answers to `headgate why`."""
        return any(sample.task_id == task_id for sample in self._waiting)

    def note_started(self, task_id: str) -> None:
        """Record with the next write that a task's episode has begun."""
        self._begun[task_id] = True
        self._wake.set()

    def note_rested(self, task_id: str) -> None:
        """Record with the next write that a task that had begun now waits idly."""
        self._begun[task_id] = False
        self._wake.set()

    def add(self, sample: Sample) -> None:
        """Queue a sample for the next write."""
        self._waiting.append(sample)
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Write waiting samples, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._clock.sleep(GATHER_S)
            while self._waiting or self._begun:
                await self._write(self._waiting[:])
            self._idle.set()

    async def drained(self) -> None:
        """Return once every sample added so far is durable."""
        await self._idle.wait()

    async def _write(self, samples: list[Sample]) -> None:
        journal, begun, self._begun = self._journal.journal, self._begun, {}
        started = [task_id for task_id, is_running in begun.items() if is_running]
        rested = [task_id for task_id, is_running in begun.items() if not is_running]
        spent = {} if self._spending is None else self._spending.unreported()
        try:
            accepted = await self._journal.write(
                journal.accept, samples, self._now(), started=started, rested=rested, spent=spent
            )
        except BaseException:
            self._begun = begun | self._begun
            if self._spending is not None:
                self._spending.put_back(spent)
            raise
        del self._waiting[: len(samples)]
        self._accepted(samples, accepted)
