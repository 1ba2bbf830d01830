"""The limits on requests, and how outcomes, time and their owner change them."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Final

from headgate.admission.accounts import Account, Accounts, KeyState, Provider
from headgate.admission.breaker import BreakerRule
from headgate.admission.classify import OutcomeKind, RequestOutcome
from headgate.admission.effects import Effects
from headgate.admission.items import Domain, ProviderModel, RequestKey, RequestLease, Ticket
from headgate.admission.laws import LimitChange, LimitLaw
from headgate.admission.rate_learner import RateLearner
from headgate.admission.rates import RateScope
from headgate.core import events
from headgate.core.errors import InvalidSettingError
from headgate.core.rates import ModelRates, RateLimits

_LEAST_TICK_S: Final = 0.001
"""The shortest delay until a law's next change: a law that keeps answering `now` must not keep the timer busy."""


class Agenda:
    """Deadlines of tickets and due times of accounts. Pure; owned by the controller.

    Outdated entries stay in a heap until their time comes; those of deadlines also go once they are its greater part.

    Attributes:
        changes_at: no later than the earliest entry that is due; infinite if there is none.
    """

    __slots__ = ("_accounts", "_deadlines", "_kept", "_order", "changes_at")

    def __init__(self) -> None:
        self.changes_at = math.inf
        self._deadlines: list[tuple[float, int, Ticket]] = []
        self._accounts: list[tuple[float, int, Account | RateScope]] = []
        self._order = itertools.count()
        self._kept = 0

    def add_deadline(self, ticket: Ticket, deadline: float) -> None:
        """Schedule a waiting ticket to expire at `deadline`."""
        heapq.heappush(self._deadlines, (deadline, ticket.number, ticket))
        self.changes_at = min(self.changes_at, deadline)
        if len(self._deadlines) > 2 * self._kept + 64:
            self._deadlines = [entry for entry in self._deadlines if entry[2].flow is not None]
            heapq.heapify(self._deadlines)
            self._kept = len(self._deadlines)

    def set_due(self, account: Account | RateScope, due_at: float) -> None:
        """Reschedule an account, or a limit that several accounts share, to `due_at`."""
        if due_at == account.due_at:
            return
        account.due_at = due_at
        if due_at < math.inf:
            heapq.heappush(self._accounts, (due_at, next(self._order), account))
            self.changes_at = min(self.changes_at, due_at)

    def next_at(self) -> float:
        """Return when the next entry is due; infinite if there is none."""
        deadlines, accounts = self._deadlines, self._accounts
        while deadlines and deadlines[0][2].flow is None:
            heapq.heappop(deadlines)
        while accounts and accounts[0][0] != accounts[0][2].due_at:
            heapq.heappop(accounts)
        return min(deadlines[0][0] if deadlines else math.inf, accounts[0][0] if accounts else math.inf)

    def pop_expired(self, now: float) -> Ticket | None:
        """Remove and return a waiting ticket whose deadline has come; None if there is none."""
        while self._deadlines and self._deadlines[0][0] <= now:
            ticket = heapq.heappop(self._deadlines)[2]
            if ticket.flow is not None:
                return ticket
        return None

    def pop_due(self, now: float) -> Account | RateScope | None:
        """Remove and return an account or shared limit that is due; it has no due time until it is rescheduled."""
        while self._accounts and self._accounts[0][0] <= now:
            due_at, _, account = heapq.heappop(self._accounts)
            if account.due_at == due_at:
                account.due_at = math.inf
                return account
        return None


class Limits:
    """The limits of all accounts. Pure; owned by the controller, which hands freed slots to waiters.

    Attributes:
        accounts: every provider, model and key.
        agenda: when time alone changes something that a waiter or listener would notice.
        is_watched: whether listeners notice changes even without waiters.
    """

    def __init__(
        self, make_law: Callable[[int], LimitLaw], breaker: BreakerRule, effects: Effects, *, learns_rates: bool
    ) -> None:
        self.accounts = Accounts(make_law, breaker)
        self.agenda = Agenda()
        self.is_watched = False
        self._effects = effects
        self._learns_rates = learns_rates

    # Changes by their owner.

    def register(self, name: ProviderModel, cap: int, alias: str, rates: ModelRates, now: float) -> Account:
        """Set the cap that an alias asks for, and its limits per minute.

        Raises:
            InvalidSettingError: if `cap` is below 1.
        """
        if cap < 1:
            raise InvalidSettingError(f"the cap of {alias} on requests in flight must be >= 1 (got {cap})")
        account = self.accounts.account(name)
        if account.caps.get(alias) != cap:
            account.caps[alias] = cap
            self._effects.pending.append(events.RequestResourceRegistered(*name, alias, cap))
        self.accounts.scopes.state(account, alias, rates, now)
        self._recap(account, now)
        return account

    def unregister(self, name: ProviderModel, alias: str, now: float) -> Account | None:
        """Remove an alias; return its account, or None if it was not registered there."""
        account = self.accounts.by_name.get(name)
        if account is None or account.caps.pop(alias, None) is None:
            return None
        self.accounts.scopes.state(account, alias, None, now)
        self._recap(account, now)
        return account

    def set_slots(self, name: str, slots: int | None) -> Provider:
        """Set the slots of a provider; None for no bound.

        Raises:
            InvalidSettingError: if `slots` is below 0.
        """
        if slots is not None and slots < 0:
            raise InvalidSettingError(f"the slots of {name} must be >= 0 (got {slots})")
        provider = self.accounts.provider(name)
        before = None if provider.slots == math.inf else int(provider.slots)
        if before != slots:
            provider.slots = math.inf if slots is None else slots
            self._effects.pending.append(events.ProviderSlotsChanged(name, before, slots))
        return provider

    def _recap(self, account: Account, now: float) -> None:
        """Apply the smallest cap of an account's aliases."""
        before, account.cap = account.cap, min(account.caps.values(), default=0)
        differ = len(set(account.caps.values())) > 1
        if differ and not account.caps_differ:
            self._effects.pending.append(events.RequestCapsDiffer(*account.name, dict(account.caps), account.cap))
        account.caps_differ = differ
        if before == account.cap:
            return
        if before:
            self._effects.pending.append(events.RequestCapChanged(*account.name, before, account.cap))
        for key in account.keys.values() if account.cap else ():
            self._tell(key, key.law.set_max(account.cap, now))
        self.schedule(account, now)

    # Changes by outcomes.

    def observe(self, lease: RequestLease, outcome: RequestOutcome, now: float) -> None:
        """Let limit and breaker learn from an attempt's outcome; the attempt still counts as in flight."""
        key = lease.key
        key.last_outcome = outcome.kind.value
        key.answered += 1
        account, learnt = key.account, outcome
        if lease.taken is not None or outcome.told:
            learnt = self._settle(lease, outcome, now)
        if account.learner is not None or (outcome.kind is OutcomeKind.RATE_LIMITED and self._learns_rates):
            self._learn(lease, learnt, now)
        changes = key.law.observe(lease.admitted, learnt, key.in_flight, now)
        if outcome.kind is OutcomeKind.SUCCESS:
            key.rate_limits = 0
            if not changes and account.breaker.is_calm:
                return
        account.blocked_until = max(account.blocked_until, key.law.blocked_until)
        move = account.breaker.observe(lease.number, lease.admitted, learnt, now)
        if outcome.kind is OutcomeKind.RATE_LIMITED:
            key.rate_limits += 1
            key.rate_limited += 1
            until = account.blocked_until if account.breaker.is_closed else account.breaker.until
            self._effects.rate_limited(lease, outcome.retry_after_s, until - now)
        for change in changes:
            self._tell(key, change)
        if move is not None:
            self._effects.breaker_moved(account, move, now)
        self.schedule(account, now)

    def _settle(self, lease: RequestLease, outcome: RequestOutcome, now: float) -> RequestOutcome:
        """Settle what an attempt took of rates; return the outcome for law and breaker, without refusals for a rate."""
        account = lease.key.account
        rates = account.rates
        if lease.taken is not None and rates is not None:
            need, buckets = lease.taken
            used = rates.settle(need, buckets, outcome, now)
            if lease.charged:
                rates.correct(lease.item.group, lease.charged, used[lease.charged] - need[lease.charged])
        if outcome.told and self.accounts.scopes.note(account, outcome, now):
            return outcome._replace(kind=OutcomeKind.PROVIDER_FAILURE)
        return outcome

    def _learn(self, lease: RequestLease, outcome: RequestOutcome, now: float) -> None:
        """Infer a limit per minute from refusals and the answers between them."""
        account = lease.key.account
        learner = account.learner = account.learner or RateLearner(now)
        if outcome.kind is OutcomeKind.RATE_LIMITED:
            if learner.refused(lease.admitted.in_flight, now):
                self.accounts.scopes.learn(account, learner, now, is_empty=True)
        elif outcome.kind is OutcomeKind.SUCCESS and learner.answered(lease.acquired_at, outcome, now):
            self.accounts.scopes.learn(account, learner, now, is_empty=False)

    def learnt(self, name: ProviderModel, of: str, limit: int, now: float) -> Account | None:
        """Take over a limit that other processes have learnt; return the account, or None if it is not registered."""
        units = RateLimits._fields
        state = self.accounts.key(RequestKey(name) if of in units else RequestKey(name, Domain(of)))
        if state is None:
            return None
        account = state.account
        if of not in units and limit:
            self._tell(state, state.law.learnt(limit, now))
        elif of in units and self._learns_rates:
            account.learner = account.learner or RateLearner(now)
            account.learner.heard(units.index(of), limit or math.inf, now)
            self.accounts.scopes.learn(account, account.learner, now, is_empty=False)
        self.schedule(account, now)
        return account

    # Changes by time.

    def grow(self, key: KeyState, now: float) -> bool:
        """Apply the passage of time to a key's limit; return whether it changed."""
        return self._tell(key, key.law.tick(now))

    def schedule(self, account: Account, now: float) -> None:
        """Schedule an account for when time alone changes it, if a waiter or listener would notice."""
        due_at = math.inf
        is_noted = False
        for key in account.keys.values():
            if key.waiting or self.is_watched:
                is_noted = True
                at = key.law.next_change_at(now)
                if at is not None:
                    due_at = min(due_at, max(at, now + _LEAST_TICK_S))
        if is_noted:
            if now < account.blocked_until < due_at:
                due_at = account.blocked_until
            if not account.breaker.is_closed and now < account.breaker.until < due_at:
                due_at = account.breaker.until
            if account.rates is not None and now < (opens_at := account.rates.opens_alone_at(now)) < due_at:
                due_at = opens_at
        if due_at != account.due_at:
            self.agenda.set_due(account, due_at)

    def schedule_scope(self, scope: RateScope, opens_at: float, now: float) -> None:
        """Schedule a limit per minute for when it has room again, if a waiter or listener would notice."""
        is_noted = opens_at > now and (scope.is_told or any(provider.waiters.count for provider in scope.providers))
        self.agenda.set_due(scope, opens_at if is_noted else math.inf)

    def _tell(self, key: KeyState, change: LimitChange | None) -> bool:
        if change is None:
            return False
        self._effects.limit_changed(key, change)
        return True
