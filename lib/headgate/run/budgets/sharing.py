"""Keeps 24 h budgets in step with the other processes that share the journal.

Spending is reported with the samples, and every few seconds. Future spending is granted in advance, a little more than
needed, so that hardly any request waits for a grant; a request beyond the grant asks for more at once, which takes a
millisecond.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.core import NO_SPENDING, Spending, until_set
from headgate.run.budgets.account import Account
from headgate.storage import JOURNAL_REFUSED, JournalThread, SpendingAnswer, SpendingNeed, SpendingReport

SHARE_EVERY_S: Final = 5.0
"""Interval at which processes report their spending."""

ALONE_EVERY_S: Final = 15.0
"""The same for a process that has met no other. A sample's spending is reported with the sample, not later."""

_SAMPLES_AHEAD: Final = 4
"""Samples that may begin before the next exchange, beyond the spending since the last one."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that exceeds the grant."""

    account: Account
    task_id: str
    needed: Spending
    answered: asyncio.Future[None]


class SharedBudgets:
    """Reports spending and asks for grants. One per campaign; ends before its journal is closed."""

    def __init__(
        self,
        journal: JournalThread,
        *,
        now: Callable[[], float],
        counted: Callable[[], Sequence[Account]],
        heard: Callable[[Mapping[str, SpendingAnswer]], None],
    ) -> None:
        """Prepare it; `counted` returns the accounts that count, `heard` is called with each model's answer."""
        self._journal = journal
        self._now = now
        self._counted = counted
        self._heard = heard
        self._requests: list[_Request] = []
        self._wake = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._told_at = 0.0
        self._every_s = SHARE_EVERY_S
        self._soon: dict[str, Account] = {}
        self._asked: dict[str, Account] = {}
        self._spent_before: dict[str, Spending] = {}
        self._is_running = False

    async def before(self) -> dict[str, SpendingAnswer]:
        """Return the spending of every model in the last 24 h; ask for no grant yet."""
        return await self._journal.write(self._journal.journal.exchange_spending, {}, self._now())

    async def run(self) -> None:
        """Stay in step with the other processes, until cancelled."""
        self._is_running = True
        try:
            while True:
                # Without accounts there is nothing to report until one is counted.
                await until_set(self._wake, self._every_s if self._counted() else None)
                self._wake.clear()
                await self.exchange()
        finally:
            self._is_running = False
            for request in self._requests:
                request.answered.cancel()

    def wake(self, account: Account) -> None:
        """Report an account soon: its limits have changed, or it holds more than it was granted."""
        self._soon[account.alias] = account
        self._wake.set()

    async def ask(self, task_id: str, account: Account, needed: Spending) -> None:
        """Ask for a larger grant; on return, the request is marked as in flight if there was room for it."""
        request = _Request(account, task_id, needed, asyncio.get_running_loop().create_future())
        self._requests.append(request)
        self._wake.set()
        if not self._is_running:
            await self.exchange()
        try:
            await request.answered
        except asyncio.CancelledError:
            request.answered.cancel()
            raise

    async def end(self) -> None:
        """Report the last spending and give every grant back, if the journal can be written."""
        reports = {account.alias: SpendingReport(account.daily.report()) for account in self._known()}
        with contextlib.suppress(*JOURNAL_REFUSED):
            await self._journal.call(self._journal.journal.exchange_spending, reports, self._now())

    def _known(self) -> list[Account]:
        """Return the accounts that count, and those that did when grants were last requested."""
        return list({account.alias: account for account in (*self._asked.values(), *self._counted())}.values())

    async def exchange(self) -> None:
        """Report spending, and receive the grants that are due."""
        async with self._one_at_a_time:
            await self._exchange_now()

    async def _exchange_now(self) -> None:
        requests = [request for request in self._requests if not request.answered.done()]
        soon = self._soon | {request.account.alias: request.account for request in requests}
        self._requests, self._soon = [], {}
        now = self._now()
        is_whole = not soon or now - self._told_at >= self._every_s
        accounts = self._known() if is_whole else list(soon.values())
        reports = {account.alias: self._report(account, now) for account in accounts}
        try:
            answers = await self._journal.write(self._journal.journal.exchange_spending, reports, now)
        except BaseException:
            for account in accounts:
                account.daily.put_back(reports[account.alias].spent)
            self._requests = [*requests, *self._requests]
            raise
        for account in accounts:
            self._asked[account.alias] = account
        if is_whole:
            self._told_at = now
            self._spent_before = {account.alias: account.daily.spent for account in accounts}
            self._asked = {account.alias: account for account in accounts if account.daily.limits.any}
            has_met = any(answer.others.count for answer in answers.values())
            self._every_s = SHARE_EVERY_S if has_met else ALONE_EVERY_S
        self._heard(answers)
        for request in requests:
            if not request.answered.done():
                # In the order of their requests: one that comes meanwhile has to ask again.
                request.account.daily.covers(request.task_id, request.needed)
                request.answered.set_result(None)

    def _report(self, account: Account, now: float) -> SpendingReport:
        daily = account.daily
        spent = daily.report()
        if not daily.limits.any or not (account.is_asked or any(daily.held)):
            daily.asked(NO_SPENDING)
            return SpendingReport(spent)
        need = SpendingNeed(
            wanted=daily.limits.bound(daily.held),
            ahead=daily.limits.bound(self._ahead(account)),
            allowed=daily.allowed,
            room=daily.room(now),
        )
        daily.asked(need.kept)
        return SpendingReport(spent, need)

    def _ahead(self, account: Account) -> Spending:
        """Return what an account in use probably needs until the next exchange, beyond what it holds."""
        daily = account.daily
        pace = daily.spent.less(self._spent_before.get(account.alias, NO_SPENDING))
        if not account.is_asked or account.stop is not None or (pace == NO_SPENDING and daily.held == NO_SPENDING):
            return NO_SPENDING
        return Spending(*(2 * part + _SAMPLES_AHEAD * more for part, more in zip(pace, account.expected, strict=True)))
