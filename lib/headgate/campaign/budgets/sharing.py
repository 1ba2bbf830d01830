"""Budgets of 24 h in step with those of the other processes that share the journal.

What is spent is reported with the samples, and every few seconds. What may be spent is granted beforehand, a little
more than is needed, so that hardly a request waits for it; one for which the grant is too small asks at once, which
takes a millisecond.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.campaign.budgets.account import Account
from headgate.core import NO_SPENDING, Spending
from headgate.storage import JournalThread, SpendingAnswer, SpendingReport

SHARE_EVERY_S: Final = 5.0
"""How often processes speak of their spending."""

ALONE_EVERY_S: Final = 30.0
"""How often one does that has met no other. What a sample took is told with the sample, and not later."""

_SAMPLES_AHEAD: Final = 4
"""So many samples may begin before the next exchange although nothing was spent before this one."""

_TRIES: Final = 3
"""Others may take what was just granted; after so many times the request is put off like one that does not fit."""


@dataclass(frozen=True, slots=True)
class _Request:
    """An episode that waits for a larger grant."""

    account: Account
    task_id: str
    needed: Spending
    answered: asyncio.Future[None]


class SharedBudgets:
    """Reports what is spent, and asks for what may be. One per campaign; ends before its journal is closed."""

    def __init__(
        self,
        journal: JournalThread,
        *,
        now: Callable[[], float],
        counted: Callable[[], Sequence[Account]],
        heard: Callable[[Mapping[str, SpendingAnswer]], None],
    ) -> None:
        """Prepare it.

        Args:
            journal: of the campaign, where the processes meet.
            now: seconds since the epoch.
            counted: returns the accounts whose spending counts.
            heard: told the answer for each model.
        """
        self._journal = journal
        self._now = now
        self._counted = counted
        self._heard = heard
        self._requests: list[_Request] = []
        self._wake = asyncio.Event()
        self._told_at = 0.0
        self._every_s = SHARE_EVERY_S
        self._task: asyncio.Task[None] | None = None

    async def before(self) -> dict[str, SpendingAnswer]:
        """Return what was spent of every model in the last 24 h; nothing is asked for yet."""
        return await self._journal.write(self._journal.journal.exchange_spending, {}, self._now())

    async def begin(self) -> None:
        """Have the first grants, and stay in step from now on."""
        await self._exchange()
        self._task = asyncio.create_task(self._keep_in_step())

    def wake(self) -> None:
        """Exchange soon: an account is counted that was not."""
        self._wake.set()

    async def grant(self, task_id: str, account: Account, needed: Spending) -> None:
        """Return once an episode may hold `needed` as far as the other processes go, or nothing more can be had."""
        for _ in range(_TRIES):
            held = account.daily.lacks_grant(task_id, needed)
            if held == NO_SPENDING or self._task is None:
                return
            request = _Request(account, task_id, needed, asyncio.get_running_loop().create_future())
            self._requests.append(request)
            self._wake.set()
            await asyncio.wait([request.answered, self._task], return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                self._task.result()
                return
            if account.daily.lacks(held.less(account.daily.held), self._now()) is not None:
                return

    async def end(self) -> None:
        """Report the last of it and give every grant back, if the journal can be written."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        reports = {account.alias: SpendingReport(account.daily.report()) for account in self._counted()}
        with contextlib.suppress(sqlite3.Error):
            await self._journal.call(self._journal.journal.exchange_spending, reports, self._now())

    async def _keep_in_step(self) -> None:
        while True:
            # Without accounts there is nothing to say until one is counted.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s if self._counted() else None):
                    await self._wake.wait()
            self._wake.clear()
            await self._exchange()

    async def _exchange(self) -> None:
        requests, self._requests = self._requests, []
        now = self._now()
        is_whole = not requests or now - self._told_at >= self._every_s
        accounts = self._counted() if is_whole else list(dict.fromkeys(request.account for request in requests))
        reports = {account.alias: self._report(account, requests, now) for account in accounts}
        answers = await self._journal.write(self._journal.journal.exchange_spending, reports, now)
        if is_whole:
            self._told_at = now
            has_met = any(answer.sharers for answer in answers.values())
            self._every_s = SHARE_EVERY_S if has_met else ALONE_EVERY_S
        self._heard(answers)
        for request in requests:
            if not request.answered.done():
                request.answered.set_result(None)

    def _report(self, account: Account, requests: Iterable[_Request], now: float) -> SpendingReport:
        daily = account.daily
        spent = daily.report()
        if not daily.limits.any:
            return SpendingReport(spent)
        wanted = daily.held
        for request in requests:
            if request.account is account and not request.answered.cancelled():
                lacked = daily.lacks_grant(request.task_id, request.needed)
                wanted = wanted.plus(lacked.less(daily.held))
        bound, expected = daily.limits.bound, account.expected
        ahead = NO_SPENDING
        if account.is_asked and account.stop is None:
            ahead = Spending(*(2 * part + _SAMPLES_AHEAD * more for part, more in zip(spent, expected, strict=True)))
        report = SpendingReport(spent, daily.allowed, bound(wanted), bound(ahead), daily.room(now))
        daily.granted(report.kept)
        return report
