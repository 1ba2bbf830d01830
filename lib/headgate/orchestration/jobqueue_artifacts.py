"""Artifacts of a flow run that drains a job queue: its progress, and a table of teams and tasks."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import UUID

from prefect.artifacts import acreate_progress_artifact, acreate_table_artifact, aupdate_progress_artifact

from headgate.campaign import DrainResult, QueueProgress
from headgate.orchestration.artifact_keys import artifact_key
from headgate.orchestration.artifacts import PUBLISH_EVERY_S, Outage, update_table
from headgate.orchestration.jobqueue_rows import drain_sentence, progress_rows, progress_sentence
from headgate.orchestration.run_state import heed_state
from headgate.orchestration.stopping import StopRequest

_TABLE_EVERY: Final = 6
"""Every how many publications the table is written, too: it is longer, and read less often."""


class QueueArtifacts:
    """The artifacts of one flow run. Owned by it; `run` lives as long as the drain.

    `note` only remembers the newest progress, so a slow or absent API never holds the drain up.
    """

    def __init__(self, subject: str, stop: StopRequest, *, every_s: float = PUBLISH_EVERY_S) -> None:
        """Prepare the artifacts.

        Args:
            subject: part of the keys.
            stop: asked when the API says that the run shall end.
            every_s: see `PUBLISH_EVERY_S`.
        """
        self._progress_key = artifact_key("progress", subject)
        self._table_key = artifact_key("jobs", subject)
        self._stop = stop
        self._every_s = every_s
        self._outage = Outage()
        self._newest: QueueProgress | None = None
        self._noted = asyncio.Event()
        self._progress: UUID | None = None
        self._table: UUID | None = None

    async def note(self, progress: QueueProgress) -> None:
        """Remember the newest progress."""
        self._newest = progress
        self._noted.set()

    async def run(self) -> None:
        """Publish what was noted, at most every `every_s`, until cancelled; heed the run's state."""
        turn = 0
        while True:
            if self._noted.is_set() and self._newest is not None:
                self._noted.clear()
                sentence = progress_sentence(self._newest)
                await self._publish_progress(self._newest.share, sentence)
                if turn % _TABLE_EVERY == 0:
                    await self._publish_table(self._newest, sentence)
                turn += 1
            # While the queue does not answer nothing is noted, and a cancelled run must end all the same.
            await heed_state(self._stop)
            await asyncio.sleep(self._every_s)

    async def finish(self, result: DrainResult) -> None:
        """Publish how it ended."""
        sentence = drain_sentence(result)
        await self._publish_table(result.progress, sentence)
        await self._publish_progress(result.progress.share, sentence)

    async def _publish_progress(self, share: float, sentence: str) -> None:
        percent = round(100.0 * min(1.0, max(0.0, share)), 1)
        if self._progress is None:
            created = acreate_progress_artifact(percent, key=self._progress_key, description=sentence)
            self._progress = await self._outage.guarded(created)
        else:
            await self._outage.guarded(aupdate_progress_artifact(self._progress, percent, description=sentence))

    async def _publish_table(self, progress: QueueProgress, sentence: str) -> None:
        rows: list[dict[str, Any]] = list(progress_rows(progress))
        if self._table is None:
            created = acreate_table_artifact(rows, key=self._table_key, description=sentence)
            self._table = await self._outage.guarded(created)
        else:
            await self._outage.guarded(update_table(self._table, rows, sentence))
