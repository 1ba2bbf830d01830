"""What a run shares with the other processes of its journal: limits, pauses, and which notices were sent."""

from __future__ import annotations

import contextlib
from typing import Final

from headgate.admission import ProviderModel, RequestAdmission
from headgate.core.events import SharedLimitIgnored
from headgate.core.rates import RateLimits
from headgate.run.health import Health
from headgate.run.parts import Parts
from headgate.run.request_side import RequestSide
from headgate.storage import JOURNAL_AWAY, JournalThread, LimitKey, LimitReport

SHARE_EVERY_S: Final = 5.0
"""How often a run reads what other processes have learnt; each lesson saves a few refused requests."""


class SharedLearning:
    """Keeps limits and pauses in step with those of the other processes. Owned by the campaign.

    A limit starts at what the others have learnt, and is set to its share of the total whenever a process joins or
    leaves; in between, its law adjusts it.
    """

    def __init__(self, parts: Parts, health: Health) -> None:
        self._parts = parts
        self._health = health
        self._told: dict[LimitKey, tuple[int | None, int]] = {}
        """The value of each limit that was last reported or received, and how many processes shared it."""

    async def keep(self) -> None:
        """Share what was learnt every `SHARE_EVERY_S` seconds, until cancelled."""
        while True:
            await self._parts.clock.sleep(SHARE_EVERY_S)
            await self.share()

    async def share(self) -> None:
        """Report what was learnt since the last call and take over what others know; skip it if the journal is away."""
        parts = self._parts
        with contextlib.suppress(*JOURNAL_AWAY):
            if parts.requests is not None:
                await self._share_limits(parts.requests)
            for model, (level, until) in (await parts.journal.call(parts.journal.journal.pauses)).items():
                self._health.heard(model, level, until, parts.now())

    async def _share_limits(self, requests: RequestSide) -> None:
        """Report limits; take over what others have learnt, and this process's share of each limit per minute.

        A provider's models share its key's limits, so the model used by the most processes decides how many share.
        """
        parts, admission, reports = self._parts, requests.admission, dict[LimitKey, LimitReport]()
        for status in requests.status():
            learnt: dict[str, int | None] = {rate.unit: round(rate.learnt) for rate in status.rates if rate.learnt}
            # Refusals for a rate say nothing about requests in flight; a limit granted since other refusals is proven.
            learnt = learnt or {status.domain: status.ceiling and max(status.ceiling, status.limit)}
            # A model without a cap has left the roster: its remaining requests in flight teach nothing.
            for of in (status.domain, *RateLimits._fields) if status.cap else ():
                key = LimitKey(status.provider, status.model, of)
                told, _ = self._told.get(key, (None, 0))
                limit = learnt.get(of, 0 if told else None)
                reports[key] = LimitReport(status.cap, told, limit, is_rated=of == status.domain and bool(status.rates))
        sharers = dict.fromkeys((key.provider for key in reports), 1)
        found = await parts.journal.call(parts.journal.journal.share_limits, reports, parts.now())
        self._told = {key: told for key, told in self._told.items() if key in reports}
        for key, share in found.items():
            sharers[key.provider] = max(sharers[key.provider], share.sharers)
            if share.ignored is not None:
                parts.emit(SharedLimitIgnored(*key, str(share.ignored)))
            if share.limit is not None:
                self._take_over(admission, key, reports[key].limit, share.limit, share.sharers)
        for provider, count in sharers.items():
            admission.set_rate_share(provider, 1 / count)

    def _take_over(self, admission: RequestAdmission, key: LimitKey, own: int | None, part: int, sharers: int) -> None:
        """Take over this process's part of a limit that is new, newly divided, or abandoned; `part` is 0 for none."""
        told, shared_by = self._told.pop(key, (None, 0))
        is_rate = key.domain in RateLimits._fields
        is_divided = sharers != shared_by and not (is_rate and own and not shared_by)
        if (is_divided or own == 0) if part else told:
            # A process that learnt the limit alone is at that value already.
            if part != own:
                admission.learnt(ProviderModel(*key[:2]), key.domain, part)
            own = part
        told = told if own is None else own
        if told or not is_rate:
            self._told[key] = told or None, sharers


class ToldNotices:
    """Implements `headgate.telemetry.Told`. Owned by the run; notices of what begins do not wait for its journal."""

    def __init__(self, journal: JournalThread) -> None:
        self.lasting = lambda: journal.write(journal.journal.told_notices)
        self._call, self._of = journal.call, journal.journal
        self._ended: set[str] = set()

    async def claim(self, key: str, at: float, again_before: float) -> bool:
        """Return whether to tell of this now; while the journal is away, rather twice than not at all."""
        await self.flush()
        with contextlib.suppress(*JOURNAL_AWAY):
            return await self._call(self._of.claim_notice, key, at, again_before)
        return True

    async def release(self, key: str) -> bool:
        """Return whether to tell that this has ended; while the journal is away, only `flush` notes it."""
        with contextlib.suppress(*JOURNAL_AWAY):
            return await self._call(self._of.release_notice, key)
        self._ended.add(key)
        return False

    async def flush(self) -> None:
        """Note in the journal what ended while it was away."""
        with contextlib.suppress(*JOURNAL_AWAY):
            for key in list(self._ended):
                await self._call(self._of.release_notice, key)
                self._ended.discard(key)
