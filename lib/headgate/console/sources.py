"""The sources of the console and their last answers: polled once for all viewers, and not at all without viewers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from headgate.core.errors import ForbiddenError, HeadgateError, UnauthorizedError
from headgate.core.tasks import cancelled

MOST_POINTS: Final = 1_800
"""An hour at one point every two seconds."""

MOST_SERIES: Final = 240
"""Most series of one source: 4 MB at most with all their points. Further ones are not kept."""


class History:
    """Series of figures with one list of moments. Owned by a source.

    Invariant: every series has as many points as there are moments; None marks a missing figure.
    """

    def __init__(self) -> None:
        self.times: deque[float] = deque(maxlen=MOST_POINTS)
        self._series: dict[str, deque[float | None]] = {}

    def add(self, at: float, figures: Mapping[str, float | None]) -> None:
        """Keep the figures of one moment; a series that has only missing figures left is dropped."""
        for name in figures:
            if name not in self._series and len(self._series) < MOST_SERIES:
                self._series[name] = deque([None] * len(self.times), maxlen=MOST_POINTS)
        self.times.append(at)
        for name, series in list(self._series.items()):
            series.append(figures.get(name))
            if series[-1] is None and not any(value is not None for value in series):
                del self._series[name]

    def series(self, name: str, points: int = MOST_POINTS) -> list[float | None]:
        """Return the newest points of a series, oldest first; empty if it is not known."""
        return list(self._series.get(name, ()))[-points:]

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(self._series) <= MOST_SERIES
        assert all(len(series) == len(self.times) <= MOST_POINTS for series in self._series.values())


_log = logging.getLogger("headgate.console")

EVERY_S: Final = 2.0
"""Time between two polls of a source."""

SHARE: Final = 0.012
"""Share of a source's CPU that its polls may take: one with long answers is polled less often."""

CALL_S: Final = 0.005
ROW_S: Final = 8e-6
"""CPU seconds that an answer costs a source, and each row in it: measured with 64 000 pairs."""

RAREST_S: Final = 60.0

PATIENCE_S: Final = 1.5
"""Seconds that a page waits for sources that are due to be polled; then it shows what is known."""

Asked = tuple[dict[str, Any], Mapping[str, float | None], int]
"""A source's answer, the figures whose history is kept, and the number of rows that it had to write."""


@dataclass(eq=False)
class Source:
    """One watched source. Owned by `Sources`.

    Attributes:
        kind: `run`, `jobqueue`, `elastic`, `placement`, or `journal`, which finds runs.
        address: its address, as given to the console.
        ask: polls it; raises HeadgateError, httpx.HTTPError or OSError if nothing answers.
        said: its last answer; empty before the first one.
        seen_at: when that came (wall time); None before the first answer.
        down_since: when it first did not answer; None while it does.
        problem: why it does not answer.
        todo: what helps, where that is known.
        is_gone: whether it has ended: nothing listens at its address any more.
        left: how it left the journal in which it was found, empty if it died; None while it is there.
        ended_by: who drained it and why, or that it ended in order, once it is gone; empty if neither is known.
        is_late: whether a poll is unanswered and the last answer is old.
        history: history of its figures.
        asking: held while it is polled.
    """

    kind: str
    address: str
    ask: Callable[[], Awaitable[Asked]]
    said: dict[str, Any] = field(default_factory=dict)
    seen_at: float | None = None
    down_since: float | None = None
    problem: str = ""
    todo: str = ""
    is_gone: bool = False
    left: str | None = None
    ended_by: str = ""
    is_late: bool = False
    history: History = field(default_factory=History)
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _next_at: float = 0.0

    @property
    def is_up(self) -> bool:
        """Whether its last answer can be taken as current."""
        return self.seen_at is not None and self.down_since is None and not self.is_late

    @property
    def is_over(self) -> bool:
        """Whether it is gone and is known to have ended in order."""
        return self.is_gone and (bool(self.ended_by) or self.said.get("state") in {"draining", "stopped"})

    @property
    def name(self) -> str:
        """Its name for people: the campaign, the pool, or its address."""
        return str(self.said.get("campaign") or self.said.get("name") or self.address)

    @property
    def wait_s(self) -> float:
        """Seconds until a poll is due; 0 or less when it is; infinite for a run that is gone and not in its journal."""
        return math.inf if self.left is not None and self.is_gone else self._next_at - time.monotonic()

    async def poll(self, *, now: bool = False) -> bool:
        """Poll it if that is due or `now`; return whether it was polled."""
        async with self.asking:
            if self.wait_s > 0 and not now:
                return False
            rows = 0
            try:
                self.said, figures, rows = await self.ask()
            except Exception as error:  # noqa: BLE001 - whatever it answers, it is shown as down, and others are asked
                self._went_down(error)
            else:
                self.seen_at, self.down_since, self.problem, self.is_gone = time.time(), None, "", False
                self.history.add(self.seen_at, figures)
            self.is_late = False
            self._next_at = time.monotonic() + min(max(EVERY_S, (CALL_S + rows * ROW_S) / SHARE), RAREST_S)
            return True

    def _went_down(self, error: Exception) -> None:
        self.down_since = self.down_since or time.time()
        self.is_gone = self.seen_at is not None and (self.left is not None or isinstance(error, httpx.ConnectError))
        self.todo = error.next_step if isinstance(error, UnauthorizedError | ForbiddenError) else ""
        if isinstance(error, HeadgateError):
            self.problem = error.message
        elif isinstance(error, httpx.TimeoutException):
            self.problem = "it accepts requests but does not answer in time"
        elif isinstance(error, httpx.HTTPError | OSError):
            self.problem = str(error) or type(error).__name__
        else:
            _log.warning("The answer of %s cannot be read", self.address, exc_info=error)
            self.problem = f"the server there is of another version, or something else ({type(error).__name__})"


class Sources:
    """All watched sources. Owned by the server of the console; lives on one event loop.

    Attributes:
        all: the sources, in the order in which they were named or found.
        revision: grows with every answer; pages made from the same revision are the same.
        viewers: number of open pages now.
        is_closing: whether waits for changes are over for good.
    """

    def __init__(self, sources: Sequence[Source] = ()) -> None:
        self.all = tuple(sources)
        self.revision = 1
        self.is_closing = False
        self.viewers = 0
        self._asking: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()

    def of(self, kind: str) -> list[Source]:
        """Return the sources of one kind."""
        return [source for source in self.all if source.kind == kind]

    def get(self, kind: str, address: str) -> Source | None:
        """Return a source by its address; None if there is none."""
        return next((source for source in self.of(kind) if source.address == address), None)

    def run(self, address: str) -> Source | None:
        """Return the run at an address, else the first that answers, else the first."""
        runs = self.of("run")
        return self.get("run", address) or next((one for one in runs if one.is_up), runs[0] if runs else None)

    def add(self, source: Source) -> None:
        """Start watching a source."""
        self.all += (source,)

    async def remove(self, source: Source) -> None:
        """Stop watching a source; return once no poll of it is in progress."""
        self.all = tuple(one for one in self.all if one is not source)
        async with source.asking:
            return

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count a viewer for as long as the context is open."""
        self.viewers += 1
        try:
            yield
        finally:
            self.viewers -= 1

    async def fresh(self) -> None:
        """Poll the journals that are due, then all sources that are due, for at most `PATIENCE_S` each.

        One that has not answered by then becomes `is_late` if its last answer is old: nobody may have looked all day.
        """
        await self._fresh(self.of("journal"))
        await self._fresh(self.all)

    async def _fresh(self, sources: Sequence[Source]) -> None:
        due = self._begun(sources)
        if not due:
            return
        _, unanswered = await asyncio.wait(due, timeout=PATIENCE_S)
        for source in (due[task] for task in unanswered):
            is_late = time.time() - (source.seen_at or 0.0) > RAREST_S + PATIENCE_S
            if is_late and source.down_since is None and not source.is_late:
                source.is_late = True
                await self._tell()

    def _begun(self, sources: Iterable[Source]) -> dict[asyncio.Task[None], Source]:
        """Start to poll those that are due; return the tasks that do."""
        begun = {asyncio.create_task(self.ask(source)): source for source in sources if source.wait_s <= 0}
        self._asking |= begun.keys()
        for task in begun:
            task.add_done_callback(self._asking.discard)
        return begun

    async def ask(self, source: Source, *, now: bool = False) -> None:
        """Poll a source if it is due, or `now` as something was changed there, and announce its answer."""
        if await source.poll(now=now):
            await self._tell()

    async def changed(self, revision: int, within_s: float) -> int:
        """Return the revision once it differs from `revision`, or when the time is over.

        Meanwhile the sources are polled whenever they are due; without callers that wait here they are not.
        """
        ends_at = time.monotonic() + within_s
        while not self.is_closing and self.revision == revision and time.monotonic() < ends_at:
            idle = [source for source in self.all if not source.asking.locked()]
            self._begun(idle)
            # Those that are being polled, or are found meanwhile, are due again soon.
            due_s = min(EVERY_S, ends_at - time.monotonic(), *(source.wait_s for source in idle))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.05, due_s)), self._changed:
                    await self._changed.wait_for(lambda: self.is_closing or self.revision != revision)
        return self.revision

    async def close(self) -> None:
        """Wake all that wait for changes, for good, and stop polling; legal twice."""
        async with self._changed:
            self.is_closing = True
            self._changed.notify_all()
        await cancelled(*self._asking)

    async def _tell(self) -> None:
        async with self._changed:
            self.revision += 1
            self._changed.notify_all()
