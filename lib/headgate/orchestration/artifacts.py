"""Artifacts of a flow run: progress and scores while it samples, and a report. Their failure harms no sample."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, Final
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

from headgate.core.status import CampaignStatus
from headgate.orchestration.artifact_keys import artifact_key
from headgate.orchestration.run_state import API_ERRORS, heed_state, run_logger
from headgate.orchestration.score_rows import progress_sentence, score_rows
from headgate.orchestration.stopping import StopRequest

PUBLISH_EVERY_S: Final = 5.0
"""How often progress is written at most; each write is a few milliseconds of the server's time."""

_CALL_TIMEOUT_S: Final = 10.0
_OUTAGE_TIMEOUT_S: Final = 1.0
"""While the API is away each call only looks whether it is back."""

_SCORES_EVERY: Final = 6
"""Every how many publications the table is written, too: it is longer, and read less often."""

Share = Callable[[CampaignStatus], float]
"""How much of a run is done, from 0 to 1."""


class Outage:
    """Whether the API takes artifacts. Told once when it stops, and once when it is back."""

    def __init__(self) -> None:
        self._is_told = False

    async def guarded(self, call: Coroutine[Any, Any, Any]) -> Any | None:
        """Return what `call` gives, None when the API does not take it in time."""
        try:
            async with asyncio.timeout(_OUTAGE_TIMEOUT_S if self._is_told else _CALL_TIMEOUT_S):
                result = await call
        except API_ERRORS as error:
            if not self._is_told:
                said = str(error) or type(error).__name__
                run_logger().warning("The Prefect API takes no artifacts (%.200s); the run goes on without them", said)
            self._is_told = True
            return None
        if self._is_told:
            run_logger().info("The Prefect API takes artifacts again")
        self._is_told = False
        return result


class CampaignArtifacts:
    """The progress and the scores of one flow run that samples. Owned by it; `run` lives as long as the campaign.

    `note` only remembers the newest status, so a slow or absent API never holds the campaign up.
    """

    def __init__(
        self, subject: str, stop: StopRequest, share: Share | None, *, every_s: float = PUBLISH_EVERY_S
    ) -> None:
        """Prepare the artifacts.

        Args:
            subject: what is sampled; part of the keys.
            stop: asked when the API says that the run shall end.
            share: how much is done; None for a run without an end, which has no progress.
            every_s: see `PUBLISH_EVERY_S`.
        """
        self._progress_key = artifact_key("progress", subject)
        self._scores_key = artifact_key("scores", subject)
        self._stop = stop
        self._share = share
        self._every_s = every_s
        self._outage = Outage()
        self._newest: CampaignStatus | None = None
        self._noted = asyncio.Event()
        self._progress: UUID | None = None
        self._scores: UUID | None = None

    async def note(self, status: CampaignStatus) -> None:
        """Remember the newest status."""
        self._newest = status
        self._noted.set()

    async def run(self) -> None:
        """Publish what was noted, at most every `every_s`, until cancelled."""
        turn = 0
        while True:
            await self._noted.wait()
            self._noted.clear()
            if self._newest is not None:
                await self._publish(self._newest, with_scores=turn % _SCORES_EVERY == 0)
                turn += 1
            await heed_state(self._stop)
            await asyncio.sleep(self._every_s)

    async def finish(self, status: CampaignStatus, sentence: str, *, is_whole: bool) -> None:
        """Publish the last status under a sentence on the whole run; `is_whole` when it did all it was to do."""
        await self._publish_scores(status, sentence)
        if self._share is not None:
            await self._publish_progress(100.0 if is_whole else self._percent(status), sentence)

    async def _publish(self, status: CampaignStatus, *, with_scores: bool) -> None:
        if self._share is not None:
            await self._publish_progress(self._percent(status), progress_sentence(status))
        if with_scores:
            await self._publish_scores(status, progress_sentence(status))

    def _percent(self, status: CampaignStatus) -> float:
        share = self._share(status) if self._share is not None else 0.0
        return round(100.0 * min(1.0, max(0.0, share)), 1)

    async def _publish_progress(self, percent: float, sentence: str) -> None:
        if self._progress is None:
            created = acreate_progress_artifact(percent, key=self._progress_key, description=sentence)
            self._progress = await self._outage.guarded(created)
        else:
            await self._outage.guarded(aupdate_progress_artifact(self._progress, percent, description=sentence))

    async def _publish_scores(self, status: CampaignStatus, sentence: str) -> None:
        rows = score_rows(status)
        if self._scores is None:
            created = acreate_table_artifact(rows, key=self._scores_key, description=sentence)
            self._scores = await self._outage.guarded(created)
        else:
            await self._outage.guarded(update_table(self._scores, rows, sentence))


async def update_table(artifact: UUID, rows: list[dict[str, str]], description: str) -> None:
    """Replace the rows and the description of a table that was published."""
    async with get_client() as client:
        await client.update_artifact(artifact, ArtifactUpdate(data=json.dumps(rows), description=description))


async def publish_table(key: str, rows: list[dict[str, Any]], description: str) -> None:
    """Publish a table."""
    await Outage().guarded(acreate_table_artifact(rows, key=key, description=description))


async def publish_markdown(key: str, markdown: str, description: str) -> None:
    """Publish Markdown."""
    await Outage().guarded(acreate_markdown_artifact(markdown, key=key, description=description))


async def publish_link(key: str, link: str, text: str, description: str) -> None:
    """Publish a link."""
    await Outage().guarded(acreate_link_artifact(link, link_text=text, key=key, description=description))
