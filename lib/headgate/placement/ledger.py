"""The placement ledger: who gets which group next. Events in, commands out; `now` is given, nothing is awaited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType

from headgate.core import ReleaseOutcome, events
from headgate.core.events import Event
from headgate.placement.backfill import Backfill, PoolUsage, usage
from headgate.placement.budgets import Budgets
from headgate.placement.errors import UnknownPoolError
from headgate.placement.group_lifecycle import GroupLifecycle
from headgate.placement.holdings import Holdings
from headgate.placement.ladder import must_fit
from headgate.placement.lifecycle import Lifecycle
from headgate.placement.maintenance import keep_house, restore, retire, validate
from headgate.placement.outbox import Command, Outbox
from headgate.placement.outcomes import Changes, LedgerSettings, PoolDiffers, PoolOpened, Submitted, Why
from headgate.placement.pool import Group, GroupState, NodeView, Pool
from headgate.placement.queue import Queue
from headgate.placement.request import Occupancy, PlacementRequest, Stage
from headgate.placement.rules import PreemptionRules


class PlacementLedger:
    """Decides which request gets which placement group, and what must be stopped or made for it.

    Owned by one service that calls it from one thread. Every report carries the id and epoch of what it answers;
    reports of another epoch change nothing. After any call `decide` returns what is to be done in the cluster.

    Invariants (`validate`): room and quota agree with the groups and requests they are sums of; a group has one holder
    and at most one heir; a group is FREE only when nobody holds it; whoever is CLEARING waits for something that goes.
    """

    def __init__(self, settings: LedgerSettings, rules: PreemptionRules, *, generation: int = 1) -> None:
        self.settings = settings
        self.holdings = Holdings()
        self.queue = Queue(settings.ageing_per_s)
        self.budgets = Budgets(rules)
        outbox = Outbox()
        groups = GroupLifecycle(self.holdings, settings, generation, outbox)
        self.life = Lifecycle(self.holdings, self.queue, self.budgets, settings, rules, groups, outbox)
        self.backfill = Backfill(self.life)
        self.holders: dict[str, float] = {}
        self._order = 0

    @property
    def rules(self) -> PreemptionRules:
        """The rules of preemption in force."""
        return self.life.rules

    @property
    def pools(self) -> Mapping[str, Pool]:
        """Name -> open pool."""
        return MappingProxyType(self.holdings.pools)

    @property
    def groups(self) -> Mapping[str, Group]:
        """Group id -> group that exists or is being made."""
        return MappingProxyType(self.holdings.groups)

    @property
    def requests(self) -> Mapping[str, Occupancy]:
        """Request id -> request; ended ones until they are forgotten."""
        return MappingProxyType(self.holdings.requests)

    # The cluster

    def see_nodes(self, nodes: Sequence[NodeView], now: float) -> None:
        """Take over the whole list of living nodes; a group with a node that is missing is broken."""
        before = self.holdings.nodes
        after = {node.node_id: node for node in nodes}
        if before == after:
            return
        self.holdings.see(nodes)
        self.life.outbox.changed()
        for group in list(self.holdings.groups.values()):
            missing = tuple(sorted({node for node in group.nodes if node not in after}))
            if missing and group.state is not GroupState.CREATING:
                self.life.groups.node_missing(group, missing, now)
            elif not missing and group.group_id in self.life.groups.broken:
                self.life.groups.healed(group)

    # Pools

    def open_pool(self, pool: Pool, now: float) -> PoolOpened | PoolDiffers:
        """Open a pool; one that is open in the same form is left alone, in another form it stays as it is."""
        del now
        known = self.holdings.pools.get(pool.name)
        if known is None:
            self._set_pool(pool, "opened")
            return PoolOpened(pool)
        differences = tuple(each.name for each in fields(Pool) if getattr(known, each.name) != getattr(pool, each.name))
        return PoolDiffers(known, differences) if differences else PoolOpened(known, again=True)

    def change_pool(self, pool: Pool, now: float) -> None:
        """Give an open pool another form. Running work stays; reserved groups that are wanted no more go when free.

        Raises:
            UnknownPoolError: it is not open.
        """
        self._pool(pool.name)
        self._set_pool(pool, "changed")
        for group in list(self.holdings.groups_of(pool.name)):
            if group.reserved is None:
                continue
            index = group.reserved
            if index >= len(pool.reserved) or pool.reserved[index] != group.shape:
                retire(self.life, group, now)

    def close_pool(self, name: str, now: float) -> None:
        """Withdraw the work of a pool and remove its groups; the pool is gone when the last one is."""
        pool = self._pool(name)
        self._set_pool(replace(pool, reserved=(), max_dynamic=0, lend_reserved=False), "closed")
        for request in list(self.holdings.requests.values()):
            if request.request.pool == name and not request.stage.has_ended:
                self.withdraw(request.request_id, now, "its pool was closed")
        for group in list(self.holdings.groups_of(name)):
            retire(self.life, group, now)
        self.life.closing.add(name)

    def remove_group(self, group_id: str, now: float) -> bool:
        """Have a dynamic group removed as soon as nobody holds it; return whether there is such a group."""
        group = self.holdings.groups.get(group_id)
        if group is None or group.reserved is not None:
            return False
        retire(self.life, group, now)
        return True

    def set_rules(self, rules: PreemptionRules) -> None:
        """Put other rules of preemption in force, for what is decided from now on."""
        self.life.rules = rules
        self.budgets.rules = rules
        self.life.outbox.changed()

    # Demand

    def submit(self, request: PlacementRequest, holder: str, now: float) -> Submitted:
        """Let a request stand in line. The same id again is the same request, whatever it asks for.

        Raises:
            UnknownPoolError: its pool is not open.
            CannotFitError: no node, or not its pool's quota, could ever carry it.
        """
        known = self.holdings.requests.get(request.request_id)
        if known is not None:
            return Submitted(request.request_id, known.stage, again=True)
        must_fit(self.holdings, self._pool(request.pool), request)
        self._order += 1
        waiting = Occupancy(request, holder, submitted_at=now, order=self._order)
        self.holdings.requests[request.request_id] = waiting
        self.life.enqueue(waiting, now, "new")
        self.renew(holder, now)
        return Submitted(request.request_id, Stage.WAITING)

    def withdraw(self, request_id: str, now: float, why: str = "") -> bool:
        """End a request: at once where it waits, after it was stopped where it runs. Return whether it changed."""
        request = self.holdings.requests.get(request_id)
        if request is None or request.stage.has_ended:
            return False
        return self.life.withdraw(request, now, why or "withdrawn")

    def complete(self, request_id: str, lease_id: str, epoch: int, now: float) -> ReleaseOutcome:
        """Take back what a request holds: its work is stopped if it still runs, and its group is free again."""
        request = self.holdings.requests.get(request_id)
        if request is None:
            return ReleaseOutcome.UNKNOWN
        if request.lease_id != lease_id or request.epoch != epoch:
            return ReleaseOutcome.STALE
        if request.stage.has_ended or request.stop_reason == "completed":
            return ReleaseOutcome.DUPLICATE
        if request.stage is Stage.STOPPING:
            request.stop_reason = "completed"  # it gave back what was being taken from it: nothing is left to run again
            self.life.outbox.touch(request)
        elif request.stage in {Stage.RUNNING, Stage.PLACING} and request.begun:
            self.life.stop(request, "completed", now)
        else:
            return ReleaseOutcome.STALE
        return ReleaseOutcome.RELEASED

    def saved(self, request_id: str, epoch: int, now: float) -> bool:
        """Count work as saved up to now; return whether it is the current start of a running request."""
        request = self.holdings.requests.get(request_id)
        if request is None or request.epoch != epoch or request.stage is not Stage.RUNNING:
            return False
        request.saved_at = now
        self.life.outbox.touch(request)
        return True

    def renew(self, holder: str, now: float) -> None:
        """Remember that a driver lives."""
        self.holders[holder] = now + self.settings.driver_lease_s
        self.life.outbox.wake_at(self.holders[holder])

    def hand_over(self, request_id: str, holder: str, now: float) -> None:
        """Make a request another driver's, whose life keeps it alive from now on."""
        request = self.holdings.requests.get(request_id)
        if request is not None and request.holder != holder:
            request.holder = holder
            self.life.outbox.touch(request)
        self.renew(holder, now)

    def forget(self, request_id: str) -> None:
        """Drop an ended request from memory."""
        request = self.holdings.requests.get(request_id)
        if request is not None and request.stage.has_ended:
            del self.holdings.requests[request_id]
            self.life.outbox.changed_requests.add(request_id)

    # Reports of the executor

    def group_created(self, group_id: str, epoch: int, nodes: tuple[str, ...], now: float) -> None:
        """A group is ready on `nodes`."""
        if (group := self._group(group_id, epoch, GroupState.CREATING)) is not None:
            self.life.group_created(group, nodes, now)
            missing = tuple(sorted({node for node in nodes if node not in self.holdings.nodes}))
            if missing:  # it died while the group was being made
                self.life.groups.node_missing(group, missing, now)

    def group_failed(self, group_id: str, epoch: int, why: str, now: float) -> None:
        """A group could not be made, and nothing of it is left."""
        if (group := self._group(group_id, epoch, GroupState.CREATING)) is not None:
            self.life.group_failed(group, why, now)

    def group_gone(self, group_id: str, epoch: int, now: float) -> None:
        """A group was removed."""
        if (group := self._group(group_id, epoch, GroupState.REMOVING)) is not None:
            self.life.group_gone(group, now)

    def group_lost(self, group_id: str, why: str, now: float) -> None:
        """A group is not there any more, though nobody asked for that: its work is lost, a reserved one is rebuilt."""
        group = self.holdings.groups.get(group_id)
        if group is not None and group.state is not GroupState.CREATING:
            self.life.group_lost(group, why, now)

    def work_started(self, request_id: str, epoch: int, now: float) -> None:
        """Work runs."""
        request = self._current(request_id, epoch)
        if request is not None and request.stage is Stage.PLACING:
            self.life.work_started(request, now)

    def work_not_started(self, request_id: str, epoch: int, now: float) -> None:
        """The ledger that had work started ended before it saw it run, and it does not run: that is no loss of it."""
        request = self._current(request_id, epoch)
        if request is not None and request.stage is Stage.PLACING:
            self.life.work_not_started(request, now)

    def work_ended(self, request_id: str, epoch: int, now: float, failed: str | None = None) -> None:
        """Work ended by itself and is seen gone from its group; `failed` says how it failed."""
        if (request := self._current(request_id, epoch)) is not None:
            self.life.work_ended(request, now, failed)

    def work_lost(self, request_id: str, epoch: int, now: float, why: str) -> None:
        """The process of work died, or its node."""
        if (request := self._current(request_id, epoch)) is not None:
            self.life.work_lost(request, now, why)

    def work_stopped(
        self, request_id: str, epoch: int, now: float, *, saved: bool, dead: bool, answered: bool = False
    ) -> None:
        """Work was asked to stop; `dead` tells whether it is seen dead, `saved` whether its state was kept."""
        request = self._current(request_id, epoch)
        if request is not None and request.stage is Stage.STOPPING:
            self.life.work_stopped(request, now, saved=saved, dead=dead, answered=answered)

    def work_dead(self, request_id: str, epoch: int, now: float) -> None:
        """Work that had not been seen dead in time is dead now."""
        request = self._current(request_id, epoch)
        if request is not None and request.stage is Stage.STOPPING:
            self.life.work_stopped(request, now, saved=False, dead=True)

    # Decisions

    def decide(self, now: float) -> list[Command]:
        """Return everything that is to be done in the cluster as things stand."""
        self._end_drivers(now)
        keep_house(self.life, now)
        self.backfill.run(now)
        self.life.outbox.slept_until(now)
        return self.life.outbox.take_commands()

    def next_at(self) -> float | None:
        """Return when `decide` must be called again even if nothing is reported; None where that is never."""
        return self.life.outbox.next_wake()

    def why(self, request_id: str, now: float) -> Why | None:
        """Return what holds a request, or None if it is not known."""
        request = self.holdings.requests.get(request_id)
        return None if request is None else self.backfill.why(request, now)

    def usage(self, now: float) -> tuple[PoolUsage, ...]:
        """Return how much of each pool's quota is in use, by what, and who waits beside a free group."""
        return usage(self.holdings, self.backfill, now)

    def take_events(self) -> list[Event]:
        """Return what happened since the last call."""
        told, self.life.outbox.events = self.life.outbox.events, []
        return told

    def take_changes(self) -> Changes:
        """Return the names of what changed since the last call."""
        return self.life.outbox.take_changes()

    def validate(self) -> None:
        """Assert the invariants of the class."""
        self.holdings.validate()
        self.budgets.validate()
        validate(self.life)

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
        now: float,
    ) -> PlacementLedger:
        """Return a ledger of journalled pools, groups and requests.

        What was being prepared is prepared anew: requests that waited for room stand in line again, and groups that
        were being made are forgotten (whoever restores removes what Ray has of them). Running work is taken to run,
        until `work_lost` tells otherwise; groups that were being removed, and work that was being stopped, are asked
        for again.
        """
        ledger = cls(settings, rules, generation=generation)
        ledger.holdings.pools = {pool.name: pool for pool in pools}
        restore(ledger.life, list(groups), sorted(requests, key=lambda each: each.order), now)
        ledger._order = max((each.order for each in ledger.holdings.requests.values()), default=0)
        for request in ledger.holdings.requests.values():
            if not request.stage.has_ended:
                ledger.renew(request.holder, now)
        return ledger

    def _end_drivers(self, now: float) -> None:
        """Stop the work of drivers that were not heard of, or let it go on, as the settings say."""
        for holder in [name for name, deadline in self.holders.items() if deadline <= now]:
            del self.holders[holder]
            theirs = [
                each for each in self.holdings.requests.values() if each.holder == holder and not each.stage.has_ended
            ]
            kept = self.settings.keep_work_of_lost_drivers
            if theirs:
                self.life.outbox.tell(events.DriverLost(holder, len(theirs), kept))
            for request in () if kept else theirs:
                self.withdraw(request.request_id, now, "its driver died")

    def _set_pool(self, pool: Pool, what: str) -> None:
        self.holdings.pools[pool.name] = pool
        self.life.closing.discard(pool.name)
        self.life.outbox.changed_pools.add(pool.name)
        self.life.outbox.changed()
        self.life.outbox.tell(events.PoolChanged(pool.name, what))

    def _pool(self, name: str) -> Pool:
        pool = self.holdings.pools.get(name)
        if pool is None or name in self.life.closing:
            known = ", ".join(sorted(self.holdings.pools)) or "none"
            raise UnknownPoolError(f"There is no open pool {name!r} (open: {known})")
        return pool

    def _group(self, group_id: str, epoch: int, state: GroupState) -> Group | None:
        group = self.holdings.groups.get(group_id)
        return group if group is not None and group.epoch == epoch and group.state is state else None

    def _current(self, request_id: str, epoch: int) -> Occupancy | None:
        request = self.holdings.requests.get(request_id)
        if request is None or request.epoch != epoch or not request.begun:
            return None  # a place of its own that is still being made has the epoch of the start before
        return request if request.stage in {Stage.PLACING, Stage.RUNNING, Stage.STOPPING} else None
