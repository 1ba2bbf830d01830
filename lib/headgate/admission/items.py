"""What asks for admission, the answers to it, and the right to have one request in flight."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from headgate.admission.laws import Admitted
from headgate.core import Model

if TYPE_CHECKING:
    from headgate.admission.accounts import KeyState
    from headgate.admission.rates import Bucket, Need


_DEFAULT_PORTS = {"http": 80, "https": 443}


class Domain(StrEnum):
    """The kind of a request to a model; each has its own adaptive limit below their common cap."""

    CHAT = "chat"
    EMBEDDING = "embedding"
    IMAGE = "image"
    HEALTHCHECK = "healthcheck"


class ProviderModel(NamedTuple):
    """One model at one provider, as the provider counts it. The static cap over all domains and aliases belongs to it.

    A named tuple, like `RequestKey`: every request is looked up by them, and their hash is computed in C.

    Attributes:
        provider: canonical address, plus a mark of the account if a key is used; see `provider_of`.
        model: the provider's name for it.
    """

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider} {self.model}"


class RequestKey(NamedTuple):
    """A model at a provider and a domain: what one adaptive limit applies to."""

    account: ProviderModel
    domain: Domain = Domain.CHAT

    def __str__(self) -> str:
        return f"{self.account} {self.domain}"


def provider_of(model: Model) -> str:
    """Return the canonical name of the provider that answers for `model`.

    Quota belongs to an account, not to a model's name in a roster: equal addresses in different spellings are one
    provider, and two keys at one address are two. The key itself cannot be derived from the name.
    """
    parts = urlsplit(model.endpoint)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    port = parts.port if parts.port not in (None, _DEFAULT_PORTS.get(parts.scheme)) else None
    address = f"{parts.scheme.lower()}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
    if not model.api_key:
        return address
    account = hashlib.blake2b(model.api_key.reveal().encode(), digest_size=4, person=b"headgate").hexdigest()
    return f"{address}#{account}"


def request_key(model: Model, domain: Domain = Domain.CHAT) -> RequestKey:
    """Return the key under which requests of `model` are admitted."""
    return RequestKey(ProviderModel(provider_of(model), model.request_name), domain)


class Correlation(NamedTuple):
    """Which request of which task an attempt belongs to; part of every event about it.

    A named tuple, like `RequestItem`: one is made per request, and a frozen dataclass takes three times as long.

    Attributes:
        request_id: the same for all attempts of one request.
        attempt: 1 for the first attempt.
        task_id: task that the request is a step of; empty outside a campaign.
        trace_id: W3C trace id of the task.
    """

    request_id: str = ""
    attempt: int = 1
    task_id: str = ""
    trace_id: str = ""


NO_CORRELATION: Final = Correlation()


class RequestItem(NamedTuple):
    """One attempt that asks to be sent.

    Attributes:
        key: the limit that applies to it.
        group: waiting requests share by weight between groups; within one group, first in, first out.
        weight: share of the group, > 0.
        deadline: monotonic seconds at which it stops waiting for admission; None waits for as long as it takes.
        correlation: identifies it in events.
        input_tokens: estimated tokens of its prompt; 0 for the usual number.
        output_tokens: tokens to reserve for its reply; 0 for the usual number.
    """

    key: RequestKey
    group: str = ""
    weight: float = 1.0
    deadline: float | None = None
    correlation: Correlation = NO_CORRELATION
    input_tokens: int = 0
    output_tokens: int = 0


class DenyReason(StrEnum):
    """Why a request was not admitted. Values are DataDesigner's where it has one."""

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
    """The answer to a request that was not admitted.

    Attributes:
        retry_at: monotonic seconds at which asking again can help; None if only a release or a change can help.
        detail: the values behind it, in words.
    """

    reason: DenyReason
    retry_at: float | None = None
    detail: str = ""


class PressureReason(StrEnum):
    """What keeps a request key from being admitted now, in the order of checking (DataDesigner's)."""

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
    """Why a request of a key would have to wait now; `until` is when that ends on its own, None if it does not."""

    reason: PressureReason
    until: float | None = None


@dataclass(frozen=True, slots=True)
class PressureChanged:
    """The pressure on a key has changed; None means that a request would now be admitted at once."""

    key: RequestKey
    pressure: Pressure | None


class RequestLease:
    """The right to send one attempt. Only the controller makes and changes it; all others only read it.

    A plain slotted class because one is made per request: a frozen dataclass takes three times as long.

    Attributes:
        number: unique in its generation, and ascending: smaller numbers were granted before.
        generation: the controller's lifetime in which it was granted.
        acquired_at: monotonic seconds.
        admitted: what the limit law remembers of the attempt.
        key: the controller's own record of the request key.
        taken: what it took from which buckets; None if no limit per minute applies.
        charged: the unit in which its group was charged for its turn; 0 for the request itself.
    """

    __slots__ = ("acquired_at", "admitted", "charged", "generation", "item", "key", "number", "taken")

    def __init__(
        self, number: int, generation: int, item: RequestItem, now: float, admitted: Admitted, key: KeyState
    ) -> None:
        self.number = number
        self.generation = generation
        self.item = item
        self.acquired_at = now
        self.admitted = admitted
        self.key = key
        self.taken: tuple[Need, tuple[Bucket, ...]] | None = None
        self.charged = 0

    @property
    def lease_id(self) -> str:
        """Its name in events and logs."""
        return f"r-{self.generation}-{self.number}"

    def give_back(self, now: float) -> None:
        """Return everything that it took from limits per minute, as its attempt was never sent."""
        if self.taken is not None:
            need, buckets = self.taken
            for bucket in buckets:
                bucket.settle(need[bucket.unit], 0.0, now)
            self.taken = (0.0, 0.0, 0.0, 0.0), buckets

    def __repr__(self) -> str:
        return f"RequestLease({self.lease_id}, key={self.item.key})"


class Ticket:
    """A place in the queue. Made by the waiter or by the controller; only the controller changes it.

    It waits while `flow` is set; afterwards either `lease` or `denied` is set, never both.

    Attributes:
        number: order of arrival.
        since: monotonic seconds of arrival.
        denied: why it was not admitted.
        waker: the waiter's own future, to be completed on an answer; the controller never touches it.
    """

    __slots__ = ("denied", "flow", "item", "lease", "number", "since", "waker")

    def __init__(self, item: RequestItem) -> None:
        self.item = item
        self.number = 0
        self.since = 0.0
        self.flow: Flow | None = None
        self.lease: RequestLease | None = None
        self.denied: Denied | None = None
        self.waker: asyncio.Future[None] | None = None


class Flow:
    """The requests of one group that wait for one key; to the fair queue, one item that forms its own group.

    The fair queue holds the flow once, however many requests wait in it; so a waiter joins and leaves in O(1).

    Attributes:
        name: of the flow; also its group in the fair queue.
        share: weight of the group.
        weight: this flow's part of it.
        tickets: the waiting tickets, in order of arrival.
    """

    __slots__ = ("group", "key", "lane", "name", "owner", "priority", "share", "tickets", "weight")

    def __init__(self, owner: str, key: KeyState, weight: float) -> None:
        self.owner = owner
        self.name = f"{owner}\n{key.lane}"
        self.group = self.name
        self.share = weight
        self.lane = key.lane
        self.key = key
        self.weight = weight
        self.priority = 0
        self.tickets: OrderedDict[int, Ticket] = OrderedDict()
