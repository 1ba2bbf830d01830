"""Read-only views of the controller's state, made only when somebody asks."""

from __future__ import annotations

import math
from types import MappingProxyType

from headgate.admission.accounts import Account, Accounts, KeyState, Provider
from headgate.admission.items import AccountSnapshot, KeySnapshot, Pressure, PressureReason, ProviderModel, RequestKey


def snapshot_of_key(key: KeyState, now: float) -> KeySnapshot:
    """Return what one request key is like at `now`."""
    account = key.account
    pressure = key.pressure(now)
    return KeySnapshot(
        captured_at=now,
        key=key.key,
        cap=min(key.law.max_limit, account.cap),
        limit=key.law.limit,
        in_flight=key.in_flight,
        waiters=key.waiting,
        blocked_until=account.blocked_until,
        cooldown_remaining_s=max(0.0, account.blocked_until - now),
        ceiling=key.law.ceiling,
        consecutive_rate_limits=key.rate_limits,
        last_outcome=key.last_outcome,
        breaker=account.breaker.state(now).value,
        peak_in_flight=key.peak_in_flight,
        peak_waiters=key.peak_waiting,
        pressure=pressure.reason.value if pressure else "",
    )


def snapshot_of_account(account: Account, now: float) -> AccountSnapshot:
    """Return what a model at a provider is like at `now`."""
    return AccountSnapshot(
        captured_at=now,
        provider=account.name.provider,
        model=account.name.model,
        cap=account.cap,
        caps=MappingProxyType(dict(account.caps)),
        in_flight=account.in_flight,
        waiters=sum(key.waiting for key in account.keys.values()),
        blocked_until=account.blocked_until,
        breaker=account.breaker.state(now).value,
        limits=MappingProxyType({domain.value: key.law.limit for domain, key in account.keys.items()}),
        provider_slots=slots_of(account.provider),
        provider_in_flight=account.provider.in_flight,
    )


def slots_of(provider: Provider) -> int | None:
    """Return the slots of a provider; None where nothing bounds them."""
    return None if provider.slots == math.inf else int(provider.slots)


def pressing_on(provider: Provider, now: float) -> int:
    """Return how many waiting requests more slots of the provider would let go at once, their own limits kept."""
    return sum(_pressing(account, now) for account in provider.accounts.values())


def _pressing(account: Account, now: float) -> int:
    if not account.admits(now):
        return 0
    room = 1 if not account.breaker.is_closed else account.cap - account.in_flight
    return min(room, sum(min(key.waiting, max(0, key.law.limit - key.in_flight)) for key in account.keys.values()))


class AdmissionViews:
    """What others may see of the controller. Read-only, and nothing is made before somebody asks."""

    __slots__ = ("_accounts",)

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def pressure(self, key: RequestKey, now: float) -> Pressure | None:
        """Return what a request of `key` would have to wait for; None if nothing, or if its model is not registered."""
        state = self._accounts.keys.get(key)
        if state is not None:
            return state.pressure(now)
        account = self._accounts.by_name.get(key.account)
        if account is None:
            return None
        return account.pressure(now) or (Pressure(PressureReason.NO_SLOTS) if account.provider.is_full else None)

    def snapshot(self, key: RequestKey, now: float) -> KeySnapshot | None:
        """Return one key as it is now; None when no request of it was ever made."""
        state = self._accounts.keys.get(key)
        return None if state is None else snapshot_of_key(state, now)

    def snapshots(self, now: float) -> list[KeySnapshot]:
        """Return every key that was ever asked for."""
        return [snapshot_of_key(key, now) for key in self._accounts.keys.values()]

    def account_snapshot(self, name: ProviderModel, now: float) -> AccountSnapshot | None:
        """Return a model at a provider as it is now; None when it is not registered."""
        account = self._accounts.by_name.get(name)
        return None if account is None else snapshot_of_account(account, now)

    def account_snapshots(self, now: float) -> list[AccountSnapshot]:
        """Return every registered model."""
        return [snapshot_of_account(account, now) for account in self._accounts.by_name.values()]

    def pressing(self, provider: str, now: float) -> int:
        """Return how many waiters more slots of a provider would let go at once."""
        state = self._accounts.providers.get(provider)
        return 0 if state is None else pressing_on(state, now)

    def in_flight(self, provider: str) -> int:
        """Return how many requests are in flight at a provider."""
        state = self._accounts.providers.get(provider)
        return 0 if state is None else state.in_flight

    def waiting(self) -> int:
        """Return how many requests wait."""
        return sum(provider.waiters.count for provider in self._accounts.providers.values())
