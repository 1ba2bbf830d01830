"""What a run has learnt, and hears of the other processes of its journal: providers' limits, and pauses."""

from __future__ import annotations

import contextlib
from typing import Final

from headgate.admission import Domain, ProviderModel, RequestKey
from headgate.run.health import Health
from headgate.run.parts import Parts
from headgate.storage import JOURNAL_AWAY, LimitKey, LimitReport

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
        journal = parts.journal.journal
        if parts.requests is not None:
            admission, reports = parts.requests.admission, {}
            for status in parts.requests.status():
                key = LimitKey(status.provider, status.model, status.domain)
                reports[key] = LimitReport(status.cap, self._told.get(key), status.ceiling)
            for key, share in (await parts.journal.call(journal.share_limits, reports, parts.now())).items():
                if self._sharers.get(key) != share.sharers:
                    self._sharers[key] = share.sharers
                    # Who found the ceiling alone stands there already.
                    if share.ceiling != reports[key].ceiling:
                        admission.learnt(RequestKey(ProviderModel(*key[:2]), Domain(key.domain)), share.ceiling)
                    self._told[key] = share.ceiling
                elif (ceiling := reports[key].ceiling) is not None:
                    self._told[key] = ceiling
        for model, (level, until) in (await parts.journal.call(journal.pauses)).items():
            self._health.heard(model, level, until, parts.now())
