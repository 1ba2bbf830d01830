"""The admission controller: which requests may be sent now, which wait, and which is next. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final

from headgate.admission.accounts import Account, KeyState, Provider
from headgate.admission.breaker import BreakerRule
from headgate.admission.classify import OutcomeKind, RequestOutcome
from headgate.admission.effects import Effects, PressureWatch
from headgate.admission.items import (
    Denied,
    DenyReason,
    PressureReason,
    ProviderModel,
    RequestItem,
    RequestLease,
    Ticket,
)
from headgate.admission.laws import LimitLaw
from headgate.admission.limits import Limits
from headgate.admission.rates import REASONS, Bucket, RateScope
from headgate.core import ReleaseOutcome
from headgate.core.errors import InvalidSettingError
from headgate.core.rates import UNLIMITED, ModelRates

_CANCELLED: Final = RequestOutcome(OutcomeKind.LOCAL_CANCELLED)
_DENIED_FOR: Final = {
    PressureReason.AGGREGATE_CAP: DenyReason.NO_CAPACITY,
    PressureReason.COOLDOWN: DenyReason.COOLDOWN,
    PressureReason.BREAKER_OPEN: DenyReason.BREAKER_OPEN,
    PressureReason.WAITERS: DenyReason.QUEUED_WAITERS_AHEAD,
    PressureReason.RESOURCE_LIMIT: DenyReason.NO_CAPACITY,
    PressureReason.NO_SLOTS: DenyReason.NO_SLOTS,
    **dict.fromkeys(REASONS, DenyReason.RATE),
}


class AdmissionController:
    """Admits requests within all limits that apply to them.

    The adaptive limit of a key (provider, model, domain) <= the cap of its provider-model over domains and aliases <=
    the slots of its provider; and every limit per minute of model, key and organisation has room. Nothing here reads a
    clock, sleeps, logs or calls back: the consequences of a decision are collected in `effects`, in order, and the
    controller's owner carries them out. `changes_at` is when time alone changes something that a waiter depends on;
    `tick` must be called then.

    Owned by one `RequestAdmission`, which calls it under a lock. Invariants (`validate`): in-flight counts equal the
    live leases; a ticket waits exactly while it is in one flow; no waiter could be admitted; a limit is exceeded only
    after it was lowered while leases were held.

    Attributes:
        effects: the effects to carry out.
        accounts: every provider, model and request key; read-only.
        generation: number of this controller's lifetime; leases of another one are refused.
        closed: why nothing is admitted any more; None while requests are admitted.

    Limits per minute that are neither stated nor told are learnt from refusals, unless `learns_rates` is false.
    """

    def __init__(
        self,
        make_law: Callable[[int], LimitLaw],
        *,
        breaker: BreakerRule | None = None,
        generation: int = 1,
        trace_requests: bool = False,
        learns_rates: bool = True,
    ) -> None:
        self.effects = Effects(trace_requests=trace_requests)
        self.generation = generation
        self.closed: str | None = None
        self._limits = Limits(make_law, breaker or BreakerRule(), self.effects, learns_rates=learns_rates)
        self.accounts = self._limits.accounts
        self._keys = self.accounts.keys
        self._agenda = self._limits.agenda
        self._watch = PressureWatch(self.effects)
        self._live: dict[int, RequestLease] = {}
        self._leases = 0
        self._tickets = 0

    # Requests.

    def request(self, item: RequestItem, now: float) -> RequestLease | Ticket | Denied:
        """Return a lease, a ticket that waits for one, or a denial.

        Raises:
            InvalidSettingError: if it has to wait and its weight is not above 0.
        """
        key = self._key_for(item, now)
        if isinstance(key, Denied):
            self.effects.denied(item, key, now)
            return key
        admits = key.admits(now)
        if admits and not key.account.provider.is_full:
            return self._grant(key, item, now)
        return self._enqueue(Ticket(item), key, now, lacks_slot=admits)

    def try_acquire(self, item: RequestItem, now: float) -> RequestLease | Denied:
        """Return a lease if one is free and no waiter comes first, else the reason for the denial. Never waits."""
        key = self._key_for(item, now)
        if isinstance(key, Denied):
            self.effects.denied(item, key, now)
            return key
        pressure = key.pressure(now)
        if pressure is None:
            return self._grant(key, item, now)
        denied = Denied(_DENIED_FOR[pressure.reason], pressure.until)
        if self.effects.trace_requests:
            self.effects.denied(item, denied, now)
        return denied

    def cancel(self, ticket: Ticket, now: float) -> bool:
        """Give a ticket up in any state: it leaves the queue, or its lease is released. Return if it had either."""
        if ticket.flow is not None:
            self._leave(ticket, now)
            ticket.denied = Denied(DenyReason.CANCELLATION)
            self.effects.cancelled(ticket, now)
            return True
        if ticket.lease is not None and ticket.lease.taken is not None:
            ticket.lease.give_back(now)
        return ticket.lease is not None and self.release(ticket.lease, _CANCELLED, now) is ReleaseOutcome.RELEASED

    def release(self, lease: RequestLease, outcome: RequestOutcome, now: float) -> ReleaseOutcome:
        """Take a lease back with its attempt's outcome, and hand its slot over. Only the first release counts."""
        held = self._live.pop(lease.number, None) if lease.generation == self.generation else None
        if held is None:
            refusal = self._refusal(lease)
            self.effects.release_refused(lease, refusal.value)
            return refusal
        self._limits.observe(held, outcome, now)
        key = held.key
        account = key.account
        key.in_flight -= 1
        account.in_flight -= 1
        account.provider.in_flight -= 1
        if self.effects.trace_requests:
            self.effects.released(held, outcome.kind.value, now)
        self._after(account, now)
        if held.taken is not None and (account.rates is None or held.taken[1] is not account.rates.buckets):
            self._left({bucket.scope: None for bucket in held.taken[1]}, account, now)
        if not (account.in_flight or account.caps):
            self._forget(account, now)
        return ReleaseOutcome.RELEASED

    # Changes while requests are in flight.

    def register(self, name: ProviderModel, cap: int, alias: str, now: float, rates: ModelRates = UNLIMITED) -> None:
        """Admit a model's requests, under an alias with at most `cap` requests in flight; the smallest cap applies.

        Of the limits per minute that aliases state, the smallest apply too.

        Raises:
            InvalidSettingError: if `cap` is below 1.
        """
        before = self._shared(name)
        account = self._limits.register(name, cap, alias, rates, now)
        self._after(account, now)
        self._left(before, account, now)

    def set_rate_share(self, provider: str, share: float, now: float) -> None:
        """Set this process's share of every limit per minute of a provider: other processes have the rest."""
        state = self.accounts.provider(provider)
        if share != state.rate_share:
            state.rate_share = share
            self.accounts.scopes.share(state, now)
            if self._agenda.changes_at <= now:
                self.tick(now)
            accounts = [account for account in state.accounts.values() if account.rates is not None]
            scopes = {scope: None for account in accounts if account.rates for scope in account.rates.shared}
            self._hand_over_all(accounts, tuple(scopes), now)

    def unregister(self, name: ProviderModel, alias: str, now: float) -> None:
        """Remove an alias. A model without aliases admits no more requests; requests in flight run on."""
        before = self._shared(name)
        account = self._limits.unregister(name, alias, now)
        if account is None:
            return
        self._after(account, now)
        self._left(before, account, now)
        if account.caps:
            return
        denied = Denied(DenyReason.UNREGISTERED, detail=f"{name} was withdrawn")
        for key in account.keys.values():
            self._refuse_all(key, denied, now)
        if not account.in_flight:
            self._forget(account, now)

    def learnt(self, name: ProviderModel, of: str, limit: int, now: float) -> None:
        """Start from a limit that other processes learnt: a domain's ceiling, or a unit's per minute; 0 for none."""
        account = self._limits.learnt(name, of, limit, now)
        if account is not None:
            self._after(account, now)

    def retry(self, name: ProviderModel, now: float) -> None:
        """End the cooldown of a model at its provider; if a breaker is open, one probe may be sent."""
        account = self.accounts.by_name.get(name)
        if account is not None:
            account.blocked_until = min(account.blocked_until, now)
            account.breaker.until = min(account.breaker.until, now)
            self._limits.schedule(account, now)
            self._after(account, now)

    def set_provider_cap(self, provider: str, slots: int | None, now: float) -> None:
        """Limit this process's requests in flight at a provider; None removes the limit, 0 admits nothing.

        Raises:
            InvalidSettingError: if `slots` is below 0.
        """
        if self.changes_at <= now:
            self.tick(now)
        state = self._limits.set_slots(provider, slots)
        self._pump(state, now)
        if self._watch.is_on:
            self._watch.note_provider(state, now)

    def shutdown(self, reason: str, now: float) -> None:
        """Deny all waiting and future requests; releases still count."""
        self.closed = reason
        denied = Denied(DenyReason.SHUTDOWN, detail=reason)
        for key in self._keys.values():
            self._refuse_all(key, denied, now)

    def watch(self, now: float) -> None:
        """Report changes of pressure from now on, starting with every key that is under pressure."""
        self._watch.is_on = self._limits.is_watched = True
        for provider in self.accounts.providers.values():
            self._watch.note_provider(provider, now)
            for account in provider.accounts.values():
                self._limits.schedule(account, now)
                for scope in self._shared(account.name):
                    self._moved(scope, now)

    # Time.

    @property
    def changes_at(self) -> float:
        """When time alone changes something that a waiter or watcher depends on; infinite if nothing does."""
        return self._agenda.changes_at

    def tick(self, now: float) -> None:
        """Apply the passage of time: deadlines, ends of cooldowns, limits that grow by themselves."""
        while (ticket := self._agenda.pop_expired(now)) is not None:
            self._leave(ticket, now)
            denied = Denied(DenyReason.QUEUE_TIMEOUT, detail=f"waited {now - ticket.since:.1f} s")
            self.effects.refused(ticket, denied, now, timed_out=True)
        while (due := self._agenda.pop_due(now)) is not None:
            if isinstance(due, RateScope):
                self._hand_over_all((), (due,), now)
                continue
            for key in due.keys.values():
                self._limits.grow(key, now)
            self._limits.schedule(due, now)
            self._hand_over(due, now)
        self._agenda.changes_at = self._agenda.next_at()

    # Decisions.

    def _key_for(self, item: RequestItem, now: float) -> KeyState | Denied:
        """Return the state under which an item is admitted, once everything due has been applied."""
        if self._agenda.changes_at <= now:
            self.tick(now)
        if self.closed is not None:
            return Denied(DenyReason.SHUTDOWN, detail=self.closed)
        key = self._keys.get(item.key)
        if key is None or not key.account.caps:
            key = self.accounts.key(item.key)
            if key is None:
                return Denied(DenyReason.UNREGISTERED, detail=f"{item.key.account} is not registered")
            if self._watch.is_on:
                self._watch.note_key(key, now)
        rates = key.account.rates
        if rates is not None and (reason := rates.too_large(item)) is not None:
            return Denied(DenyReason.TOO_LARGE, detail=reason)
        if key.in_flight >= key.law.limit and self._limits.grow(key, now):
            self._after(key.account, now)
        return key

    def _grant(self, key: KeyState, item: RequestItem, now: float) -> RequestLease:
        account = key.account
        key.in_flight += 1
        account.in_flight += 1
        account.provider.in_flight += 1
        key.peak_in_flight = max(key.peak_in_flight, key.in_flight)
        self._leases = number = self._leases + 1
        lease = RequestLease(number, self.generation, item, now, key.law.admitted(key.in_flight, now), key)
        self._live[number] = lease
        if account.rates is not None:
            lease.taken = account.rates.take(item, now), account.rates.buckets
            for scope in account.rates.shared:
                self._moved(scope, now)
            if self._watch.is_on:
                self._limits.schedule(account, now)
        if not account.breaker.is_closed:
            account.breaker.admitted(number)
        if self.effects.trace_requests:
            self.effects.granted(lease, key.in_flight)
        if self._watch.is_on:
            self._watch.note(account, now)
        return lease

    def _enqueue(self, ticket: Ticket, key: KeyState, now: float, *, lacks_slot: bool) -> Ticket | Denied:
        item = ticket.item
        if not item.weight > 0:
            raise InvalidSettingError(f"the weight of group {item.group!r} must be > 0 (got {item.weight})")
        if item.deadline is not None and item.deadline <= now:
            ticket.denied = Denied(DenyReason.QUEUE_TIMEOUT, detail="its deadline leaves no time to wait")
            self.effects.denied(item, ticket.denied, now)
            return ticket.denied
        pressure = None if key.waiting else key.pressure(now)
        self._tickets += 1
        ticket.number, ticket.since = self._tickets, now
        waiters = key.account.provider.waiters
        waiters.add(ticket, key)
        if lacks_slot:
            waiters.open(key)
        key.peak_waiting = max(key.peak_waiting, key.waiting)
        if item.deadline is not None:
            self._agenda.add_deadline(ticket, item.deadline)
        if key.waiting == 1:
            key.queued_since = now
            self._limits.schedule(key.account, now)
            for scope in () if key.account.rates is None else key.account.rates.shared:
                self._limits.schedule_scope(scope, scope.opens_at(now), now)
        self.effects.waiting(ticket, key, pressure.reason.value if pressure else PressureReason.WAITERS.value)
        if self._watch.is_on:
            self._watch.note(key.account, now)
        return ticket

    def _leave(self, ticket: Ticket, now: float) -> None:
        """Remove a ticket from the queue without serving it."""
        flow = ticket.flow
        assert flow is not None
        flow.key.account.provider.waiters.remove(ticket)
        if not flow.key.waiting:
            self.effects.drained(flow.key, now)
        if self._watch.is_on:
            self._watch.note(flow.key.account, now)

    def _refuse_all(self, key: KeyState, denied: Denied, now: float) -> None:
        for ticket in [ticket for flow in key.flows.values() for ticket in flow.tickets.values()]:
            self._leave(ticket, now)
            self.effects.refused(ticket, denied, now)

    def _refusal(self, lease: RequestLease) -> ReleaseOutcome:
        """Return why a lease cannot be given back. Numbers ascend: a smaller one that is not held was released."""
        if lease.generation != self.generation:
            return ReleaseOutcome.WRONG_GENERATION
        return ReleaseOutcome.DUPLICATE if 1 <= lease.number <= self._leases else ReleaseOutcome.UNKNOWN

    def _shared(self, name: ProviderModel) -> tuple[RateScope, ...]:
        """Return the limits per minute that an account shares with others."""
        account = self.accounts.by_name.get(name)
        return () if account is None or account.rates is None else account.rates.shared

    def _left(self, scopes: Iterable[RateScope], account: Account, now: float) -> None:
        """Hand over what became free in limits per minute that an account no longer shares."""
        shared = () if account.rates is None else account.rates.shared
        left = tuple(scope for scope in scopes if scope not in shared)
        if left:
            self._hand_over_all((), left, now)

    def _after(self, account: Account, now: float) -> None:
        """Apply what is due, then hand over what became free in an account."""
        if self._agenda.changes_at <= now:
            self.tick(now)
        self._hand_over(account, now)

    def _hand_over(self, account: Account, now: float) -> None:
        """Serve the waiters of an account that may have become free, and report changes of pressure."""
        if account.rates is not None:
            self._hand_over_all((account,), account.rates.shared, now)
            return
        waiters = account.provider.waiters
        if waiters.count:
            self._open(account, now)
            self._pump(account.provider, now)
        if self._watch.is_on:
            self._watch.note(account, now)

    def _open(self, account: Account, now: float) -> None:
        for key in account.keys.values():
            if key.waiting and key.admits(now):
                account.provider.waiters.open(key)

    def _hand_over_all(self, accounts: Sequence[Account], scopes: tuple[RateScope, ...], now: float) -> None:
        """Do so for several accounts, and for all members of limits per minute: one returns what another waits for.

        Providers that share an organisation's limits are served in turn, the one that has waited longest first.
        """
        providers: dict[Provider, None] = {}
        for account in accounts:
            if account.provider.waiters.count:
                self._open(account, now)
                providers[account.provider] = None
        waiting = {
            each: None
            for scope in scopes
            for each in scope.providers
            if each.waiters.count and scope.opens_at(now) <= now
        }
        for provider in waiting:
            for key in provider.waiters.keys:
                if not key.is_open and key.admits(now):
                    provider.waiters.open(key)
            providers[provider] = None
        for provider in sorted(providers, key=attrgetter("served")) if providers else ():
            self._pump(provider, now)
        for account in accounts:
            self._limits.schedule(account, now)
            if self._watch.is_on:
                self._watch.note(account, now)
        for scope in scopes:
            self._moved(scope, now)

    def _moved(self, scope: RateScope, now: float) -> None:
        """Schedule the next look at a limit per minute for when it has room; tell its members if that changed."""
        opens_at = scope.opens_at(now)
        if opens_at <= now and scope.due_at == math.inf and not scope.is_told:
            return
        if self._watch.is_on and scope.has_moved(opens_at, now):
            for member in scope.members:
                self._watch.note(member, now)
        self._limits.schedule_scope(scope, opens_at, now)

    def _pump(self, provider: Provider, now: float) -> None:
        """Serve a provider's waiters in their order while one can be admitted."""
        waiters = provider.waiters
        while waiters.ready and provider.in_flight < provider.slots:
            selection = waiters.select()
            assert selection is not None, "an open key has nobody waiting"
            key = selection.item.key
            if key.admits(now):
                ticket = waiters.take(selection)
                lease = self._grant(key, ticket.item, now)
                if lease.taken is not None and key.account.rates is not None:
                    lease.charged = key.account.rates.charged
                provider.served = lease.number
                self.effects.served(ticket, lease, now)
                if not key.waiting:
                    self.effects.drained(key, now)
            if key.is_open and not key.admits(now):
                waiters.close(key)

    def _forget(self, account: Account, now: float) -> None:
        self._agenda.set_due(account, math.inf)
        self.accounts.forget(account, now)
        self._watch.forget(account)

    def validate(self, now: float) -> None:
        """Assert the invariants of the class, of its accounts, and of its waiters."""
        self.accounts.validate()
        by_key = Counter(id(lease.key) for lease in self._live.values())
        for key in self._keys.values():
            assert key.in_flight == by_key.pop(id(key), 0), f"{key.key}: in flight is not what is leased"
            if key.waiting and self.changes_at > now:
                free = key.admits(now) and not key.account.provider.is_full
                assert not free, f"{key.key}: a request waits that could be admitted"
            assert self.closed is None or not key.waiting, "somebody waits after the end"
        taken: dict[Bucket, float] = {}
        for lease in self._live.values():
            need, buckets = lease.taken or ((0.0, 0.0, 0.0, 0.0), ())
            for bucket in buckets:
                taken[bucket] = taken.get(bucket, 0.0) + need[bucket.unit]
        for bucket in {b for a in self.accounts.by_name.values() if a.rates is not None for b in a.rates.buckets}:
            assert abs(bucket.reserved - taken.get(bucket, 0.0)) < 1e-3, "what is reserved is not what is in flight"
        assert not by_key, "a lease belongs to a key that is not known"
        assert self.changes_at <= self._agenda.next_at(), "the next change would be missed"
