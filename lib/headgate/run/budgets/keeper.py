"""The budgets of all models of a campaign: what each may spend, which models have to wait, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.config import Settings, value_for
from headgate.core import (
    CLOCK_TOLERANCE_S,
    DAY_S,
    NO_SPENDING,
    ChatReply,
    Clock,
    Model,
    Prices,
    Sample,
    Spending,
    utc_text,
)
from headgate.core.events import DailyBudgetFreed, DailyBudgetSpent, Emit, PriceMissing, UsageMissing
from headgate.core.status import BudgetStatus
from headgate.run.budgets.account import Account, BudgetStop
from headgate.run.budgets.past import PastSpending, beyond, by_minute
from headgate.run.budgets.plan import refuse_unpriced, with_settings
from headgate.run.budgets.sharing import SharedBudgets
from headgate.sampling.budgets import BUCKET_S, Exhausted, SampleLimits, reply_chars
from headgate.storage import JournalThread, SpendingAnswer

if TYPE_CHECKING:
    from headgate.run.plan import RunStore

_UNITS: Final = {"daily_tokens": "tokens", "daily_requests": "requests", "daily_cost": "of cost"}


def used_up(account: Account, exhausted: Exhausted) -> str:
    """Return how much a model has used or promised of which limit, and when it resumes, where that is known."""
    until = "" if exhausted.until is None else f", resumes at {utc_text(exhausted.until)}"
    if until and any(account.daily.promised):
        until += " at the latest, sooner if episodes in progress use less than they hold"
    used = f"{_shown(exhausted.used)} of {_shown(exhausted.allowed)} {_UNITS[exhausted.limit]}"
    return f"{account.alias} has used or promised {used} in 24 h{until}"


def too_large(alias: str, exhausted: Exhausted) -> str:
    """Return a message that a request needs more than any day allows, and what to do."""
    return (
        f"a request of {alias} needs about {_shown(exhausted.needed)} {_UNITS[exhausted.limit]}, more than "
        f"{exhausted.limit}={_shown(exhausted.allowed)} allows in any 24 h; raise {exhausted.limit}"
    )


def _shown(amount: float) -> str:
    return f"{amount:,.0f}".replace(",", " ") if amount == int(amount) else f"{amount:.4g}"


RESUME_SHARE: Final = 0.02
"""Share of a day's budget that must be free before a model resumes: with less, it would stop again at once."""

_LEAST_WAIT_S: Final = 1.0

_BRIEF_S: Final = 900.0
"""A stop not known to last this long is not reported: near its limit, a model rests for minutes at a time, as the
spending of a day ago expires."""


class Budgets:
    """Keeps an account for each model of a campaign. Owned by its request side; runs on one event loop.

    From its start, an episode holds what a sample of its model usually takes; it holds more before a request that needs
    more, and returns the unused rest at its end. So episodes in flight stay within the budget, and few are cut off
    half-way.

    Attributes:
        changed: called with a model's key, and why it has to wait, or None when it may resume.
        prices: prices of models whose roster entry has none.
    """

    def __init__(self, settings: Settings, *, clock: Clock, emit: Emit, prices: Prices | None = None) -> None:
        self.prices = prices or Prices()
        self.changed: Callable[[str, BudgetStop | None], None] = lambda _alias, _stop: None
        self._settings = settings
        self._emit = emit
        self._monotonic = clock.monotonic
        self._epoch_offset = clock.wall() - clock.monotonic()
        self._accounts: dict[str, Account] = {}
        self.own_only: set[str] = set()
        """Aliases to which the settings' budgets do not apply: a judge is not a sampled model."""
        self._past: dict[str, list[PastSpending]] = {}
        self._news: dict[str, dict[float, Spending]] = {}
        self._shared: SharedBudgets | None = None
        self._spenders: dict[str, Account] = {}
        self._spending: dict[str, tuple[Account, Spending]] = {}
        self._hopeless: set[str] = set()

    def now(self) -> float:
        """Return seconds since the epoch, which never go backwards."""
        return self._monotonic() + self._epoch_offset

    # Models.

    def remember(self, past: Iterable[PastSpending]) -> None:
        """Add the spending of samples of the last 24 h, also for models yet to come; call it before `share`."""
        for spent in past:
            self._past.setdefault(spent.model, []).append(spent)

    async def share(self, journal: JournalThread) -> None:
        """Load earlier spending, and share every budget with the other processes of the journal."""
        self._shared = SharedBudgets(
            journal,
            now=self.now,
            counted=lambda: [account for account in self._accounts.values() if account.is_counted],
            heard=self._heard,
        )
        for alias, answer in (await self._shared.before()).items():
            self._note(alias, answer)
        for account in self._accounts.values():
            self._take_over(account)
        await self._shared.exchange()

    async def keep_in_step(self) -> None:
        """Keep every budget in step with the other processes after `share`, until cancelled."""
        if self._shared is not None:
            await self._shared.run()

    async def leave(self) -> None:
        """Report the last spending to the other processes and give up all grants; call it before the journal closes."""
        if self._shared is not None:
            await self._shared.end()

    def unreported(self) -> dict[str, Spending]:
        """Return each model's spending not yet reported to the other processes; the caller reports it."""
        if self._shared is None:
            return {}
        accounts, self._spenders = self._spenders, {}
        spent = {alias: account.daily.report() for alias, account in accounts.items()}
        return {alias: amount for alias, amount in spent.items() if amount != NO_SPENDING}

    def put_back(self, spent: Mapping[str, Spending]) -> None:
        """Take back spending whose report failed, so that it is reported again."""
        for alias, amount in spent.items():
            account = self._accounts[alias]
            account.daily.put_back(amount)
            self._spenders[alias] = account

    def _heard(self, answers: Mapping[str, SpendingAnswer]) -> None:
        """Count what other processes spent, and apply the grants."""
        now = self.now()
        for alias, answer in answers.items():
            account = self._accounts.get(alias)
            if account is None:
                self._note(alias, answer)
                continue
            account.daily.restore([(min(at, now), spent) for at, spent in answer.news], now)
            if answer.granted is not None:
                account.daily.granted(answer.granted, answer.others.granted)
                self._look(account)

    def _note(self, alias: str, answer: SpendingAnswer) -> None:
        """Keep a day of others' spending on a model outside the roster, which counts if the model joins."""
        known = self._news.setdefault(alias, {})
        for at, spent in answer.news:
            known[at] = known.get(at, NO_SPENDING).plus(spent)
        over = self.now() - DAY_S - BUCKET_S
        self._news[alias] = {at: spent for at, spent in known.items() if at > over}

    @property
    def is_daily(self) -> bool:
        """Whether any model has a budget of 24 h."""
        return any(account.daily.limits.any for account in self._accounts.values())

    def refuse_unpriced(self, models: Iterable[Model]) -> None:
        """Refuse a budget in money for a model of unknown cost; see the function of this name."""
        refuse_unpriced(models, self._settings, self.prices)

    def register(self, model: Model) -> None:
        """Open an account for a model, or apply the changes of its budget."""
        budget = model.budget if model.key in self.own_only else with_settings(model.budget, self._settings)
        budget = replace(budget, price=self.prices.of(model))
        account = self._accounts.get(model.key)
        if account is None:
            if self.prices.lacks(model):
                self._emit(PriceMissing(model.key, self.prices.told))
            account = self._accounts[model.key] = Account(model.key, budget)
            self._take_over(account)
            if self._shared is not None:
                account.daily.asked(NO_SPENDING)
                self._shared.wake(account)
        before = account.budget
        account.take(budget)
        account.is_asked = True
        if self._shared is not None and budget != before:
            self._shared.wake(account)
        if account.stop is not None or account.daily.limits.any:
            self._look(account)

    def dismiss(self, alias: str) -> None:
        """Stop reporting on a model that has left the roster; its spending is kept in case it comes back."""
        account = self._accounts.get(alias)
        if account is not None:
            account.is_asked = account.is_told = False
            account.stop = None
            account.silence()

    def forget(self, alias: str) -> None:
        """Drop the account of a model that was dismissed; after a day, none of its spending counts."""
        self._accounts.pop(alias, None)

    def _take_over(self, account: Account) -> None:
        past, news = self._past.pop(account.alias, ()), list(self._news.pop(account.alias, {}).items())
        now = self.now()
        spent = [(p.at, Spending(p.tokens, p.requests, p.cost_micro)) for p in past]
        known = sorted([*news, *beyond(spent, news)])
        account.daily.restore([(min(at, now), amount) for at, amount in known], now)
        samples = sum(p.samples for p in past)
        if samples:
            total = NO_SPENDING
            for _, amount in spent:
                total = total.plus(amount)
            account.habits.ended(Spending(*(part // samples for part in total)))

    def account(self, model: Model) -> Account:
        """Return the account of a model; a model that was never registered gets one."""
        account = self._accounts.get(model.key)
        if account is None:
            self.register(model)
            account = self._accounts[model.key]
        return account

    def sample_limits(self, account: Account, environment: str) -> SampleLimits:
        """Return the limits of one sample: the smaller of the environment's and the model's."""
        known = account.sample_limits.get(environment)
        if known is not None:
            return known
        budget, settings = account.budget, self._settings
        limits = SampleLimits(budget.sample_tokens, budget.sample_completion_tokens, budget.sample_time_s)
        if account.alias not in self.own_only:
            limits = limits.and_also(
                SampleLimits(
                    value_for(settings.sample_tokens, environment),
                    value_for(settings.sample_completion_tokens, environment),
                    value_for(settings.sample_time_s, environment),
                )
            )
        account.sample_limits[environment] = limits
        return limits

    # Episodes.

    def begin(self, task_id: str, alias: str, needed: Spending | None = None) -> None:
        """Hold `needed`, by default what a sample usually takes; stop the model if there is no room for one more."""
        account = self._accounts.get(alias)
        if account is None or not account.is_counted:
            return
        self._spending[task_id] = (account, NO_SPENDING)
        if account.daily.limits.any:
            account.daily.hold(task_id, account.expected if needed is None else needed, self.now())
            if self._shared is not None and account.daily.holds_more_than_granted:
                self._shared.wake(account)
            self._look(account)

    def ended(self, task_id: str) -> None:
        """Give back what an episode holds. May be called more than once, and for episodes that never began."""
        account, spent = self._spending.pop(task_id, (None, NO_SPENDING))
        if account is None:
            return
        if spent.tokens and account.stop is None:
            account.habits.ended(spent)
        self.release(task_id, account)

    def is_hopeless(self, task_id: str) -> bool:
        """Return, once, whether a task ended because it needs more than any day allows; running it again is useless."""
        was_in = task_id in self._hopeless
        self._hopeless.discard(task_id)
        return was_in

    # Requests; called by conversations.

    async def hold(self, task_id: str, account: Account, needed: Spending) -> BudgetStop | None:
        """Hold `needed` for an episode and mark its request as in flight; or return why it must not be sent."""
        if not account.daily.limits.any:
            return None
        exhausted = account.daily.hold(task_id, needed, self.now())
        while exhausted is None and not account.daily.covers(task_id, needed):
            if self._shared is None:
                break
            try:
                await self._shared.ask(task_id, account, needed)
            except BaseException:
                self._forget_unknown(task_id, account)
                raise
            # Other processes may have been granted the room meanwhile.
            exhausted = account.daily.hold(task_id, needed, self.now())
        if exhausted is None:
            account.granted(needed)
            return None
        now = self.now()
        if exhausted.until is None:
            self._hopeless.add(task_id)
            return BudgetStop(exhausted.limit, too_large(account.alias, exhausted), None, now)
        account.request = account.request.at_least(needed)
        self._look(account, exhausted)
        self._forget_unknown(task_id, account)
        return account.stop or BudgetStop(exhausted.limit, used_up(account, exhausted), None, now)

    def _forget_unknown(self, task_id: str, account: Account) -> None:
        """Release a task that never began as an episode, such as a judgement: no call will report its end."""
        if task_id not in self._spending:
            self.release(task_id, account)

    def settle(self, task_id: str, account: Account, spent: Spending) -> None:
        """Count the spending of a request."""
        account.daily.settle(task_id, spent, self.now())
        self._spenders[account.alias] = account
        known = self._spending.get(task_id)
        if known is not None:
            self._spending[task_id] = (account, known[1].plus(spent))
        else:
            self.release(task_id, account)

    def paid(self, task_id: str, alias: str, reply: ChatReply) -> None:
        """Count a reply from a batch, and give back what was held for it."""
        account = self._accounts.get(alias)
        if account is None or not account.is_counted:
            return
        completion = reply.completion_tokens or account.habits.tokens_of(reply_chars(reply.text))
        spent = account.budget.spending(reply.prompt_tokens, completion, 1, reply.lane)
        if not reply.prompt_tokens:
            spent = spent.at_least(account.daily.held_for(task_id))
        cost = account.budget.cost_of(reply, reply.billed_micro)
        self.settle(task_id, account, spent if cost is None else spent._replace(cost_micro=cost))
        self.ended(task_id)

    def priced(self, model: Model, sample: Sample) -> tuple[Sample, Spending]:
        """Return a sample taken elsewhere with its cost, where that is known, and its spending."""
        budget = self.account(model).budget
        cost = budget.cost_of(sample, sample.cost_micro)
        spent = budget.spending(sample.prompt_tokens, sample.completion_tokens, sample.attempts)
        return replace(sample, cost_micro=cost), spent if cost is None else spent._replace(cost_micro=cost)

    def release(self, task_id: str, account: Account) -> None:
        """Drop what an episode holds; that may let the model resume."""
        if account.daily.release(task_id) and account.stop is not None:
            self._look(account)

    def usage_missing(self, account: Account, estimated: int) -> None:
        """Report, once per model, that its endpoint does not count tokens."""
        if account.habits.reports_usage:
            account.habits.reports_usage = False
            self._emit(UsageMissing(account.alias, estimated))

    # Who has to wait.

    def stop_of(self, alias: str) -> BudgetStop | None:
        """Return why no task of a model is started, or None."""
        account = self._accounts.get(alias)
        return account.stop if account is not None else None

    def status(self, alias: str) -> tuple[BudgetStatus, ...]:
        """Return the use of each limit of a model."""
        account = self._accounts.get(alias)
        if account is None:
            return ()
        limits, used, held = account.daily.limits, account.daily.used(self.now()), account.daily.held
        rows = (
            ("daily_tokens", limits.tokens, used.tokens, held.tokens, 1),
            ("daily_requests", limits.requests, used.requests, held.requests, 1),
            ("daily_cost", limits.cost_micro, used.cost_micro, held.cost_micro, 1_000_000),
        )
        return tuple(
            BudgetStatus(name, spent / unit, kept / unit, None if limit is None else limit / unit)
            for name, limit, spent, kept, unit in rows
            if limit is not None or (name == "daily_cost" and spent)
        )

    def close(self) -> None:
        """Stop all timers."""
        for account in self._accounts.values():
            account.silence()

    def _look(self, account: Account, refused: Exhausted | None = None) -> None:
        """Stop a model that has no room for another sample, or resume one with `RESUME_SHARE` of its day free again."""
        now = self.now()
        limits = account.daily.limits
        if account.stop is None and refused is None and account.daily.lacks(account.expected, now) is None:
            return
        wanted = limits.capped(account.expected.at_least(limits.share(RESUME_SHARE)))
        exhausted = account.daily.lacks(wanted, now)
        if exhausted is None:
            self._go_on(account, now)
        else:
            self._wait(account, exhausted, now)

    def _wait(self, account: Account, exhausted: Exhausted, now: float) -> None:
        account.silence()
        until = exhausted.until if exhausted.until is not None and exhausted.until > now else None
        since = now if account.stop is None else account.stop.since
        account.stop = stop = BudgetStop(exhausted.limit, used_up(account, exhausted), until, since)
        if not account.is_asked:
            return
        # If only episodes in progress are in the way, their ends let it resume; what they hold may postpone `until`.
        wait_s = max(_LEAST_WAIT_S, until - now) if until is not None else 60.0
        known_until = now if until is None or any(account.daily.promised) else until
        if not account.is_told and known_until - stop.since < _BRIEF_S:
            wait_s = min(wait_s, _BRIEF_S)
        elif not account.is_told:
            account.is_told = True
            self._emit(
                DailyBudgetSpent(account.alias, exhausted.limit, exhausted.used, exhausted.allowed, until, stop.reason)
            )
        account.timer = asyncio.get_running_loop().call_later(wait_s, self._timed, account)
        self.changed(account.alias, stop)

    def _timed(self, account: Account) -> None:
        account.timer = None
        if account.stop is not None:
            self._look(account)

    def _go_on(self, account: Account, now: float) -> None:
        stop, account.stop = account.stop, None
        account.silence()
        if stop is None:
            return
        if account.is_told:
            account.is_told = False
            self._emit(DailyBudgetFreed(account.alias, stop.limit, now - stop.since))
        self.changed(account.alias, None)


async def restored_budgets(budgets: Budgets, journal: JournalThread, store: RunStore, now: float) -> None:
    """Load the spending of before this process into 24 h budgets, and share them with other processes from now on.

    Without such budgets, nothing is read from the store.

    Raises:
        StoreError: if the store cannot be read: without it, what is left of a day is unknown.
    """
    if budgets.is_daily:
        # Entries dated ahead by a fast clock would count as spent now, at every start until that time has come.
        since, until = now - DAY_S, now + CLOCK_TOLERANCE_S
        stored = [row for row in await store.spent(since) if row[2] <= until]
        spooled = await journal.write(journal.journal.spooled)
        waiting = [
            (s.task_id, s.model, s.finished_at, s.prompt_tokens, s.completion_tokens, s.attempts, s.cost_micro)
            for s in spooled
            if since <= s.finished_at <= until
        ]
        budgets.remember(by_minute([*stored, *waiting]))
    await budgets.share(journal)
