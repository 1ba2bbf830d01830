"""What a run's journal remembers of the notices that were told: each once, whichever process and run tells it."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.storage import JournalThread


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
