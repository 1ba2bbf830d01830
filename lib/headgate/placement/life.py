"""What happens to groups and requests, step by step; the one place where their stages change."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from headgate.core import events
from headgate.core.events import Event
from headgate.placement.book import Book
from headgate.placement.budgets import Budgets
from headgate.placement.commands import Command, CreateGroup, RemoveGroup, StartWork, StopWork
from headgate.placement.eligibility import lost_work
from headgate.placement.group import Group, GroupState
from headgate.placement.ladder import shape_of
from headgate.placement.line import Line
from headgate.placement.occupancy import Occupancy, Stage
from headgate.placement.outcomes import Changes, LedgerSettings, Offer
from headgate.placement.pool import GroupShape
from headgate.placement.rules import PreemptionRules

_HOLDS = frozenset({GroupState.HELD, GroupState.QUARANTINED, GroupState.BROKEN})


@dataclass(slots=True)
class Life:
    """Stages of groups and requests with the commands and events they give. Owned by the ledger."""

    book: Book
    line: Line
    budgets: Budgets
    settings: LedgerSettings
    rules: PreemptionRules
    generation: int
    events: list[Event] = field(default_factory=list)
    closing: set[str] = field(default_factory=set)
    broken: dict[str, float] = field(default_factory=dict)
    clearing: dict[str, set[str]] = field(default_factory=dict)
    version: int = 0
    joined: list[str] = field(default_factory=list)
    look_again_at: float = inf
    changed_pools: set[str] = field(default_factory=set)
    changed_groups: set[str] = field(default_factory=set)
    changed_requests: set[str] = field(default_factory=set)
    _commands: list[Command] = field(default_factory=list)
    _wakes: list[float] = field(default_factory=list)
    _number: int = 0
    _rebuild_at: dict[tuple[str, int], float] = field(default_factory=dict)
    _made_at: dict[str, float] = field(default_factory=dict)

    # What is asked for, told and remembered

    def changed(self) -> None:
        """Note that something may fit now that did not before."""
        self.version += 1

    def tell(self, event: Event) -> None:
        """Add an event."""
        self.events.append(event)

    def touch(self, request: Occupancy) -> None:
        """Note that a request is to be journalled."""
        self.changed_requests.add(request.request_id)

    def wake_at(self, at: float) -> None:
        """Ask for a decision at a time."""
        if at < inf:
            heapq.heappush(self._wakes, at)

    def look_at(self, at: float) -> None:
        """Ask for a look at the whole line at a time."""
        self.look_again_at = min(at, self.look_again_at)
        self.wake_at(at)

    def slept_until(self, now: float) -> None:
        """Drop the times that are over."""
        while self._wakes and self._wakes[0] <= now:
            heapq.heappop(self._wakes)

    def next_wake(self) -> float | None:
        """Return the first time that was asked for."""
        return self._wakes[0] if self._wakes else None

    def take_commands(self) -> list[Command]:
        """Return the commands since the last call."""
        commands, self._commands = self._commands, []
        return commands

    def take_changes(self) -> Changes:
        """Return the names of what changed since the last call."""
        changes = Changes(
            frozenset(self.changed_pools), frozenset(self.changed_groups), frozenset(self.changed_requests)
        )
        self.changed_pools, self.changed_groups, self.changed_requests = set(), set(), set()
        return changes

    # The way of a request

    def queue(self, request: Occupancy, now: float, reason: str) -> None:
        """Let a request stand in line."""
        request.stage = Stage.WAITING
        request.waiting_since = now
        request.started_at = None
        request.stop_reason = request.stopped_for = ""
        request.on_loan = request.begun = False
        self.line.add(request, self.rules)
        self.joined.append(request.request_id)
        self.touch(request)
        self.tell(events.WorkQueued(request.request_id, request.request.pool, request.request.priority, reason))

    def promise(self, request: Occupancy, offer: Offer, reclaimed: Iterable[str], now: float) -> None:
        """Give a request its place: reserve it, and ask for what must go first."""
        self.line.discard(request.request_id)
        request.on_loan = offer.on_loan
        group = self._group_for(request, offer, now)
        self.book.hold(request, group)
        request.stage = Stage.CLEARING
        request.victims = set(offer.victims)
        for group_id in offer.evict:
            self.book.leave(self.book.groups[group_id])
        request.evicting = self.book.in_the_way(group.nodes) if group.state is GroupState.CREATING else set()
        self.touch(request)
        waited = now - request.waiting_since
        self.tell(
            events.WorkPlaced(request.request_id, request.request.pool, group.group_id, offer.step, max(0.0, waited))
        )
        self._stop_victims(request, offer, set(reclaimed), now)
        for group_id in offer.evict:
            evicted = self.book.groups[group_id]
            if evicted.state is GroupState.FREE:
                self.remove(evicted, now)
        self.advance(request, now)

    def advance(self, request: Occupancy, now: float) -> None:
        """Go on with a request once nothing stands in its place any longer."""
        if request.stage is not Stage.CLEARING or request.victims or request.evicting:
            return
        request.stage = Stage.PLACING
        self.touch(request)
        group = self.book.groups[request.group_id]
        if group.state is GroupState.CREATING:
            self._create(group, now)
        elif group.holder == request.request_id:
            self._start(request, group)

    def stop(self, request: Occupancy, reason: str, now: float, *, stopped_for: str = "") -> None:
        """Ask for work to be stopped."""
        request.stage = Stage.STOPPING
        request.stop_reason, request.stopped_for, request.stop_at = reason, stopped_for, now
        self.touch(request)
        timeout_s = self.rules.cancel_timeout_s
        self._commands.append(
            StopWork(request.request_id, request.lease_id, request.epoch, request.group_id, timeout_s, reason)
        )

    def withdraw(self, request: Occupancy, now: float, why: str) -> bool:
        """End a request, in whatever stage it is."""
        request.note = why
        if request.stage is Stage.WAITING:
            self.line.discard(request.request_id)
            self.changed()  # others may have gone around it
            self._end(request, Stage.WITHDRAWN, now)
        elif request.stage is Stage.STOPPING:
            if request.stop_reason in {"withdrawn", "completed"}:
                return False
            request.stop_reason = "withdrawn"
            self.touch(request)
        elif request.begun:
            self.stop(request, "withdrawn", now)
        else:
            self._renounce(request, now)
            self._end(request, Stage.WITHDRAWN, now)
        return True

    def renew_place(self, request: Occupancy, now: float) -> None:
        """Let a request give up the place that it waits for and stand in line again, as long as it has stood."""
        since = request.waiting_since
        self._renounce(request, now)
        self.queue(request, now, "room_elsewhere")
        request.waiting_since = since

    # Reports

    def work_started(self, request: Occupancy, now: float) -> None:
        """Work runs."""
        request.stage = Stage.RUNNING
        request.started_at = request.saved_at = now
        self.touch(request)
        self._look_when_stoppable(request, now)
        waited = max(0.0, now - request.waiting_since)
        self.tell(events.WorkStarted(request.request_id, request.request.pool, request.group_id, waited))

    def work_ended(self, request: Occupancy, now: float, failed: str | None) -> None:
        """Work ended by itself."""
        reason, by = request.stop_reason, request.stopped_for
        self._leave(request, now)
        if reason == "withdrawn":
            self._end(request, Stage.WITHDRAWN, now)
        elif failed is not None:
            request.note = failed
            self._end(request, Stage.FAILED, now)
        else:
            self._end(request, Stage.DONE, now)
        self._out_of_the_way(request, by, now)

    def work_lost(self, request: Occupancy, now: float, why: str) -> None:
        """The process or node of work died."""
        reason, by = request.stop_reason, request.stopped_for
        self._leave(request, now)
        if reason in {"withdrawn", "completed"}:
            self._end(request, Stage.WITHDRAWN if reason == "withdrawn" else Stage.DONE, now)
        else:
            self._lose(request, now, why)
        self._out_of_the_way(request, by, now)

    def work_stopped(self, request: Occupancy, now: float, *, saved: bool, dead: bool) -> None:
        """Work that was asked to stop is dead, or was not seen dead in time."""
        group = self.book.groups[request.group_id]
        if not dead:
            if group.state is not GroupState.QUARANTINED:
                group.state = GroupState.QUARANTINED
                self._touch_group(group, now)
                self.tell(events.GroupQuarantined(group.group_id, group.pool, request.request_id))
            return
        reason, ran_s, lost_s = request.stop_reason, self._ran(request, now), self._lost(request, now, saved=saved)
        took_s = max(0.0, now - request.stop_at)
        by = request.stopped_for
        self._leave(request, now)
        if reason == "withdrawn":
            self._end(request, Stage.WITHDRAWN, now)
        elif reason == "completed":
            self._end(request, Stage.DONE, now)
        elif reason == "node_lost":
            self._lose(request, now, "a node of its group died")
        else:
            request.preemptions += 1
            self.tell(
                events.WorkPreempted(request.request_id, request.request.pool, by, reason, ran_s, lost_s, saved, took_s)
            )
            self.queue(request, now, "preempted")
        self._out_of_the_way(request, by, now)

    def group_created(self, group: Group, nodes: tuple[str, ...], now: float) -> None:
        """A group is ready."""
        self.book.move_group(group, nodes)
        took_s = max(0.0, now - self._made_at.pop(group.group_id, now))
        self.tell(events.GroupCreated(group.group_id, group.pool, group.reserved is not None, nodes, took_s))
        group.state = GroupState.FREE if group.holder is None else GroupState.HELD
        self._touch_group(group, now)
        if group.state is GroupState.FREE:
            self.changed()
        if group.group_id in self.book.leaving:
            self.remove(group, now)
        elif group.holder is not None:
            self._start(self.book.requests[group.holder], group)

    def group_failed(self, group: Group, why: str, now: float) -> None:
        """A group could not be made."""
        self.tell(events.GroupCreationFailed(group.group_id, group.pool, why))
        retry_at = now + self.settings.create_retry_s
        self.look_at(retry_at)
        if group.reserved is not None:
            self._rebuild_at[group.pool, group.reserved] = retry_at
        holder = self.book.requests.get(group.holder or "")
        if holder is not None:
            self.book.let_go(holder)
            holder.not_before = retry_at
        self._drop(group, now)
        if holder is not None:
            self.queue(holder, now, "group_failed")

    def group_gone(self, group: Group, now: float) -> None:
        """A group was removed."""
        self.tell(events.GroupRemoved(group.group_id, group.pool, group.reserved is not None))
        self._drop(group, now)

    def group_lost(self, group: Group, why: str, now: float) -> None:
        """A group has vanished."""
        holder = self.book.requests.get(group.holder or "")
        self.tell(events.GroupBroken(group.group_id, group.pool, group.nodes))
        if holder is not None and holder.group_id == group.group_id:
            group.state = GroupState.BROKEN
            self.book.leave(group)
            if holder.stage in {Stage.RUNNING, Stage.STOPPING} or holder.begun:
                self.work_lost(holder, now, why)
            else:
                self._renounce(holder, now)
                self.queue(holder, now, "group_lost")
        elif group.state is not GroupState.REMOVING:
            self.remove(group, now)

    def node_missing(self, group: Group, missing: tuple[str, ...], now: float) -> None:
        """A node of a group is not there: wait a little whether it comes back."""
        if group.group_id in self.broken or group.state is GroupState.REMOVING:
            return
        self.broken[group.group_id] = now + self.settings.heal_grace_s
        self.wake_at(self.broken[group.group_id])
        if group.state is GroupState.FREE:
            group.state = GroupState.BROKEN
            self._touch_group(group, now)
        self.tell(events.GroupBroken(group.group_id, group.pool, missing))

    def healed(self, group: Group) -> None:
        """The nodes of a group are all back."""
        del self.broken[group.group_id]
        if group.state is GroupState.BROKEN and group.holder is None:
            group.state = GroupState.FREE
            self.changed_groups.add(group.group_id)
            self.changed()

    # The house: groups that are to be there, and groups that are not

    def keep_house(self, now: float) -> None:
        """Tear down what is broken, remove what is idle, close what is to be closed."""
        for group_id, deadline in list(self.broken.items()):
            if deadline <= now and (group := self.book.groups.get(group_id)) is not None:
                self._tear_down(group, now)
        idle_s = self.settings.idle_group_s
        for group in self.book.free_groups():
            if group.reserved is None and now - group.since >= idle_s:
                self.remove(group, now)
        for name in list(self.closing):
            if not any(True for _ in self.book.groups_of(name)) and not self.book.placed.get(name):
                self.closing.discard(name)
                self.book.pools.pop(name, None)
                self.changed_pools.add(name)

    def reserve_group(self, pool: str, index: int, shape: GroupShape, nodes: tuple[str, ...], now: float) -> None:
        """Have a reserved group made, as soon as what leaves its nodes is gone."""
        group = self._new_group(pool, shape, index, nodes, now)
        self.book.add_group(group)
        if in_the_way := self.book.in_the_way(nodes):
            self.clearing[group.group_id] = in_the_way
        else:
            self._create(group, now)

    def rebuild_not_before(self, pool: str, index: int) -> float:
        """Return when a reserved group may be tried again."""
        return self._rebuild_at.get((pool, index), 0.0)

    def retire(self, group: Group, now: float) -> None:
        """Remove a group as soon as nobody holds it."""
        if group.state in {GroupState.FREE, GroupState.BROKEN} and group.holder is None:
            self.remove(group, now)
        elif group.group_id in self.clearing:
            self._drop(group, now)
        elif group.state is not GroupState.REMOVING:
            self.book.leave(group)

    def remove(self, group: Group, now: float) -> None:
        """Ask for a group to be removed."""
        self.book.leave(group)
        group.state = GroupState.REMOVING
        group.holder = group.heir = None
        group.epoch += 1
        self._touch_group(group, now)
        self._commands.append(RemoveGroup(group.group_id, group.epoch))

    def restore(self, groups: list[Group], requests: list[Occupancy], now: float) -> None:
        """Take up journalled groups and requests; see `PlacementLedger.restore`."""
        for group in groups:
            if group.state is not GroupState.CREATING:
                group.heir = None
                self.book.add_group(group)
            else:
                self.changed_groups.add(group.group_id)
        for request in requests:
            self.book.requests[request.request_id] = request
            self._restore_request(request, now)
        for group in list(self.book.groups.values()):
            if group.state is GroupState.REMOVING:
                self.book.leave(group)
                self._commands.append(RemoveGroup(group.group_id, group.epoch))
            elif group.holder is None and group.state is not GroupState.FREE:
                group.state = GroupState.FREE
                self._touch_group(group, now)
        self._restore_retired(now)

    def validate(self) -> None:
        """Assert that groups, holders and heirs agree, and that nobody waits for nothing."""
        for group in self.book.groups.values():
            holder = self.book.requests.get(group.holder or "")
            if group.state in {GroupState.FREE, GroupState.REMOVING}:
                assert group.holder is None, f"{group.group_id} is {group.state} and held by {group.holder}"
                is_free = group.state is GroupState.FREE
                assert is_free != (group.group_id in self.book.leaving), f"{group.group_id} is {group.state}, leaving"
            if group.holder is not None:
                assert holder is not None, f"{group.group_id}: holder {group.holder} is not known"
                assert holder.group_id == group.group_id, f"{group.holder} holds {holder.group_id}"
            if group.heir is not None:
                heir = self.book.requests[group.heir]
                assert heir.group_id == group.group_id, f"{group.heir} waits for {heir.group_id}"
                assert heir.stage is Stage.CLEARING, f"{group.heir} waits for a group but is {heir.stage}"
        for request in self.book.requests.values():
            waits = request.stage is Stage.WAITING
            assert waits == (request.request_id in self.line), f"{request.request_id}: {request.stage}, line"
            if request.stage is Stage.CLEARING:
                assert request.victims or request.evicting, f"{request.request_id} waits for nothing"
            for victim in request.victims:
                assert self.book.requests[victim].stage is Stage.STOPPING, f"{victim} is not being stopped"

    def _group_for(self, request: Occupancy, offer: Offer, now: float) -> Group:
        """Return the group of an offer: the free one, the victim's with its heir, or a new record."""
        if offer.group_id:
            group = self.book.groups[offer.group_id]
            if group.state is GroupState.FREE:
                group.state, group.holder = GroupState.HELD, request.request_id
            else:
                group.heir = request.request_id
            self._touch_group(group, now)
            return group
        group = self._new_group(request.request.pool, shape_of(request), None, offer.nodes, now)
        group.holder = request.request_id
        self.book.add_group(group)
        return group

    def _new_group(self, pool: str, shape: GroupShape, index: int | None, nodes: tuple[str, ...], now: float) -> Group:
        self._number += 1
        kind = "d" if index is None else f"r{index}"
        name = f"headgate-{pool}-{kind}-{self.generation}.{self._number}"
        self.changed_groups.add(name)
        return Group(name, pool, shape, index, 1, GroupState.CREATING, nodes, None, 0, now)

    def _create(self, group: Group, now: float) -> None:
        self._made_at[group.group_id] = now
        self._commands.append(CreateGroup(group.group_id, group.epoch, group.shape, group.nodes))

    def _start(self, request: Occupancy, group: Group) -> None:
        request.epoch += 1
        request.begun = True
        group.uses += 1
        self._number += 1
        request.lease_id = f"p-{self.generation}-{self._number}"
        self.touch(request)
        self.changed_groups.add(group.group_id)
        self._commands.append(StartWork(request.request_id, request.lease_id, request.epoch, group.group_id))

    def _stop_victims(self, request: Occupancy, offer: Offer, reclaimed: set[str], now: float) -> None:
        by_pool: dict[str, list[Occupancy]] = {}
        for victim_id in offer.victims:
            victim = self.book.requests[victim_id]
            reason = "reclaimed" if victim_id in reclaimed else offer.reason
            self.stop(victim, reason, now, stopped_for=request.request_id)
            self.book.free_quota(victim)
            if victim_id not in reclaimed:
                by_pool.setdefault(victim.request.pool, []).append(victim)
        for pool, victims in by_pool.items():
            self.budgets.record(self.book.pools[pool], victims, request.request_id, now)

    def _renounce(self, request: Occupancy, now: float) -> None:
        """Give up a place that was promised and not yet used."""
        group = self.book.groups[request.group_id]
        request.victims, request.evicting = set(), set()
        was_placing = request.stage is Stage.PLACING
        self.book.let_go(request)
        self.changed()
        if group.heir == request.request_id:
            group.heir = None
        elif group.state is GroupState.CREATING and not was_placing:
            self._drop(group, now)  # nobody was asked to make it yet
        elif group.state is GroupState.CREATING:
            group.holder = None
            self.book.leave(group)
        else:
            self._release(group, now)

    def _leave(self, request: Occupancy, now: float) -> None:
        """Take a request out of its group, which goes to whoever is next."""
        group = self.book.groups[request.group_id]
        self.book.let_go(request)
        self._release(group, now)

    def _release(self, group: Group, now: float) -> None:
        """Hand a group on: to its heir, to the next, or to be removed."""
        heir = self.book.requests.get(group.heir or "")
        pool = self.book.pools.get(group.pool)
        group.holder = None
        self.changed()
        if group.group_id in self.book.leaving or group.group_id in self.broken or pool is None:
            if heir is not None:
                group.heir = None
                self._renounce_heir(heir, now)
            self.remove(group, now)
        elif heir is not None:
            group.state, group.holder, group.heir = GroupState.HELD, heir.request_id, None
            self._touch_group(group, now)
        elif group.reserved is None and not pool.reuse:
            self.remove(group, now)
        else:
            group.state = GroupState.FREE
            self._touch_group(group, now)

    def _renounce_heir(self, heir: Occupancy, now: float) -> None:
        heir.victims, heir.evicting = set(), set()
        self.book.let_go(heir)
        self.queue(heir, now, "group_lost")

    def _out_of_the_way(self, victim: Occupancy, preemptor_id: str, now: float) -> None:
        """Let the preemptor of a victim go on, if it still waits for it."""
        preemptor = self.book.requests.get(preemptor_id)
        if preemptor is not None and victim.request_id in preemptor.victims:
            preemptor.victims.discard(victim.request_id)
            self.advance(preemptor, now)

    def _look_when_stoppable(self, request: Occupancy, now: float) -> None:
        """Have the line looked at when work that has started may be stopped for others, or others in its stead."""
        if self.book.pools[request.request.pool].min_available:
            self.changed()
        own = request.request.min_runtime_s
        if request.request.preemptible:
            self.look_at(now + (self.rules.min_runtime_s if own is None else own))

    def _lose(self, request: Occupancy, now: float, why: str) -> None:
        request.losses += 1
        self.tell(events.WorkLost(request.request_id, request.request.pool, why, request.losses))
        if request.losses > self.settings.max_losses:
            request.note = f"its process or node died {request.losses} times, last: {why}"
            self._end(request, Stage.FAILED, now)
        else:
            self.queue(request, now, "lost")

    def _end(self, request: Occupancy, stage: Stage, now: float) -> None:
        ran_s = self._ran(request, now)
        request.stage = stage
        self.touch(request)
        self.tell(events.WorkEnded(request.request_id, request.request.pool, stage.value, request.note, ran_s))

    def _tear_down(self, group: Group, now: float) -> None:
        """Give up a group whose node did not come back."""
        holder = self.book.requests.get(group.holder or "")
        if holder is None:
            if group.state is not GroupState.REMOVING:
                self.remove(group, now)
                self.changed()
        elif holder.stage in {Stage.RUNNING, Stage.PLACING} and holder.begun:
            self.stop(holder, "node_lost", now)
        elif holder.stage in {Stage.CLEARING, Stage.PLACING}:
            self._renounce(holder, now)
            self.queue(holder, now, "group_lost")

    def _drop(self, group: Group, now: float) -> None:
        self.book.drop_group(group)
        self.broken.pop(group.group_id, None)
        self.clearing.pop(group.group_id, None)
        self._made_at.pop(group.group_id, None)
        self.changed_groups.add(group.group_id)
        self.changed()
        self._make_in_its_place(group.group_id, now)

    def _make_in_its_place(self, gone: str, now: float) -> None:
        """Let those go on who waited for a group to be gone."""
        for request in list(self.book.placed_requests()):
            if gone in request.evicting:
                request.evicting.discard(gone)
                self.advance(request, now)
        for group_id, in_the_way in list(self.clearing.items()):
            in_the_way.discard(gone)
            if not in_the_way:
                del self.clearing[group_id]
                self._create(self.book.groups[group_id], now)

    def _touch_group(self, group: Group, now: float) -> None:
        group.since = now
        self.changed_groups.add(group.group_id)
        if group.state is GroupState.FREE and group.reserved is None:
            self.wake_at(now + self.settings.idle_group_s)

    def _restore_request(self, request: Occupancy, now: float) -> None:
        if request.stage.has_ended:
            return
        group = self.book.groups.get(request.group_id)
        request.victims, request.evicting = set(), set()
        runs = request.stage in {Stage.RUNNING, Stage.STOPPING, Stage.PLACING} and request.begun
        if group is not None and group.holder == request.request_id and runs:
            self.book.hold(request, group)
            if request.stage is Stage.STOPPING:
                self.stop(request, request.stop_reason, now)
            return
        if group is not None and group.holder == request.request_id:
            group.holder = None
        request.group_id = ""
        self.queue(request, now, "restored")

    def _restore_retired(self, now: float) -> None:
        """Go on with what was to go: pools that were being closed, and reserved groups that are wanted no more."""
        pools = self.book.pools.values()
        # The form that `close_pool` leaves: nothing can run in it, and nobody gives a pool this form otherwise.
        self.closing |= {
            pool.name for pool in pools if not pool.reserved and pool.max_dynamic == 0 and not pool.lend_reserved
        }
        for group in list(self.book.groups.values()):
            pool = self.book.pools.get(group.pool)
            is_wanted = pool is not None and (
                pool.name not in self.closing
                if group.reserved is None
                else group.shape in pool.reserved[group.reserved :][:1]
            )
            if not is_wanted and group.state is not GroupState.REMOVING:
                self.retire(group, now)

    @staticmethod
    def _ran(request: Occupancy, now: float) -> float:
        return 0.0 if request.started_at is None else max(0.0, now - request.started_at)

    def _lost(self, request: Occupancy, now: float, *, saved: bool) -> float:
        """Return the seconds of the whole cluster that a stop lost, as it turned out."""
        if saved:
            request.saved_at = now
        return lost_work(request, self.book.cluster, now)
