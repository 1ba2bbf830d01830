"""The right to have one request in flight, and a place in the queue for it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from headgate.admission.items import Denied, RequestItem
from headgate.admission.laws import Admitted

if TYPE_CHECKING:
    from headgate.admission.accounts import KeyState
    from headgate.admission.rates import Bucket, Need


class RequestLease:
    """The right to send one attempt. Made and changed by the controller alone; everybody else reads.

    A plain slotted class because one is made per request: a frozen dataclass takes three times as long.

    Attributes:
        number: unique in its generation; counts up, so that any smaller number was granted before.
        generation: which life of the controller granted it.
        acquired_at: monotonic seconds.
        admitted: what the limit law remembers of the attempt.
        key: the controller's own record of the request key.
        taken: what it took of which buckets; None where no limit per minute holds.
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
        """Give back all that it took of limits per minute: its attempt was never sent."""
        if self.taken is not None:
            need, buckets = self.taken
            for bucket in buckets:
                bucket.settle(need[bucket.unit], 0.0, now)
            self.taken = (0.0, 0.0, 0.0, 0.0), buckets

    def __repr__(self) -> str:
        return f"RequestLease({self.lease_id}, key={self.item.key})"


class Ticket:
    """A place in the queue. Made by whoever waits or by the controller; changed by the controller alone.

    It waits while `flow` is set; then either `lease` or `denied` is, and never both.

    Attributes:
        number: order of arrival.
        since: monotonic seconds of arrival.
        denied: why it was not.
        waker: what the owner of the waiter put here to be told by; the controller never looks at it.
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
    """The requests of one group that wait for one key: what the fair queue sees as one item of one group.

    The fair queue holds the flow once, however many requests wait in it; so a waiter joins and leaves in O(1).

    Attributes:
        name: of the flow; what the fair queue calls its group.
        share: weight of the group.
        weight: part of it that falls to this flow.
        tickets: who waits, in order of arrival.
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
