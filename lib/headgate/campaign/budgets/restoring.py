"""How budgets of 24 h survive a restart: from what the journal was told, and the samples of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headgate.campaign.budgets.keeper import Budgets
from headgate.campaign.budgets.past import by_minute
from headgate.core import CLOCK_TOLERANCE_S, DAY_S
from headgate.storage import JournalThread


class SpentStore(Protocol):
    """What is asked of a store."""

    async def spent(self, since: float) -> Sequence[tuple[str, str, float, int, int, int]]:
        """Return task, model, end, prompt and completion tokens and attempts of each sample that ended since then."""
        ...


async def restored_budgets(budgets: Budgets, journal: JournalThread, store: SpentStore, now: float) -> None:
    """Have budgets of 24 h know what was spent before this process, and what others spend beside it from now on.

    Without such budgets nothing of the store is read.

    Raises:
        StoreError: if the store cannot be read: without it nobody knows what is left of a day.
    """
    if budgets.is_daily:
        # What a clock ahead of this one has dated would count as spent now, at every start until that time has come.
        since, until = now - DAY_S, now + CLOCK_TOLERANCE_S
        stored = [row for row in await store.spent(since) if row[2] <= until]
        spooled = await journal.call(journal.journal.spooled)
        waiting = [
            (s.task_id, s.model, s.finished_at, s.prompt_tokens, s.completion_tokens, s.attempts)
            for s in spooled
            if since <= s.finished_at <= until
        ]
        budgets.remember(by_minute([*stored, *waiting]))
    await budgets.share(journal)
