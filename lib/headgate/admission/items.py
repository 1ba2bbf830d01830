"""What asks for admission, and what it is answered."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
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


class ProviderModel(NamedTuple):
    """One model at one provider, as the provider counts it. Carries the static cap over all domains and aliases.

    A named tuple, as is `RequestKey`: every request is looked up by them, and their hash is made in C.

    Attributes:
        provider: canonical address, and which account where a key is used; see `provider_of`.
        model: name that the provider knows it by.
    """

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider} {self.model}"


class RequestKey(NamedTuple):
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
    parts = urlsplit(model.endpoint)
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
        input_tokens: of its prompt, estimated; 0 for as many as usual.
        output_tokens: of its reply, as many as are to be kept free for it; 0 for as many as usual.
    """

    key: RequestKey
    group: str = ""
    weight: float = 1.0
    deadline: float | None = None
    correlation: Correlation = NO_CORRELATION
    input_tokens: int = 0
    output_tokens: int = 0


class DenyReason(StrEnum):
    """Why a request was not admitted. The values are those of DataDesigner where it has one."""

    NO_CAPACITY = "no_capacity"
    COOLDOWN = "cooldown"
    BREAKER_OPEN = "breaker_open"
    NO_SLOTS = "no_slots"
    RATE = "rate"
    TOO_LARGE = "too_large"
    QUEUED_WAITERS_AHEAD = "queued_waiters_ahead"
    QUEUE_TIMEOUT = "queue_timeout"
    CANCELLATION = "cancellation"
    SHUTDOWN = "shutdown"
    UNREGISTERED = "hard_policy_denial"


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
    REQUESTS_PER_MINUTE = "requests_per_minute"
    INPUT_TOKENS_PER_MINUTE = "input_tokens_per_minute"
    OUTPUT_TOKENS_PER_MINUTE = "output_tokens_per_minute"
    TOKENS_PER_MINUTE = "tokens_per_minute"
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
