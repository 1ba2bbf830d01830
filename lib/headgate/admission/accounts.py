"""The controller's state of each provider, its models and their request keys, and the waiters of each provider."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from headgate.admission.breaker import Breaker, BreakerRule
from headgate.admission.items import Domain, Flow, Pressure, PressureReason, ProviderModel, RequestKey, Ticket
from headgate.admission.laws import LimitLaw
from headgate.admission.rate_learner import RateLearner
from headgate.admission.rates import REASONS, AccountRates, RateScopes
from headgate.core.status import RequestStatus
from headgate.scheduling import FairQueue, Selection


class Waiters:
    """The waiters of one provider. Pure; owned by the controller.

    One fair queue, whose lanes are the request keys and whose items are flows (a group in a key). Groups share a
    provider's slots, and a model's cap over its domains, by weight; a key that admits nothing holds up no other. A
    group that waits in several open keys has one share, divided among them.

    Invariants (`validate`): a flow is in the queue exactly while it has waiters; `count` is the sum over flows;
    `ready` is the number of open keys, each with waiters; `keys` are those with waiters.
    """

    __slots__ = ("_groups", "_queue", "count", "keys", "ready")

    def __init__(self) -> None:
        self._queue: FairQueue[Flow] = FairQueue(id_of=attrgetter("name"), lane_of=attrgetter("lane"))
        self._groups: dict[str, list[Flow]] = {}
        self.keys: dict[KeyState, None] = {}
        self.count = 0
        self.ready = 0

    def add(self, ticket: Ticket, key: KeyState) -> None:
        """Add a waiting ticket; with its first waiter a key starts out closed. O(log flows)."""
        if not key.waiting:
            self._queue.close_lane(key.lane)
            self.keys[key] = None
        group = ticket.item.group
        flow = key.flows.get(group)
        if flow is None:
            flow = key.flows[group] = Flow(group, key, ticket.item.weight)
            self._groups.setdefault(group, []).append(flow)
            self._weigh(flow)
            self._queue.put(flow)
        else:
            flow.share = ticket.item.weight
        flow.tickets[ticket.number] = ticket
        ticket.flow = flow
        key.waiting += 1
        self.count += 1

    def remove(self, ticket: Ticket) -> None:
        """Remove a ticket that was not served. O(log flows)."""
        flow = ticket.flow
        if flow is None:
            return
        del flow.tickets[ticket.number]
        if not flow.tickets:
            self._queue.discard(flow.name)
            self._drop(flow)
        self._left(ticket, flow)

    def select(self) -> Selection[Flow] | None:
        """Return the flow whose turn it is among those of open keys; change nothing."""
        return self._queue.first(0)

    def take(self, selection: Selection[Flow]) -> Ticket:
        """Serve the first ticket of the selected flow and let the flow wait for its next turn."""
        flow = selection.item
        _, ticket = flow.tickets.popitem(last=False)
        rates = flow.key.account.rates
        if rates is not None:
            selection.group.charge = rates.charge(flow.owner, rates.need(ticket.item))
        if flow.tickets:
            self._weigh(flow)
            self._queue.serve(selection)
        else:
            self._queue.commit(selection)
            self._drop(flow)
        self._left(ticket, flow)
        return ticket

    def close(self, key: KeyState) -> None:
        """Skip all waiters of a key until it is opened."""
        if key.is_open:
            key.is_open = False
            self.ready -= 1
            self._queue.close_lane(key.lane)

    def open(self, key: KeyState) -> None:
        """Let the waiters of a key be selected; the key must have some."""
        if not key.is_open:
            key.is_open = True
            self.ready += 1
            self._queue.open_lane(key.lane)

    def _weigh(self, flow: Flow) -> None:
        """Set a flow's part of its group's weight for its next turn."""
        siblings = self._groups[flow.owner]
        rivals = 1 if len(siblings) == 1 else sum(other is flow or other.key.is_open for other in siblings)
        flow.weight = flow.share / rivals

    def _drop(self, flow: Flow) -> None:
        del flow.key.flows[flow.owner]
        siblings = self._groups[flow.owner]
        siblings.remove(flow)
        if not siblings:
            del self._groups[flow.owner]

    def _left(self, ticket: Ticket, flow: Flow) -> None:
        ticket.flow = None
        flow.key.waiting -= 1
        self.count -= 1
        if not flow.key.waiting:
            self.close(flow.key)
            del self.keys[flow.key]

    def validate(self, keys: list[KeyState]) -> None:
        """Assert the invariants of the class; `keys` are all keys of the provider."""
        self._queue.validate()
        flows = [flow for key in keys for flow in key.flows.values()]
        assert {flow.name for flow in flows} == {flow.name for flow in self._queue.items()}, "a flow is not queued"
        assert {flow.name for flow in flows} == {flow.name for group in self._groups.values() for flow in group}
        assert self.count == sum(len(flow.tickets) for flow in flows) == sum(key.waiting for key in keys)
        assert set(self.keys) == {key for key in keys if key.waiting}, "waiters are miscounted"
        assert self.ready == sum(key.is_open for key in keys), "open keys are miscounted"
        for key in keys:
            assert key.waiting or not key.is_open, f"{key.key} is open without waiters"
            assert not key.waiting or self._queue.is_open(key.lane) is key.is_open
            assert key.waiting == sum(len(flow.tickets) for flow in key.flows.values())
            for flow in key.flows.values():
                assert flow.tickets, f"flow {flow.name!r} is empty"
                assert all(t.flow is flow and t.lease is None and t.denied is None for t in flow.tickets.values())


@dataclass(slots=True, eq=False)
class Provider:
    """A provider: its slots, and the waiters for all of its models. Owned by the controller."""

    name: str
    slots: float = math.inf
    """The most requests that this process may have in flight; infinite without a slot bank."""
    in_flight: int = 0
    waiters: Waiters = field(default_factory=Waiters)
    accounts: dict[ProviderModel, Account] = field(default_factory=dict)
    rate_share: float = 1.0
    """This process's share of every limit per minute, as a fraction."""
    served: int = 0
    """Number of the last lease granted to one of its waiters."""
    is_short: bool = False
    """Whether a request had to wait for a slot since one was last free; maintained by `PressureWatch`."""

    @property
    def is_full(self) -> bool:
        """Whether every slot is in use."""
        return self.in_flight >= self.slots

    def pressing(self, now: float) -> int:
        """Return how many waiting requests more slots would admit at once, within their own limits."""
        return sum(account.pressing(now) for account in self.accounts.values())


@dataclass(slots=True, eq=False)
class Account:
    """One model at one provider: its static cap over all domains and aliases, its cooldown, its breaker."""

    name: ProviderModel
    provider: Provider
    breaker: Breaker
    cap: int = 0
    caps: dict[str, int] = field(default_factory=dict)
    caps_differ: bool = False
    in_flight: int = 0
    blocked_until: float = 0.0
    keys: dict[Domain, KeyState] = field(default_factory=dict)
    due_at: float = math.inf
    """When the controller looks at it next on its own."""
    rates: AccountRates | None = None
    """The limits per minute that apply to it; None if there are none."""
    learner: RateLearner | None = None
    """Infers a limit per minute from refusals that state none; None before the first such refusal."""

    def admits(self, now: float) -> bool:
        """Return whether its own rules admit one more request."""
        breaker = self.breaker
        return (
            self.in_flight < self.cap
            and self.blocked_until <= now
            and (breaker.is_closed or breaker.admits(now))
            and (self.rates is None or self.rates.opens_at(now) <= now)
        )

    def pressure(self, now: float) -> Pressure | None:
        """Return what holds up all of its requests now, in every domain."""
        if self.in_flight >= self.cap:
            return Pressure(PressureReason.AGGREGATE_CAP)
        if self.blocked_until > now:
            return Pressure(PressureReason.COOLDOWN, self.blocked_until)
        if not (self.breaker.is_closed or self.breaker.admits(now)):
            return Pressure(PressureReason.BREAKER_OPEN, self.breaker.until if self.breaker.until > now else None)
        if self.rates is not None and (opens_at := self.rates.opens_at(now)) > now:
            return Pressure(REASONS[self.rates.binding], opens_at)
        return None

    def pressing(self, now: float) -> int:
        """Return how many of its waiting requests are held up only by the provider's slots."""
        if not self.admits(now):
            return 0
        room = 1 if not self.breaker.is_closed else self.cap - self.in_flight
        return min(room, sum(min(key.waiting, max(0, key.law.limit - key.in_flight)) for key in self.keys.values()))


@dataclass(slots=True, eq=False)
class KeyState:
    """One request key: its adaptive limit, and the requests in flight and waiting under it."""

    key: RequestKey
    account: Account
    law: LimitLaw
    lane: str
    in_flight: int = 0
    waiting: int = 0
    is_open: bool = False
    """Whether its waiters may be selected; never without waiters."""
    queued_since: float = 0.0
    queue_told_at: float = -math.inf
    is_queue_told: bool = False
    """Whether `RequestQueueFormed` was emitted, so that the queue's end is reported, too."""
    flows: dict[str, Flow] = field(default_factory=dict)
    last_outcome: str = ""
    rate_limits: int = 0
    """Consecutive rate-limit refusals."""
    answered: int = 0
    rate_limited: int = 0
    peak_in_flight: int = 0
    peak_waiting: int = 0
    told: Pressure | None = None

    def admits(self, now: float) -> bool:
        """Return whether one more request may be sent, provided that the provider has a free slot."""
        return self.in_flight < self.law.limit and self.account.admits(now)

    def pressure(self, now: float) -> Pressure | None:
        """Return what a request would have to wait for now."""
        account = self.account
        pressure = account.pressure(now)
        if pressure is not None:
            return pressure
        if self.waiting:
            return Pressure(PressureReason.WAITERS)
        if self.in_flight >= self.law.limit:
            return Pressure(PressureReason.RESOURCE_LIMIT)
        return Pressure(PressureReason.NO_SLOTS) if account.provider.is_full else None

    def status(self, now: float) -> RequestStatus:
        """Return its status; the models that it serves and denied retries are not known here and stay empty."""
        account, pressure = self.account, self.pressure(now)
        opens_at = pressure.until if pressure is not None and pressure.until is not None else now
        return RequestStatus(
            *account.name,
            domain=self.key.domain.value,
            models=(),
            cap=min(self.law.max_limit, account.cap),
            limit=self.law.limit,
            in_flight=self.in_flight,
            waiters=self.waiting,
            ceiling=self.law.ceiling,
            cooldown_s=max(0.0, account.blocked_until - now, opens_at - now),
            breaker=account.breaker.state(now).value,
            pressure=None if pressure is None else pressure.reason.value,
            consecutive_rate_limits=self.rate_limits,
            last_outcome=self.last_outcome,
            answered=self.answered,
            rate_limited=self.rate_limited,
            peak_in_flight=self.peak_in_flight,
            peak_waiters=self.peak_waiting,
            rates=() if account.rates is None else account.rates.statuses(account.learner, now),
        )


class Accounts:
    """Every provider, model and request key that the controller knows. Pure; owned by the controller.

    Invariants (`validate`): a cap is the smallest that an alias asks for, or 0 without aliases; an account without
    aliases is kept only while it has requests in flight; counts of requests in flight add up on every level.
    """

    __slots__ = ("_breaker", "_make_law", "by_name", "keys", "providers", "scopes")

    def __init__(self, make_law: Callable[[int], LimitLaw], breaker: BreakerRule) -> None:
        self._make_law = make_law
        self._breaker = breaker
        self.providers: dict[str, Provider] = {}
        self.by_name: dict[ProviderModel, Account] = {}
        self.keys: dict[RequestKey, KeyState] = {}
        self.scopes = RateScopes()

    def provider(self, name: str) -> Provider:
        """Return the provider with this name, creating it if needed."""
        found = self.providers.get(name)
        if found is None:
            found = self.providers[name] = Provider(name)
        return found

    def account(self, name: ProviderModel) -> Account:
        """Return the account with this name, creating it if needed."""
        found = self.by_name.get(name)
        if found is None:
            provider = self.provider(name.provider)
            found = self.by_name[name] = Account(name, provider, Breaker(self._breaker))
            provider.accounts[name] = found
        return found

    def key(self, key: RequestKey) -> KeyState | None:
        """Return the state of a key, with a fresh limit on first use; None if its model is not registered."""
        found = self.keys.get(key)
        if found is not None:
            return found if found.account.caps else None
        account = self.by_name.get(key.account)
        if account is None or not account.caps:
            return None
        state = KeyState(key, account, self._make_law(account.cap), str(key))
        self.keys[key] = account.keys[key.domain] = state
        return state

    def forget(self, account: Account, now: float) -> None:
        """Drop an account with no aliases and no requests in flight, and its provider if that has no account left."""
        self.scopes.leave(account, now)
        for key in account.keys.values():
            del self.keys[key.key]
        del self.by_name[account.name]
        provider = account.provider
        del provider.accounts[account.name]
        if not provider.waiters.count:
            # The queue remembers every key that ever waited in it: replace it, or it would grow as models come and go.
            provider.waiters = Waiters()
        if not provider.accounts and provider.slots == math.inf:
            del self.providers[provider.name]

    # Views.

    def pressure(self, key: RequestKey, now: float) -> Pressure | None:
        """Return what a request of `key` would have to wait for; None if nothing, or if its model is not registered."""
        state = self.keys.get(key)
        if state is not None:
            return state.pressure(now)
        account = self.by_name.get(key.account)
        if account is None:
            return None
        return account.pressure(now) or (Pressure(PressureReason.NO_SLOTS) if account.provider.is_full else None)

    def statuses(self, now: float) -> list[RequestStatus]:
        """Return the status of every known request key."""
        return [key.status(now) for key in self.keys.values()]

    def pressing(self, provider: str, now: float) -> int:
        """Return how many waiters more slots of a provider would admit at once."""
        state = self.providers.get(provider)
        return 0 if state is None else state.pressing(now)

    def in_flight(self, provider: str) -> int:
        """Return how many requests are in flight at a provider."""
        state = self.providers.get(provider)
        return 0 if state is None else state.in_flight

    def waiting(self) -> int:
        """Return how many requests wait."""
        return sum(provider.waiters.count for provider in self.providers.values())

    def validate(self) -> None:
        """Assert the invariants of the class."""
        for provider in self.providers.values():
            accounts = provider.accounts.values()
            assert provider.in_flight == sum(account.in_flight for account in accounts), f"{provider.name}: in flight"
            provider.waiters.validate([key for account in accounts for key in account.keys.values()])
        self.scopes.validate(iter(self.by_name.values()))
        for account in self.by_name.values():
            account.breaker.validate()
            assert account.cap == min(account.caps.values(), default=0), f"{account.name}: cap"
            assert account.caps or account.in_flight, f"{account.name} is kept without need"
            assert account.in_flight == sum(key.in_flight for key in account.keys.values()), (
                f"{account.name}: in flight"
            )
        for key in self.keys.values():
            key.law.validate()
            assert key.account is self.by_name[key.key.account], f"{key.key} has another account"
