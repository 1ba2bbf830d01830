"""What asks for admission, and what it is answered."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from headgate.core import Model

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Domain(StrEnum):
    """What a request asks a model for; each has its own adaptive limit below their common cap."""

    CHAT = "chat"
    EMBEDDING = "embedding"
    IMAGE = "image"
    HEALTHCHECK = "healthcheck"


@dataclass(frozen=True, slots=True)
class ProviderModel:
    """One model at one provider, as the provider counts it. Carries the static cap over all domains and aliases.

    Attributes:
        provider: canonical address, and which account where a key is used; see `provider_of`.
        model: name that the provider knows it by.
    """

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider} {self.model}"


@dataclass(frozen=True, slots=True)
class RequestKey:
    """What one adaptive limit belongs to."""

    account: ProviderModel
    domain: Domain = Domain.CHAT

    def __str__(self) -> str:
        return f"{self.account} {self.domain}"


def provider_of(model: Model) -> str:
    """Return the canonical name of the provider that answers for `model`.

    Quota belongs to an account, not to the name that people give a model: equal addresses in other spellings are one
    provider, and two keys at one address are two. The key itself cannot be read from the name.
    """
    parts = urlsplit(model.base_url)
    host = (parts.hostname or "").lower()
    port = parts.port if parts.port not in (None, _DEFAULT_PORTS.get(parts.scheme)) else None
    address = f"{parts.scheme.lower()}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
    if not model.api_key:
        return address
    account = hashlib.blake2b(model.api_key.reveal().encode(), digest_size=4, person=b"headgate").hexdigest()
    return f"{address}#{account}"


def request_key(model: Model, domain: Domain = Domain.CHAT) -> RequestKey:
    """Return what a request of `model` is admitted under."""
    return RequestKey(ProviderModel(provider_of(model), model.request_name), domain)


class Correlation(NamedTuple):
    """Which request of which task an attempt belongs to; stamped on every event about it.

    A named tuple, as is `RequestItem`: one is made per request, and a frozen dataclass takes three times as long.

    Attributes:
        request_id: the same for all attempts of one request.
        attempt: 1 for the first attempt.
        task_id: task that the request is a step of; empty outside of a campaign.
        trace_id: W3C trace id of the task.
    """

    request_id: str = ""
    attempt: int = 1
    task_id: str = ""
    trace_id: str = ""


NO_CORRELATION: Final = Correlation()


class RequestItem(NamedTuple):
    """One attempt that wants to be sent.

    Attributes:
        key: which limit it falls under.
        group: who shares with others by weight when requests wait; first in, first out inside one group.
        weight: share of the group, > 0.
        deadline: monotonic seconds at which it stops waiting for admission; None waits for as long as it takes.
        correlation: what its events are stamped with.
    """

    key: RequestKey
    group: str = ""
    weight: float = 1.0
    deadline: float | None = None
    correlation: Correlation = NO_CORRELATION


class DenyReason(StrEnum):
    """Why a request was not admitted. The values are those of DataDesigner where it has one."""

    NO_CAPACITY = "no_capacity"
    COOLDOWN = "cooldown"
    BREAKER_OPEN = "breaker_open"
    NO_SLOTS = "no_slots"
    QUEUED_WAITERS_AHEAD = "queued_waiters_ahead"
    QUEUE_TIMEOUT = "queue_timeout"
    CANCELLATION = "cancellation"
    SHUTDOWN = "shutdown"
    UNREGISTERED = "hard_policy_denial"
    NOT_HELD = "lease_not_held"


@dataclass(frozen=True, slots=True)
class Denied:
    """No admission.

    Attributes:
        reason: which rule refused it.
        retry_at: monotonic seconds at which asking again can help; None where nothing but a release or a change does.
        detail: the values behind it, in words.
    """

    reason: DenyReason
    retry_at: float | None = None
    detail: str = ""


class PressureReason(StrEnum):
    """What keeps a request key from being admitted now, in the order in which it is looked for (DataDesigner's)."""

    AGGREGATE_CAP = "provider_model_aggregate_cap"
    COOLDOWN = "cooldown"
    BREAKER_OPEN = "breaker_open"
    WAITERS = "waiters"
    RESOURCE_LIMIT = "resource_limit"
    NO_SLOTS = "no_slots"


@dataclass(frozen=True, slots=True)
class Pressure:
    """A request of this key would have to wait now; `until` is when that ends by itself, None where it does not."""

    reason: PressureReason
    until: float | None = None


@dataclass(frozen=True, slots=True)
class PressureChanged:
    """The pressure on a key is another one than before; None: a request would be admitted at once."""

    key: RequestKey
    pressure: Pressure | None


@dataclass(frozen=True, slots=True)
class KeySnapshot:
    """One request key as it is now.

    Attributes:
        captured_at: monotonic seconds.
        key: whose limit it is.
        cap: what the limit may never exceed.
        limit: requests that may be in flight now.
        in_flight: requests that are; those whose slot is kept through back-off included.
        waiters: requests that wait for admission.
        blocked_until: end of the cooldown of the provider-model, in monotonic seconds; 0.0 when there never was one.
        cooldown_remaining_s: the same as a duration.
        ceiling: limit at which the provider last said no; None when it never did.
        consecutive_rate_limits: refusals since the last success.
        last_outcome: how the last attempt ended; empty before the first.
        breaker: closed, open or half_open.
        peak_in_flight: most that ever were in flight at once.
        peak_waiters: most that ever waited at once.
        pressure: what holds a request now; empty when it would be admitted.
    """

    captured_at: float
    key: RequestKey
    cap: int
    limit: int
    in_flight: int
    waiters: int
    blocked_until: float
    cooldown_remaining_s: float
    ceiling: int | None
    consecutive_rate_limits: int
    last_outcome: str
    breaker: str
    peak_in_flight: int
    peak_waiters: int
    pressure: str


@dataclass(frozen=True, slots=True)
class AccountSnapshot:
    """A model at a provider as it is now, over all its domains and aliases.

    Attributes:
        captured_at: monotonic seconds.
        provider: canonical name of the provider.
        model: the name that it knows the model by.
        cap: static cap in force, the smallest of `caps`; 0 when no alias is registered any more.
        caps: what each alias asked for.
        in_flight: requests in flight.
        waiters: requests that wait.
        blocked_until: end of its cooldown in monotonic seconds; 0.0 when there never was one.
        breaker: closed, open or half_open.
        limits: adaptive limit of each domain that was ever asked for.
        provider_slots: what this process may have in flight at the provider; None when no slot bank bounds it.
        provider_in_flight: what it has.
    """

    captured_at: float
    provider: str
    model: str
    cap: int
    in_flight: int
    waiters: int
    blocked_until: float
    breaker: str
    provider_slots: int | None
    provider_in_flight: int
    caps: Mapping[str, int] = field(default_factory=lambda: MappingProxyType[str, int]({}))
    limits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType[str, int]({}))
