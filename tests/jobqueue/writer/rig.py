"""A writer on a store in memory whose commits can be counted and made to fail, with a clock that somebody moves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from headgate.jobqueue import Changes, ClaimRequest, Instant, Job, JobSpec, Ledger, LedgerWriter
from headgate.jobqueue.errors import StoreFailedError, StoreInUseError
from headgate.jobqueue.stores.sqlite import MemoryStore

SOON_S = 30.0  # a writer that stands still fails its test; one that works answers at once


@dataclass
class HandClock:
    """A clock that somebody moves."""

    now: float = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the writer does not sleep")


class FragileStore(MemoryStore):
    """A store in memory that refuses to write, or to be opened, when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = False
        self.is_taken = False
        self.is_confused = False
        self.commits = 0

    def own(self, owner: str) -> Self:
        if self.is_taken:
            raise StoreInUseError("somebody else serves it")
        if self.is_confused:
            raise RuntimeError("not what a store raises")
        return super().own(owner)

    def commit(self, changes: Changes) -> None:
        if self.is_broken:
            raise StoreFailedError("the disk is full")
        super().commit(changes)
        self.commits += 1


class Rig:
    """A writer and everything around it."""

    def __init__(self) -> None:
        self.store = FragileStore()
        self.clock = HandClock()
        self.writer = LedgerWriter(self.store, self.clock, "rig")

    def do(self, operation: Callable[[Ledger, Instant], Any]) -> Any:
        """Run an operation from a thread that may wait for it."""
        return self.writer.submit(operation).result(SOON_S)

    def turn(self) -> None:
        """Return when everything that was handed in before has been answered, and everybody told."""
        self.do(lambda ledger, at: None)
        self.do(lambda ledger, at: None)

    def submit(self, *specs: JobSpec) -> None:
        self.do(lambda ledger, at: ledger.submit(specs, at))

    def claim(self, worker: str = "worker", count: int = 1) -> list[Job]:
        return list(self.do(lambda ledger, at: ledger.claims.claim(ClaimRequest(worker, count), at)))

    def job(self, job_id: str) -> Job:
        job = self.do(lambda ledger, at: ledger.job(job_id))
        assert isinstance(job, Job)
        return job

    def passes(self, seconds: float) -> None:
        """Let time go on, and wake the writer."""
        self.clock.now += seconds
        self.turn()

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Hold the writer's thread inside an operation; all that is handed in meanwhile comes in the next groups."""
        begun, go_on = threading.Event(), threading.Event()

        def hold(ledger: Ledger, at: Instant) -> None:
            begun.set()
            assert go_on.wait(SOON_S)

        held: Future[None] = self.writer.submit(hold)
        assert begun.wait(SOON_S)
        try:
            yield
        finally:
            go_on.set()
        held.result(SOON_S)
