"""From snapshots of the admission to the status of a campaign."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from headgate.admission import AccountSnapshot, Domain, KeySnapshot, Pressure, ProviderModel, RequestKey
from headgate.core.status import RequestStatus


def request_statuses(
    accounts: Sequence[AccountSnapshot],
    keys: Iterable[KeySnapshot],
    aliases: Mapping[ProviderModel, tuple[str, ...]],
    retries_denied: Mapping[ProviderModel, int],
    pressure: Callable[[RequestKey], Pressure | None],
    now: float,
) -> tuple[RequestStatus, ...]:
    """Return every request key that was asked, and one for each model that may be and was not yet."""
    by_account: dict[ProviderModel, list[KeySnapshot]] = {}
    for key in keys:
        by_account.setdefault(key.key.account, []).append(key)
    found = []
    for account in accounts:
        name = ProviderModel(account.provider, account.model)
        models, denied = aliases.get(name, ()), retries_denied.get(name, 0)
        asked = by_account.get(name)
        if asked is None:
            found.append(_never_asked(account, models, denied))
        else:
            found += [_asked(key, models, denied, pressure(key.key), now) for key in asked]
    return tuple(found)


def _asked(
    key: KeySnapshot, models: tuple[str, ...], denied: int, pressure: Pressure | None, now: float
) -> RequestStatus:
    opens_at = pressure.until if pressure is not None and pressure.until is not None else now
    return RequestStatus(
        provider=key.key.account.provider,
        model=key.key.account.model,
        domain=key.key.domain.value,
        models=models,
        cap=key.cap,
        limit=key.limit,
        in_flight=key.in_flight,
        waiters=key.waiters,
        ceiling=key.ceiling,
        cooldown_s=max(0.0, key.blocked_until - now, opens_at - now),
        breaker=key.breaker,
        pressure=key.pressure or None,
        consecutive_rate_limits=key.consecutive_rate_limits,
        last_outcome=key.last_outcome,
        retries_denied=denied,
        peak_in_flight=key.peak_in_flight,
        peak_waiters=key.peak_waiters,
    )


def _never_asked(account: AccountSnapshot, models: tuple[str, ...], denied: int) -> RequestStatus:
    return RequestStatus(
        provider=account.provider,
        model=account.model,
        domain=Domain.CHAT.value,
        models=models,
        cap=account.cap,
        limit=account.cap,
        in_flight=0,
        waiters=0,
        ceiling=None,
        cooldown_s=0.0,
        breaker=account.breaker,
        pressure=None,
        consecutive_rate_limits=0,
        last_outcome="",
        retries_denied=denied,
    )
