"""Read-only views of the controller's state, made only when somebody asks."""

from __future__ import annotations

import math
from types import MappingProxyType

from headgate.admission.accounts import Account, KeyState, Provider
from headgate.admission.items import AccountSnapshot, KeySnapshot


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
