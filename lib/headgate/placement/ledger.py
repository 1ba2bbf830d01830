"""The placement ledger: decides which request gets which group. Reports in, commands out; no clock, nothing awaited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType

from headgate.core import ReleaseOutcome, events
from headgate.placement.backfill import Backfill, PoolUsage, usage
from headgate.placement.errors import UnknownPoolError
from headgate.placement.ladder import must_fit
from headgate.placement.lifecycle import Lifecycle
from headgate.placement.outbox import Command, RemoveGroup
from headgate.placement.outcomes import LedgerSettings, PoolOpened, Why
from headgate.placement.pool import Group, GroupState, NodeView, Pool
from headgate.placement.request import Occupancy, PlacementRequest, Stage
from headgate.placement.rules import PreemptionRules


class PlacementLedger(Lifecycle):
    """Decides which request gets which placement group, and what must be stopped or created for it.

    Owned by one service that calls it from one thread. After any call `decide` returns the commands for the cluster;
    their results are reported through the methods of `Lifecycle`.

    Invariants (`validate`): room and quota equal the sums over groups and requests; a group has at most one holder and
    at most one heir; a FREE group has no holder; a CLEARING request waits for a victim or a group that is leaving.

    Attributes:
        pools: name -> open pool.
        groups: group id -> group that exists or is being made.
        requests: request id -> request; ended ones until they are forgotten.
        holders: driver -> when it counts as lost.
    """

    def __init__(self, settings: LedgerSettings, rules: PreemptionRules, *, generation: int = 1) -> None:
        super().__init__(settings, rules, generation)
        self.pools = MappingProxyType(self.holdings.pools)
        self.groups = MappingProxyType(self.holdings.groups)
        self.requests = MappingProxyType(self.holdings.requests)
        self.holders: dict[str, float] = {}
        self._backfill = Backfill(self)
        self._order = 0

    # The cluster and its pools

    def see_nodes(self, nodes: Sequence[NodeView], now: float) -> None:
        """Replace the list of living nodes; a group with a missing node becomes broken."""
        if self.holdings.nodes == {node.node_id: node for node in nodes}:
            return
        self.holdings.see(nodes)
        self.outbox.changed()
        for group in list(self.holdings.groups.values()):
            if group.state is not GroupState.CREATING:
                self.look_for_nodes(group, now)

    def open_pool(self, pool: Pool, now: float) -> PoolOpened:
        """Open a pool; one that is already open stays as it is, and the answer says where it differs."""
        del now
        known = self.holdings.pools.get(pool.name)
        if known is None:
            self._set_pool(pool, "opened")
            return PoolOpened()
        differences = tuple(each.name for each in fields(Pool) if getattr(known, each.name) != getattr(pool, each.name))
        return PoolOpened(known, differences)

    def change_pool(self, pool: Pool, now: float) -> None:
        """Change an open pool. Running work stays; reserved groups that it no longer has are removed once free.

        Raises:
            UnknownPoolError: it is not open.
        """
        self._pool(pool.name)
        self._set_pool(pool, "changed")
        for group in list(self.holdings.groups_of(pool.name)):
            if not self._is_wanted(group):
                self._retire(group, now)

    def close_pool(self, name: str, now: float) -> None:
        """Withdraw the work of a pool and remove its groups; the pool is gone once the last group is."""
        pool = self._pool(name)
        self._set_pool(replace(pool, reserved=(), max_dynamic=0, lend_reserved=False), "closed")
        for request in list(self.holdings.requests.values()):
            if request.request.pool == name:
                self.withdraw(request.request_id, now, "its pool was closed")
        for group in list(self.holdings.groups_of(name)):
            self._retire(group, now)
        self.closing.add(name)

    def remove_group(self, group_id: str, now: float) -> bool:
        """Remove a dynamic group as soon as nothing holds it; return whether there is such a group."""
        group = self.holdings.groups.get(group_id)
        if group is None or group.reserved is not None:
            return False
        self._retire(group, now)
        return True

    def set_rules(self, rules: PreemptionRules) -> None:
        """Apply other preemption rules to all decisions from now on."""
        self.budgets.rules = rules
        self.queue.sort((self.holdings.requests[each] for each, _ in list(self.queue.walk())), rules)
        self.outbox.changed()

    # Demand

    def submit(self, request: PlacementRequest, holder: str, now: float) -> bool:
        """Queue a request; return whether it is new. The same id again is the same request.

        Raises:
            UnknownPoolError: its pool is not open.
            CannotFitError: it is larger than the pool's quota, or than the nodes could ever hold.
        """
        if request.request_id in self.holdings.requests:
            return False
        must_fit(self.holdings, self._pool(request.pool), request)
        self._order += 1
        waiting = Occupancy(request, holder, submitted_at=now, order=self._order)
        self.holdings.requests[request.request_id] = waiting
        self.enqueue(waiting, now, "new")
        self.renew(holder, now)
        return True

    def complete(self, request_id: str, lease_id: str, epoch: int, now: float) -> ReleaseOutcome:
        """Take back what a request holds: stop its work if it still runs, and free its group."""
        request = self.holdings.requests.get(request_id)
        if request is None:
            return ReleaseOutcome.UNKNOWN
        if request.lease_id != lease_id or request.epoch != epoch:
            return ReleaseOutcome.STALE
        if request.stage.has_ended or request.stop_reason == "completed":
            return ReleaseOutcome.DUPLICATE
        if request.stage is Stage.STOPPING:
            request.stop_reason = "completed"  # it was being preempted; now it must not be requeued
            self.outbox.touch(request)
        elif request.stage in {Stage.RUNNING, Stage.PLACING} and request.begun:
            self.stop(request, "completed", now)
        else:
            return ReleaseOutcome.STALE
        return ReleaseOutcome.RELEASED

    def saved(self, request_id: str, epoch: int, now: float) -> bool:
        """Count work as saved up to now; return whether it is the current start of a running request."""
        request = self._current(request_id, epoch, Stage.RUNNING)
        if request is None:
            return False
        request.saved_at = now
        self.outbox.touch(request)
        return True

    def renew(self, holder: str, now: float) -> None:
        """Record that a driver is alive."""
        self.holders[holder] = now + self.settings.driver_lease_s
        self.outbox.wake_at(self.holders[holder])

    def hand_over(self, request_id: str, holder: str, now: float) -> None:
        """Give a request to another driver, whose heartbeats keep it alive from now on."""
        request = self.holdings.requests.get(request_id)
        if request is not None and request.holder != holder:
            request.holder = holder
            self.outbox.touch(request)
        self.renew(holder, now)

    def forget(self, request_id: str) -> None:
        """Drop an ended request from memory."""
        request = self.holdings.requests.get(request_id)
        if request is not None and request.stage.has_ended:
            del self.holdings.requests[request_id]
            self.outbox.changes.requests.add(request_id)

    # Decisions

    def decide(self, now: float) -> list[Command]:
        """Return the commands that the cluster has to carry out now."""
        self._end_drivers(now)
        self._tidy(now)
        self._backfill.run(now)
        return self.outbox.take_commands(now)

    def why(self, request_id: str, now: float) -> Why | None:
        """Return what a request is waiting for, or None if it is not known."""
        request = self.holdings.requests.get(request_id)
        return None if request is None else self._backfill.why(request, now)

    def usage(self, now: float) -> tuple[PoolUsage, ...]:
        """Return how much of each pool's quota is in use, by what, and which requests wait although a group is free."""
        return usage(self._backfill, now)

    def validate(self) -> None:
        """Assert the invariants of the class."""
        self.holdings.validate()
        self.budgets.validate()
        self.durations.validate()
        for group in self.groups.values():
            if group.state in {GroupState.FREE, GroupState.REMOVING}:
                assert group.holder is None, f"{group.group_id} is {group.state} and held by {group.holder}"
                is_free = group.state is GroupState.FREE
                assert is_free != (group.group_id in self.holdings.leaving), f"{group.group_id}: {group.state}, leaving"
            if group.holder is not None:
                assert group.holder in self.requests, f"{group.group_id}: holder {group.holder} is not known"
                holds = self.requests[group.holder].group_id
                assert holds == group.group_id, f"{group.holder} holds {holds}"
            if group.heir is not None:
                heir = self.requests[group.heir]
                assert heir.group_id == group.group_id, f"{group.heir} waits for {heir.group_id}"
                assert heir.stage is Stage.CLEARING, f"{group.heir} waits for a group but is {heir.stage}"
        for request in self.requests.values():
            waits = request.stage is Stage.WAITING
            assert waits == (request.request_id in self.queue), f"{request.request_id}: {request.stage}, line"
            if request.stage is Stage.CLEARING:
                assert request.victims or request.evicting, f"{request.request_id} waits for nothing"
            for victim in request.victims:
                assert self.requests[victim].stage is Stage.STOPPING, f"{victim} is not being stopped"

    # Restoring from a journal

    @classmethod
    def restore(
        cls,
        settings: LedgerSettings,
        rules: PreemptionRules,
        *,
        generation: int,
        pools: Iterable[Pool],
        groups: Iterable[Group],
        requests: Iterable[Occupancy],
        durations: Mapping[str, list[float]] = MappingProxyType({}),
        now: float,
    ) -> PlacementLedger:
        """Return a ledger restored from journalled pools, groups, requests and durations.

        Unfinished preparations start over: requests that waited for room are queued again, and groups that were being
        created are forgotten (the caller removes what Ray has of them). Running work counts as running until
        `work_lost` reports otherwise; commands to remove groups and to stop work are issued again.
        """
        ledger = cls(settings, rules, generation=generation)
        ledger.durations.counts.update(durations)
        ledger.holdings.pools.update({pool.name: pool for pool in pools})
        for group in groups:
            if group.state is GroupState.CREATING:
                ledger.outbox.changes.groups.add(group.group_id)
            else:
                group.heir = None
                ledger.holdings.add_group(group)
        for request in sorted(requests, key=lambda each: each.order):
            ledger._restore_request(request, now)
        ledger._restore_groups(now)
        return ledger

    def _restore_request(self, request: Occupancy, now: float) -> None:
        self.holdings.requests[request.request_id] = request
        self._order = max(self._order, request.order)
        if request.stage.has_ended:
            return
        self.renew(request.holder, now)
        group = self.holdings.groups.get(request.group_id)
        request.victims, request.evicting = set(), set()
        if group is not None and group.holder == request.request_id:
            if request.begun:
                self.holdings.hold(request, group)
                if request.stage is Stage.STOPPING:
                    self.stop(request, request.stop_reason, now)
                return
            group.holder = None
        request.group_id = ""
        self.enqueue(request, now, "restored")

    def _restore_groups(self, now: float) -> None:
        """Resume removals: pools that were being closed, and groups that are no longer wanted."""
        for group in self.holdings.groups.values():
            if group.state is GroupState.REMOVING:
                self.holdings.leave(group)
                self.outbox.commands.append(RemoveGroup(group.group_id, group.epoch))
            elif group.holder is None and group.state is not GroupState.FREE:
                group.state = GroupState.FREE
                self.touch_group(group, now)
        # `close_pool` leaves pools in this form, in which nothing can run; no other pool has it.
        self.closing |= {
            pool.name
            for pool in self.pools.values()
            if not pool.reserved and pool.max_dynamic == 0 and not pool.lend_reserved
        }
        for group in list(self.holdings.groups.values()):
            if group.state is not GroupState.REMOVING and not self._is_wanted(group):
                self._retire(group, now)

    # Timeouts

    def _end_drivers(self, now: float) -> None:
        """Stop the work of drivers whose heartbeats have stopped, or keep it, as the settings say; end their leases."""
        for holder in [name for name, deadline in self.holders.items() if deadline <= now]:
            del self.holders[holder]
            theirs = [each for each in self.requests.values() if each.holder == holder and not each.stage.has_ended]
            keeps = self.settings.keep_work_of_lost_drivers
            ended = [each for each in theirs if each.request.is_lease or not keeps]
            for count, is_kept in ((len(ended), False), (len(theirs) - len(ended), True)):
                if count:
                    self.outbox.tell(events.DriverLost(holder, count, is_kept))
            for request in ended:
                self.withdraw(request.request_id, now, "its driver died")

    def _tidy(self, now: float) -> None:
        """Tear down broken groups, remove idle ones, and drop closed pools that are empty."""
        for group_id, deadline in list(self.broken.items()):
            if deadline <= now and (group := self.holdings.groups.get(group_id)) is not None:
                self._tear_down(group, now)
        for group in self.holdings.free_groups():
            if group.reserved is None and now - group.since >= self.settings.idle_group_s:
                self.remove(group, now)
        for name in list(self.closing):
            if not any(True for _ in self.holdings.groups_of(name)) and not self.holdings.placed.get(name):
                self.closing.discard(name)
                self.holdings.pools.pop(name, None)
                self.outbox.changes.pools.add(name)

    def _set_pool(self, pool: Pool, what: str) -> None:
        self.holdings.pools[pool.name] = pool
        self.closing.discard(pool.name)
        self.outbox.changes.pools.add(pool.name)
        self.outbox.changed()
        self.outbox.tell(events.PoolChanged(pool.name, what))

    def _pool(self, name: str) -> Pool:
        pool = self.holdings.pools.get(name)
        if pool is None or name in self.closing:
            known = ", ".join(sorted(self.holdings.pools)) or "none"
            raise UnknownPoolError(f"There is no open pool {name!r} (open: {known})")
        return pool

    def _retire(self, group: Group, now: float) -> None:
        """Remove a group as soon as nothing holds it."""
        if group.state in {GroupState.FREE, GroupState.BROKEN} and group.holder is None:
            self.remove(group, now)
        elif group.group_id in self.clearing:
            self._drop(group, now)
        elif group.state is not GroupState.REMOVING:
            self.holdings.leave(group)

    def _tear_down(self, group: Group, now: float) -> None:
        """Give up a group whose node did not come back."""
        holder = self.requests.get(group.holder or "")
        if holder is None:
            if group.state is not GroupState.REMOVING:
                self.remove(group, now)
                self.outbox.changed()
        elif holder.stage in {Stage.RUNNING, Stage.PLACING} and holder.begun:
            self.stop(holder, "node_lost", now)
        elif holder.stage in {Stage.CLEARING, Stage.PLACING}:
            self._back_in_line(holder, now)

    def _is_wanted(self, group: Group) -> bool:
        """Tell whether a group still belongs to its pool as configured now."""
        pool = self.pools.get(group.pool)
        if pool is None or group.reserved is None:
            return pool is not None and pool.name not in self.closing
        return group.shape in pool.reserved[group.reserved :][:1]
