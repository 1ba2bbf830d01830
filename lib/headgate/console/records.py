"""The sample store as screens query it: one index for all viewers, and each answer made once while it is valid."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import anyio
import polars as pl
from fastapi import HTTPException, Request

from headgate.config import Settings
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.core.tasks import cancelled, first_ended
from headgate.net.asgi import disconnected
from headgate.storage import MOST_FOUND, SampleFilter, SampleIndex, SampleStore, TextSearch, sample_store

_log = logging.getLogger("headgate.console")

EVERY_S: Final = 3.0
"""Seconds between two checks for new samples in the store, while somebody asks."""

FIRST_S: Final = 0.25
STEP_S: Final = 2.0
"""Seconds for which parts are read before their samples are shown: at first, and later."""

PATIENCE_S: Final = 0.6
"""Seconds that a page waits for new samples, and for a slow answer; then it shows what there is."""

REST: Final = 10
"""An answer that took one second to make is kept for this many seconds, whatever was stored since."""

AT_ONCE: Final = 2
MOST_ANSWERS: Final = 400
"""Total weight of the answers kept; a page of samples weighs 1."""

HEAVY: Final = 25
"""Weight of a leaderboard of a thousand models, with tens of megabytes."""

MOST_SEARCHES: Final = 16

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """An answer made from the store.

    Attributes:
        value: the answer itself.
        at: wall time at which its samples were read.
        took_s: how long it took to make.
        revision: revision of the index that it was made from.
        weight: its share of `MOST_ANSWERS`.
        pending: parts of the store that were still to be read, the older ones.
    """

    value: T
    at: float
    took_s: float
    revision: int
    weight: int
    pending: int


class Records:
    """Reads a sample store for all viewers. Owned by the server of the console; lives on one event loop.

    Invariant: at most `AT_ONCE` threads make answers.

    Args:
        settings: settings with the store, which is opened on first use.
    """

    def __init__(self, settings: Settings) -> None:
        self.problem = ""
        self._settings = settings
        self._opened: SampleStore | None = None
        self._index = SampleIndex()
        self._read_at = 0.0
        self._next_at = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._stepped = asyncio.Event()
        self._threads = anyio.CapacityLimiter(AT_ONCE)
        self._tasks: OrderedDict[Hashable, asyncio.Task[Answer[Any]]] = OrderedDict()
        self._working: set[asyncio.Task[None]] = set()
        self._waiting: Counter[asyncio.Task[Answer[Any]]] = Counter()
        self._latest: OrderedDict[Hashable, Answer[Any]] = OrderedDict()
        self._searches: OrderedDict[str, tuple[TextSearch, asyncio.Lock]] = OrderedDict()

    @property
    def store(self) -> SampleStore:
        """The store.

        Raises:
            InvalidInputError: it is a folder that does not exist.
        """
        if self._opened is None:
            place = self._settings.store
            if "://" not in place and not Path(place).expanduser().is_dir():
                raise InvalidInputError(
                    f"there is no sample store at {place!r}", next_step="It is created with the first samples of a run."
                )
            self._opened = sample_store(self._settings)
        return self._opened

    async def index(self, *, now: bool = False) -> SampleIndex:
        """Return the samples read so far, after a check for new ones unless there was a recent one."""
        if now and self._reading is not None:  # it may have started before the change
            await asyncio.wait({self._reading}, timeout=STEP_S)
        if self._reading is None and (now or time.monotonic() >= self._next_at):
            self._stepped = asyncio.Event()
            self._reading = asyncio.create_task(self._read(), name="read the sample store")
        if self._reading is not None:
            # All of it if something was changed from here; else the first step.
            awaited = self._reading if now else asyncio.ensure_future(self._stepped.wait())
            await asyncio.wait({awaited}, timeout=None if now else PATIENCE_S)
            if awaited is not self._reading:
                awaited.cancel()
        return self._index

    async def answer(
        self, key: Hashable, make: Callable[[SampleIndex], T], *, patience_s: float | None = None, weight: int = 1
    ) -> Answer[T] | None:
        """Return what `make` returns for the index, made once for all who ask while the store stays as it is.

        Args:
            key: the question; equal keys are equal questions.
            make: called in a thread.
            patience_s: after this, return the last answer to the question, None if there is none yet, while the new one
                is being made. Without it, wait for the answer, which is cancelled once nobody waits for it.
            weight: share of `MOST_ANSWERS`, which bounds how long it is kept.
        """
        index = await self.index()
        last = self._latest.get(key)
        if last is not None and (
            last.revision == index.revision or (patience_s is not None and time.time() < last.at + REST * last.took_s)
        ):
            self._latest.move_to_end(key)
            return last
        asked = (index.revision, key)
        task = self._tasks.get(asked)
        if task is None:
            task = self._tasks[asked] = asyncio.create_task(self._made(key, make, index, weight))
            task.add_done_callback(lambda done: self._forget(asked, done))
        if patience_s is not None:
            await asyncio.wait({task}, timeout=patience_s)
            return task.result() if task.done() else last
        self._waiting[task] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiting[task] -= 1
            if not self._waiting[task]:
                del self._waiting[task]
                self._forget(asked, task)
                task.cancel()  # changes nothing once it is done

    async def now(self, key: Hashable, make: Callable[[SampleIndex], T], *, weight: int = 1) -> T:
        """Return what `make` returns, however long it takes; see `answer`."""
        answer = await self.answer(key, make, weight=weight)
        assert answer is not None, "it was waited for"
        return answer.value

    async def search(self, chosen: SampleFilter) -> tuple[list[str] | None, int]:
        """Return the tasks in which the text of a filter was found so far, and how many parts are left to read.

        Each call reads on for half a second. None if the filter has no text.
        """
        if not chosen.text:
            return None, 0
        search, lock = self._searches.setdefault(chosen.text, (TextSearch(chosen.text), asyncio.Lock()))
        self._searches.move_to_end(chosen.text)
        while len(self._searches) > MOST_SEARCHES:
            self._searches.popitem(last=False)
        parts = await self.now(("parts", chosen), lambda index: index.parts_of(chosen))
        async with lock:
            left = await self.store.search(search, parts)
        return search.found(), left

    async def search_all(self, chosen: SampleFilter) -> list[str] | None:
        """Return all tasks that contain the text of a filter; None if it has no text.

        Raises:
            InvalidInputError: if they are too many.
        """
        while True:
            tasks, left = await self.search(chosen)
            if not left:
                return tasks
            if tasks is not None and len(tasks) >= MOST_FOUND:
                raise InvalidInputError(
                    f"the text is in {MOST_FOUND:,} samples or more",
                    next_step="Narrow the list by a model, an environment or a time first.",
                )

    async def rows(self, chosen: SampleFilter) -> pl.DataFrame:
        """Return task, model, environment, end and marks of all samples that a filter chooses.

        Raises:
            InvalidInputError: see `search_all`.
        """
        tasks = await self.search_all(chosen)

        def make(index: SampleIndex) -> pl.DataFrame:
            names = pl.col("model", "environment").cast(pl.String)
            return index.chosen(chosen, tasks).select("task_id", names, "finished_at", "invalid", "resample")

        return await self.now(("rows", chosen, None if tasks is None else len(tasks)), make, weight=8 * HEAVY)

    def keep_going(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work on the store that outlives its request; it is cancelled with the records."""
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def aclose(self) -> None:
        """Cancel all work and close the store."""
        await cancelled(*self._tasks.values(), *self._working, *([self._reading] if self._reading else []))
        if self._opened is not None:
            self._opened.close()

    def _forget(self, asked: Hashable, task: asyncio.Task[Answer[Any]]) -> None:
        if self._tasks.get(asked) is task:
            del self._tasks[asked]

    async def _made(
        self, key: Hashable, make: Callable[[SampleIndex], T], index: SampleIndex, weight: int
    ) -> Answer[T]:
        begun, at = time.monotonic(), self._read_at
        value = await anyio.to_thread.run_sync(make, index, limiter=self._threads)
        answer = Answer(value, at, time.monotonic() - begun, index.revision, weight, index.pending)
        self._latest[key] = answer
        self._latest.move_to_end(key)
        while sum(one.weight for one in self._latest.values()) > MOST_ANSWERS:
            self._latest.popitem(last=False)
        return answer

    async def _read(self) -> None:
        within_s = FIRST_S if self._index.revision == 0 else STEP_S
        try:
            while True:
                self._index, self._read_at = await self.store.indexed(self._index, within_s), time.time()
                self._stepped.set()
                if not self._index.pending:
                    break
                within_s = STEP_S
            self.problem = ""
        except HeadgateError as error:
            self.problem = str(error)
        except Exception:  # noqa: BLE001 - whatever fails, it is reported here, and tried again with the next look
            _log.exception("The sample store cannot be read; it is tried again")
            self.problem = "the sample store cannot be read; the console's log says why."
        finally:
            self._stepped.set()
            self._reading, self._next_at = None, time.monotonic() + EVERY_S


async def while_connected(request: Request, awaited: Awaitable[T]) -> T:
    """Return what is awaited; it is cancelled as soon as the client has disconnected."""
    async with first_ended(awaited, disconnected(request)) as (task, _):
        if not task.done():
            raise HTTPException(499, "the client has disconnected")
        result: T = task.result()
        return result
