"""Artifacts of a flow run: progress and scores while it samples, then a report. Their failures affect no sample."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from prefect.artifacts import (
    acreate_link_artifact,
    acreate_markdown_artifact,
    acreate_progress_artifact,
    acreate_table_artifact,
    aupdate_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from headgate.core import until_set
from headgate.core.tasks import beside
from headgate.orchestration.run_state import (
    API_ERRORS,
    artifact_key,
    heed_state,
    library_logs_in_run,
    run_logger,
    sole_error,
)
from headgate.orchestration.stop_request import StopRequest, stop_on_signals
from headgate.telemetry import duration

PUBLISH_EVERY_S: Final = 5.0
"""The shortest interval between updates of the progress; each takes a few milliseconds of the server's time."""

_CALL_TIMEOUT_S: Final = 10.0
_OUTAGE_TIMEOUT_S: Final = 1.0
"""Timeout of each call while the API is down: it only checks whether the API is back."""

_PACE_OVER_S: Final = 300.0
"""The window over which the rate is measured: in a shorter one it jumps with every batch."""

_TABLE_EVERY: Final = 6
"""Progress updates per update of the table, which is longer and read less often."""

Rows = Sequence[Mapping[str, str]]
"""A table, one mapping per row by column; numbers are formatted, since the UI formats none."""


class Outage:
    """Whether the API accepts artifacts. Logged once when it stops accepting them, and once when it resumes."""

    def __init__(self) -> None:
        self._is_told = False

    async def guarded(self, call: Coroutine[Any, Any, Any]) -> Any | None:
        """Return the result of `call`, or None if the API does not accept it in time."""
        try:
            async with asyncio.timeout(_OUTAGE_TIMEOUT_S if self._is_told else _CALL_TIMEOUT_S):
                result = await call
        except API_ERRORS as error:
            if not self._is_told:
                said = str(error) or type(error).__name__
                run_logger().warning("The Prefect API accepts no artifacts (%.200s); the run continues", said)
            self._is_told = True
            return None
        if self._is_told:
            run_logger().info("The Prefect API accepts artifacts again")
        self._is_told = False
        return result


class _OneArtifact:
    """An artifact that the first call creates and later calls update."""

    def __init__(self, key: str, outage: Outage) -> None:
        self._key = key
        self._outage = outage
        self._artifact: UUID | None = None

    async def _make(self, call: Coroutine[Any, Any, Any]) -> None:
        """Create it; if cancelled meanwhile, wait for its id first: otherwise it would be created twice."""
        making = asyncio.ensure_future(self._outage.guarded(call))
        try:
            self._artifact = await asyncio.shield(making)
        except asyncio.CancelledError:
            self._artifact = await making
            raise


class ProgressArtifact(_OneArtifact):
    """How much of a run is done."""

    async def show(self, share: float, sentence: str) -> None:
        """Publish a share, from 0 to 1, under a sentence."""
        percent = round(100.0 * min(1.0, max(0.0, share)), 1)
        if self._artifact is None:
            await self._make(acreate_progress_artifact(percent, key=self._key, description=sentence))
        else:
            await self._outage.guarded(aupdate_progress_artifact(self._artifact, percent, description=sentence))


class TableArtifact(_OneArtifact):
    """A table, replaced as a whole at each update."""

    async def show(self, rows: Rows, sentence: str) -> None:
        """Publish rows under a sentence."""
        if self._artifact is None:
            await self._make(acreate_table_artifact([dict(row) for row in rows], key=self._key, description=sentence))
        else:
            await self._outage.guarded(_update_table(self._artifact, rows, sentence))


class Pace:
    """The pace of a run: how much was done in the last minutes, and how long the rest takes at that rate."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, float | None]] = deque()

    def note(self, at: float, done: int, share: float | None) -> None:
        """Record the number done, and the share of the whole, at monotonic time `at`."""
        self._seen.append((at, done, share))
        while self._seen[0][0] < at - _PACE_OVER_S:
            self._seen.popleft()

    def words(self) -> list[str]:
        """Return the rate and the remaining time, as far as they are known."""
        (began, first, was), (at, last, share) = self._seen[0], self._seen[-1]
        lasted = at - began
        if lasted <= 0:
            return []
        words = [f"{60 * (last - first) / lasted:,.1f} a minute"]
        if share is not None and was is not None and was < share < 1:
            words.append(f"about {duration((1 - share) * lasted / (share - was))} left")
        return words


T = TypeVar("T")


class RunArtifacts(Generic[T]):
    """The progress and a table of one flow run, both showing its newest status. Owned by the flow run.

    `note` only stores the newest status, so a slow or absent API never blocks the work.
    """

    def __init__(
        self,
        subject: str,
        *,
        sentence: Callable[[T], str],
        share: Callable[[T], float] | None = None,
        done: Callable[[T], int] | None = None,
        rows: Callable[[T], Rows] | None = None,
        table: str = "scores",
    ) -> None:
        """Prepare the artifacts.

        Args:
            subject: what the run is about; part of the keys.
            sentence: returns the progress in a sentence, given a status.
            share: returns the share that is done, from 0 to 1; None for a run without an end, which shows no progress.
            done: returns how many samples or jobs are done, for the rate; None to show no rate.
            rows: returns the table of a status; None for a run without one.
            table: what the table shows; part of its key.
        """
        self.subject = subject
        self.stop = StopRequest()
        """Requested by signals, and when the API says that the run should end."""
        self._sentence, self._share, self._done, self._rows = sentence, share, done, rows
        self._pace = Pace()
        outage = Outage()
        self._progress = ProgressArtifact(artifact_key("progress", subject), outage)
        self._table = TableArtifact(artifact_key(table, subject), outage)
        self._newest: T | None = None
        self._noted = asyncio.Event()

    async def note(self, newest: T) -> None:
        """Remember the newest status."""
        self._newest = newest
        self._noted.set()

    @contextmanager
    def heeded(self) -> Iterator[StopRequest]:
        """Stop the run on signals, and send the library's log to the run's log, while the context lasts."""
        with stop_on_signals(self.stop), library_logs_in_run():
            yield self.stop

    @asynccontextmanager
    async def published(self) -> AsyncIterator[None]:
        """Publish while the context lasts; an error wrapped in groups of one is raised unwrapped."""
        try:
            async with beside(self._follow()):
                yield
        except ExceptionGroup as group:
            raise sole_error(group) from group

    async def finish(self, last: T, sentence: str, *, is_whole: bool = False) -> None:
        """Publish the last status under a sentence on the whole run; `is_whole` if everything is done."""
        if self._rows is not None:
            await self._table.show(self._rows(last), sentence)
        if self._share is not None:
            await self._progress.show(1.0 if is_whole else self._share(last), sentence)

    async def _follow(self) -> None:
        """Publish the noted status, at most every `PUBLISH_EVERY_S`, and check the run's state, until cancelled."""
        turn = 0
        while True:
            await until_set(self._noted, PUBLISH_EVERY_S)  # with a timeout: a cancelled run must end even if idle
            if (newest := self._newest) is not None and self._noted.is_set():
                self._noted.clear()
                share, sentence = None if self._share is None else self._share(newest), self._sentence(newest)
                if self._done is not None:
                    self._pace.note(time.monotonic(), self._done(newest), share)
                    sentence = "; ".join([sentence, *self._pace.words()])
                if share is not None:
                    await self._progress.show(share, sentence)
                if self._rows is not None and turn % _TABLE_EVERY == 0:
                    await self._table.show(self._rows(newest), sentence)
                turn += 1
                await heed_state(self.stop)
                await asyncio.sleep(PUBLISH_EVERY_S)
            else:
                await heed_state(self.stop)


async def _update_table(artifact: UUID, rows: Rows, description: str) -> None:
    """Replace the rows and the description of a published table."""
    async with get_client() as client:
        await client.update_artifact(artifact, ArtifactUpdate(data=json.dumps(rows), description=description))


async def publish(key: str, content: Rows | str, description: str) -> None:
    """Publish a table, or Markdown."""
    if isinstance(content, str):
        call = acreate_markdown_artifact(content, key=key, description=description)
    else:
        call = acreate_table_artifact([dict(row) for row in content], key=key, description=description)
    await Outage().guarded(call)


async def publish_link(key: str, link: str, text: str, description: str) -> None:
    """Publish a link."""
    await Outage().guarded(acreate_link_artifact(link, link_text=text, key=key, description=description))


def markdown_table(rows: Rows, otherwise: str = "") -> str:
    """Return rows as a table in Markdown; `otherwise` where there are none."""
    if not rows:
        return otherwise
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row.values()] for row in rows]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
