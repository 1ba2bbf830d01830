"""Whoever waits for a provider: weighted fair between groups, first come first served inside one, never polled."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from headgate.admission.leases import Flow, Ticket
from headgate.scheduling import FairQueue, Selection

if TYPE_CHECKING:
    from headgate.admission.accounts import KeyState


class Waiters:
    """The waiters of one provider. Pure; owned by the controller.

    One fair queue, whose lanes are the request keys and whose items are flows (a group in a key): groups share a
    provider's slots, and a model's cap over its domains, by weight, and a key that admits nothing holds up no other. A
    group that waits in several open keys has one share, divided among them.

    Invariants (`validate`): a flow is in the queue exactly while somebody waits in it; `count` is the sum over flows;
    `ready` is how many keys are open, each of them with waiters; `keys` are those with waiters.
    """

    __slots__ = ("_groups", "_queue", "count", "keys", "ready")

    def __init__(self) -> None:
        self._queue: FairQueue[Flow] = FairQueue(id_of=attrgetter("name"), lane_of=attrgetter("lane"))
        self._groups: dict[str, list[Flow]] = {}
        self.keys: dict[KeyState, None] = {}
        self.count = 0
        self.ready = 0

    def add(self, ticket: Ticket, key: KeyState) -> None:
        """Let a ticket wait; the first waiter of a key finds it closed. O(log flows)."""
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
        """Let a ticket wait no longer, without having been served. O(log flows)."""
        flow = ticket.flow
        if flow is None:
            return
        del flow.tickets[ticket.number]
        if not flow.tickets:
            self._queue.discard(flow.name)
            self._drop(flow)
        self._left(ticket, flow)

    def select(self) -> Selection[Flow] | None:
        """Return the flow whose turn it is among those of open keys; changes nothing."""
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
        """Pass over all waiters of a key until it is opened."""
        if key.is_open:
            key.is_open = False
            self.ready -= 1
            self._queue.close_lane(key.lane)

    def open(self, key: KeyState) -> None:
        """Let the waiters of a key, which has some, have their turn."""
        if not key.is_open:
            key.is_open = True
            self.ready += 1
            self._queue.open_lane(key.lane)

    def _weigh(self, flow: Flow) -> None:
        """Give a flow its part of its group's weight, for its next turn."""
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
        assert set(self.keys) == {key for key in keys if key.waiting}, "who waits is miscounted"
        assert self.ready == sum(key.is_open for key in keys), "open keys are miscounted"
        for key in keys:
            assert key.waiting or not key.is_open, f"{key.key} is open for nobody"
            assert not key.waiting or self._queue.is_open(key.lane) is key.is_open
            assert key.waiting == sum(len(flow.tickets) for flow in key.flows.values())
            for flow in key.flows.values():
                assert flow.tickets, f"flow {flow.name!r} is empty"
                assert all(t.flow is flow and t.lease is None and t.denied is None for t in flow.tickets.values())
