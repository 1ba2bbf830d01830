"""What a run shares with the other processes of its journal: limits, pauses, and which notices were told."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from headgate.admission import Domain, ProviderModel, RequestKey
from headgate.run.health import Health
from headgate.run.parts import Parts
from headgate.run.request_side import RequestSide
from headgate.storage import JOURNAL_AWAY, JournalThread, LimitKey, LimitReport

SHARE_EVERY_S: Final = 5.0
"""How often a run looks for what others have learnt; a lesson is worth a few refused requests."""


class SharedLearning:
    """Keeps limits and pauses in step with those of the other processes. Owned by the campaign.

    A limit begins where the others have come to, and goes to its part of the whole whenever one of them comes or goes;
    in between its law moves it.
    """

    def __init__(self, parts: Parts, health: Health) -> None:
        self._parts = parts
        self._health = health
        self._told: dict[LimitKey, int] = {}
        self._sharers: dict[LimitKey, int] = {}

    async def keep(self) -> None:
        """Share what is learnt, until cancelled."""
        while True:
            await self._parts.clock.sleep(SHARE_EVERY_S)
            await self.share()

    async def share(self) -> None:
        """Tell what was learnt since the last time, and take over what others know; not while the journal is away."""
        with contextlib.suppress(*JOURNAL_AWAY):
            await self._share()

    async def _share(self) -> None:
        parts = self._parts
        if parts.requests is not None:
            await self._share_limits(parts.requests)
        for model, (level, until) in (await parts.journal.call(parts.journal.journal.pauses)).items():
            self._health.heard(model, level, until, parts.now())

    async def _share_limits(self, requests: RequestSide) -> None:
        """Report limits; take over ceilings, and a part of each limit per minute: one for each process that shares it.

        A provider's models share the limits of its key, so that the one that most processes ask says how many share.
        """
        parts, admission = self._parts, requests.admission
        reports = {}
        for status in requests.status():
            key = LimitKey(status.provider, status.model, status.domain)
            reports[key] = LimitReport(status.cap, self._told.get(key), status.ceiling, is_rated=bool(status.rates))
        sharers = dict.fromkeys((key.provider for key in reports), 1)
        found = await parts.journal.call(parts.journal.journal.share_limits, reports, parts.now())
        for key, share in found.items():
            sharers[key.provider] = max(sharers[key.provider], share.sharers)
            if share.ceiling is None:
                continue
            if self._sharers.get(key) != share.sharers:
                self._sharers[key] = share.sharers
                # Who found the ceiling alone stands there already.
                if share.ceiling != reports[key].ceiling:
                    admission.learnt(RequestKey(ProviderModel(*key[:2]), Domain(key.domain)), share.ceiling)
                self._told[key] = share.ceiling
            elif (ceiling := reports[key].ceiling) is not None:
                self._told[key] = ceiling
        for provider, count in sharers.items():
            admission.set_rate_share(provider, 1 / count)


class ToldNotices:
    """Implements `headgate.telemetry.Told`. Owned by the run; while its journal cannot be written, notices wait."""

    def __init__(self, journal: JournalThread) -> None:
        self._journal = journal

    async def claim(self, key: str, at: float, again_before: float) -> bool:
        """Return whether something is to be told now."""
        return await self._journal.write(self._journal.journal.claim_notice, key, at, again_before)

    async def release(self, key: str) -> bool:
        """Return whether something had been told that has ended now."""
        return await self._journal.write(self._journal.journal.release_notice, key)

    async def lasting(self) -> Sequence[str]:
        """Return the keys of what was told and has not ended."""
        return await self._journal.write(self._journal.journal.told_notices)
