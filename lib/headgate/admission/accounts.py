"""What the controller knows of each provider, of each model there, and of each of its request keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate.admission.breaker import Breaker, BreakerRule
from headgate.admission.items import Domain, Pressure, PressureReason, ProviderModel, RequestKey
from headgate.admission.laws import LimitLaw
from headgate.admission.leases import Flow
from headgate.admission.waiters import Waiters


@dataclass(slots=True, eq=False)
class Provider:
    """A provider: its slots, and everybody who waits for one of its models. Owned by the controller."""

    name: str
    slots: float = math.inf
    """What this process may have in flight; infinite where no slot bank says otherwise."""
    in_flight: int = 0
    waiters: Waiters = field(default_factory=Waiters)
    accounts: dict[ProviderModel, Account] = field(default_factory=dict)
    is_short: bool = False
    """Whether somebody had to wait for a slot since one was last free; kept by who tells of pressure."""

    @property
    def is_full(self) -> bool:
        """Whether every slot is in use."""
        return self.in_flight >= self.slots


@dataclass(slots=True, eq=False)
class Account:
    """One model at one provider: the static cap over its domains and aliases, its cooldown, its breaker."""

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
    """When the controller looks at it next without being asked."""

    def admits(self, now: float) -> bool:
        """Return whether its own rules let one more request of it pass."""
        breaker = self.breaker
        return self.in_flight < self.cap and self.blocked_until <= now and (breaker.is_closed or breaker.admits(now))

    def pressure(self, now: float) -> Pressure | None:
        """Return what holds every request of it now, whatever its domain."""
        if self.in_flight >= self.cap:
            return Pressure(PressureReason.AGGREGATE_CAP)
        if self.blocked_until > now:
            return Pressure(PressureReason.COOLDOWN, self.blocked_until)
        if self.breaker.admits(now):
            return None
        return Pressure(PressureReason.BREAKER_OPEN, self.breaker.until if self.breaker.until > now else None)


@dataclass(slots=True, eq=False)
class KeyState:
    """One request key: its adaptive limit and what is in flight and waits under it."""

    key: RequestKey
    account: Account
    law: LimitLaw
    lane: str
    in_flight: int = 0
    waiting: int = 0
    is_open: bool = False
    """Whether its waiters may be selected; only ever while it has some."""
    queued_since: float = 0.0
    queue_told_at: float = -math.inf
    is_queue_told: bool = False
    """Whether it was told that its queue formed, so that its end is told, too."""
    flows: dict[str, Flow] = field(default_factory=dict)
    last_outcome: str = ""
    rate_limits: int = 0
    peak_in_flight: int = 0
    peak_waiting: int = 0
    told: Pressure | None = None

    def admits(self, now: float) -> bool:
        """Return whether one more request of it may be sent, free slots of the provider provided."""
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


class Accounts:
    """Every provider, model and request key that the controller knows. Pure; owned by the controller.

    Invariants (`validate`): a cap is the smallest that an alias asks for, and 0 without aliases; an account without
    aliases is kept only while it has requests in flight; counts of what is in flight add up level by level.
    """

    __slots__ = ("_breaker", "_make_law", "by_name", "keys", "providers")

    def __init__(self, make_law: Callable[[int], LimitLaw], breaker: BreakerRule) -> None:
        self._make_law = make_law
        self._breaker = breaker
        self.providers: dict[str, Provider] = {}
        self.by_name: dict[ProviderModel, Account] = {}
        self.keys: dict[RequestKey, KeyState] = {}

    def provider(self, name: str) -> Provider:
        """Return the provider of a name, known or new."""
        found = self.providers.get(name)
        if found is None:
            found = self.providers[name] = Provider(name)
        return found

    def account(self, name: ProviderModel) -> Account:
        """Return the account of a name, known or new."""
        found = self.by_name.get(name)
        if found is None:
            provider = self.provider(name.provider)
            found = self.by_name[name] = Account(name, provider, Breaker(self._breaker))
            provider.accounts[name] = found
        return found

    def key(self, key: RequestKey) -> KeyState | None:
        """Return the state of a key, with a fresh limit at its first use; None where its model is not registered."""
        found = self.keys.get(key)
        if found is not None:
            return found if found.account.caps else None
        account = self.by_name.get(key.account)
        if account is None or not account.caps:
            return None
        state = KeyState(key, account, self._make_law(account.cap), str(key))
        self.keys[key] = account.keys[key.domain] = state
        return state

    def fresh_laws(self, make_law: Callable[[int], LimitLaw]) -> None:
        """Give every key a fresh limit of another law."""
        self._make_law = make_law
        for key in self.keys.values():
            key.law = make_law(key.law.max_limit)

    def forget(self, account: Account) -> None:
        """Drop an account that has neither aliases nor anything in flight, and a provider that has no account left."""
        for key in account.keys.values():
            del self.keys[key.key]
        del self.by_name[account.name]
        provider = account.provider
        del provider.accounts[account.name]
        if not provider.waiters.count:
            # The queue remembers every key that ever waited in it; where models come and go, that has an end here.
            provider.waiters = Waiters()
        if not provider.accounts and provider.slots == math.inf:
            del self.providers[provider.name]

    def validate(self) -> None:
        """Assert the invariants of the class."""
        for provider in self.providers.values():
            accounts = provider.accounts.values()
            assert provider.in_flight == sum(account.in_flight for account in accounts), f"{provider.name}: in flight"
            provider.waiters.validate([key for account in accounts for key in account.keys.values()])
        for account in self.by_name.values():
            account.breaker.validate()
            assert account.cap == min(account.caps.values(), default=0), f"{account.name}: cap"
            assert account.caps or account.in_flight, f"{account.name} is kept for nothing"
            assert account.in_flight == sum(key.in_flight for key in account.keys.values()), (
                f"{account.name}: in flight"
            )
        for key in self.keys.values():
            key.law.validate()
            assert key.account is self.by_name[key.key.account], f"{key.key} has another account"
