"""What bounds requests, and what outcomes, time and their owner make of the bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from headgate.admission.accounts import Account, Accounts, KeyState, Provider
from headgate.admission.agenda import Agenda
from headgate.admission.breaker import BreakerRule
from headgate.admission.keys import ProviderModel
from headgate.admission.laws import Admitted, LimitChange, LimitLaw
from headgate.admission.leases import RequestLease
from headgate.admission.outcomes import OutcomeKind, RequestOutcome
from headgate.admission.snapshots import slots_of
from headgate.admission.telling import Effects
from headgate.core.errors import InvalidSettingError

_LEAST_TICK_S: Final = 0.001
"""A law that says `now` again and again must not keep the timer busy."""


class Limits:
    """The limits of all accounts. Pure; owned by the controller, which hands over what a change has made free.

    Attributes:
        accounts: every provider, model and key.
        agenda: when time alone changes something that somebody would notice.
        is_watched: whether somebody notices changes without waiting for anything.
    """

    def __init__(self, make_law: Callable[[int], LimitLaw], breaker: BreakerRule, effects: Effects) -> None:
        self.accounts = Accounts(make_law, breaker)
        self.agenda = Agenda()
        self.is_watched = False
        self._effects = effects

    # What their owner changes.

    def register(self, name: ProviderModel, cap: int, alias: str, now: float) -> Account:
        """Take the cap that an alias asks for.

        Raises:
            InvalidSettingError: if `cap` is below 1.
        """
        if cap < 1:
            raise InvalidSettingError(f"the cap of {alias} on requests in flight must be >= 1 (got {cap})")
        account = self.accounts.account(name)
        if account.caps.get(alias) != cap:
            account.caps[alias] = cap
            self._effects.registered(account, alias)
        self._recap(account, now)
        return account

    def unregister(self, name: ProviderModel, alias: str, now: float) -> Account | None:
        """Take an alias away; return its account, or None if it was not registered there."""
        account = self.accounts.by_name.get(name)
        if account is None or account.caps.pop(alias, None) is None:
            return None
        self._recap(account, now)
        return account

    def set_slots(self, name: str, slots: int | None) -> Provider:
        """Take the slots of a provider; None for no bound.

        Raises:
            InvalidSettingError: if `slots` is below 0.
        """
        if slots is not None and slots < 0:
            raise InvalidSettingError(f"the slots of {name} must be >= 0 (got {slots})")
        provider = self.accounts.provider(name)
        before = slots_of(provider)
        if before != slots:
            provider.slots = math.inf if slots is None else slots
            self._effects.slots_changed(name, before, slots)
        return provider

    def forget(self, account: Account) -> None:
        """Drop an account that nobody may ask and that nothing is in flight at."""
        self.agenda.set_due(account, math.inf)
        self.accounts.forget(account)

    def _recap(self, account: Account, now: float) -> None:
        """Take the smallest cap of an account's aliases into force."""
        before, account.cap = account.cap, min(account.caps.values(), default=0)
        differ = len(set(account.caps.values())) > 1
        if differ and not account.caps_differ:
            self._effects.caps_differ(account)
        account.caps_differ = differ
        if before == account.cap:
            return
        if before:
            self._effects.cap_changed(account, before)
        for key in account.keys.values() if account.cap else ():
            self._tell(key, key.law.set_max(account.cap, now))
        self.schedule(account, now)

    # What outcomes change.

    def observe(self, lease: RequestLease, outcome: RequestOutcome, now: float) -> None:
        """Let limit and breaker learn from the end of an attempt, which still counts as in flight."""
        admitted, lease.admitted = lease.admitted, None
        assert admitted is not None
        key = lease.key
        key.last_outcome = outcome.kind.value
        law = lease.law
        changes = law.observe(admitted, outcome, key.in_flight, now) if law is key.law else []
        if outcome.kind is OutcomeKind.SUCCESS:
            key.rate_limits = 0
            if not changes and key.account.breaker.is_calm:
                return
        self._learnt(lease, admitted, outcome, changes, now)

    def _learnt(
        self,
        lease: RequestLease,
        admitted: Admitted,
        outcome: RequestOutcome,
        changes: list[LimitChange],
        now: float,
    ) -> None:
        key = lease.key
        account = key.account
        account.blocked_until = max(account.blocked_until, key.law.blocked_until)
        move = account.breaker.observe(lease.number, admitted, outcome, now)
        if outcome.kind is OutcomeKind.RATE_LIMITED:
            key.rate_limits += 1
            until = account.blocked_until if account.breaker.is_closed else account.breaker.until
            self._effects.rate_limited(lease, outcome.retry_after_s, until - now)
        for change in changes:
            self._tell(key, change)
        if move is not None:
            self._effects.breaker_moved(account, move, now)
        self.schedule(account, now)

    # What time changes.

    def grow(self, key: KeyState, now: float) -> bool:
        """Let time move the limit of a key; return whether it did."""
        return self._tell(key, key.law.tick(now))

    def schedule(self, account: Account, now: float) -> None:
        """Have an account looked at when time alone changes it, if anybody would know the difference."""
        due_at = math.inf
        keys = [key for key in account.keys.values() if key.waiting or self.is_watched]
        if keys:
            ends = (account.blocked_until, math.inf if account.breaker.is_closed else account.breaker.until)
            due_at = min((end for end in ends if end > now), default=math.inf)
            for key in keys:
                at = key.law.next_change_at(now)
                if at is not None:
                    due_at = min(due_at, max(at, now + _LEAST_TICK_S))
        self.agenda.set_due(account, due_at)

    def _tell(self, key: KeyState, change: LimitChange | None) -> bool:
        if change is None:
            return False
        self._effects.limit_changed(key, change)
        return True
