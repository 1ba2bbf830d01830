"""What happens to groups and requests, step by step; the one place where their stages change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate.core import events
from headgate.placement.book import Book
from headgate.placement.budgets import Budgets
from headgate.placement.commands import CreateGroup, RemoveGroup, StartWork, StopWork
from headgate.placement.eligibility import lost_work
from headgate.placement.group import Group, GroupState
from headgate.placement.ladder import shape_of
from headgate.placement.line import Line
from headgate.placement.notes import Notes
from headgate.placement.occupancy import Occupancy, Stage
from headgate.placement.outcomes import LedgerSettings, Offer
from headgate.placement.pool import GroupShape
from headgate.placement.rules import PreemptionRules


@dataclass(slots=True)
class Life:
    """Stages of groups and requests with the commands and events they give. Owned by the ledger.

    Attributes:
        book: groups and requests, with what they take.
        line: who waits.
        budgets: what was stopped lately.
        settings: of the ledger.
        rules: of preemption, as they are now.
        generation: which life of the ledger it is; part of the names that it gives.
        notes: commands, events and changes that nobody has taken yet.
        closing: pools that go when their last group is gone.
        broken: group id -> when it is given up if its nodes are not back.
        clearing: reserved group that is to be made -> groups that must be gone before.
    """

    book: Book
    line: Line
    budgets: Budgets
    settings: LedgerSettings
    rules: PreemptionRules
    generation: int
    notes: Notes = field(default_factory=Notes)
    closing: set[str] = field(default_factory=set)
    broken: dict[str, float] = field(default_factory=dict)
    clearing: dict[str, set[str]] = field(default_factory=dict)
    _number: int = 0
    _rebuild_at: dict[tuple[str, int], float] = field(default_factory=dict)
    _made_at: dict[str, float] = field(default_factory=dict)

    # The way of a request

    def queue(self, request: Occupancy, now: float, reason: str) -> None:
        """Let a request stand in line."""
        request.stage = Stage.WAITING
        request.waiting_since = now
        request.started_at = None
        request.stop_reason = request.stopped_for = ""
        request.on_loan = request.begun = False
        self.line.add(request, self.rules)
        self.notes.joined.append(request.request_id)
        self.notes.touch(request)
        self.notes.tell(events.WorkQueued(request.request_id, request.request.pool, request.request.priority, reason))

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
        self.notes.touch(request)
        waited = now - request.waiting_since
        self.notes.tell(
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
        self.notes.touch(request)
        group = self.book.groups[request.group_id]
        if group.state is GroupState.CREATING:
            self._create(group, now)
        elif group.holder == request.request_id:
            self._start(request, group)

    def stop(self, request: Occupancy, reason: str, now: float, *, stopped_for: str = "") -> None:
        """Ask for work to be stopped."""
        request.stage = Stage.STOPPING
        request.stop_reason, request.stopped_for, request.stop_at = reason, stopped_for, now
        self.notes.touch(request)
        timeout_s = self.rules.cancel_timeout_s
        self.notes.ask(
            StopWork(request.request_id, request.lease_id, request.epoch, request.group_id, timeout_s, reason)
        )

    def withdraw(self, request: Occupancy, now: float, why: str) -> bool:
        """End a request, in whatever stage it is."""
        request.note = why
        if request.stage is Stage.WAITING:
            self.line.discard(request.request_id)
            self.notes.changed()  # others may have gone around it
            self._end(request, Stage.WITHDRAWN, now)
        elif request.stage is Stage.STOPPING:
            if request.stop_reason in {"withdrawn", "completed"}:
                return False
            request.stop_reason = "withdrawn"
            self.notes.touch(request)
        elif request.begun:
            self.stop(request, "withdrawn", now)
        else:
            self._renounce(request, now)
            self._end(request, Stage.WITHDRAWN, now)
        return True

    def take_instead(self, request: Occupancy, offer: Offer, now: float) -> None:
        """Give a request that waits for others to go a place that is free already. Those who go go all the same."""
        self._renounce(request, now)
        self.promise(request, offer, (), now)

    # Reports

    def work_started(self, request: Occupancy, now: float) -> None:
        """Work runs."""
        request.stage = Stage.RUNNING
        request.started_at = request.saved_at = now
        self.notes.touch(request)
        self._look_when_stoppable(request, now)
        waited = max(0.0, now - request.waiting_since)
        self.notes.tell(events.WorkStarted(request.request_id, request.request.pool, request.group_id, waited))

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
                self.touch_group(group, now)
                self.notes.tell(events.GroupQuarantined(group.group_id, group.pool, request.request_id))
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
            self.notes.tell(
                events.WorkPreempted(request.request_id, request.request.pool, by, reason, ran_s, lost_s, saved, took_s)
            )
            self.queue(request, now, "preempted")
        self._out_of_the_way(request, by, now)

    def group_created(self, group: Group, nodes: tuple[str, ...], now: float) -> None:
        """A group is ready."""
        self.book.move_group(group, nodes)
        took_s = max(0.0, now - self._made_at.pop(group.group_id, now))
        self.notes.tell(events.GroupCreated(group.group_id, group.pool, group.reserved is not None, nodes, took_s))
        group.state = GroupState.FREE if group.holder is None else GroupState.HELD
        self.touch_group(group, now)
        if group.state is GroupState.FREE:
            self.notes.changed()
        if group.group_id in self.book.leaving:
            self.remove(group, now)
        elif group.holder is not None:
            self._start(self.book.requests[group.holder], group)

    def group_failed(self, group: Group, why: str, now: float) -> None:
        """A group could not be made."""
        self.notes.tell(events.GroupCreationFailed(group.group_id, group.pool, why))
        retry_at = now + self.settings.create_retry_s
        self.notes.look_at(retry_at)
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
        self.notes.tell(events.GroupRemoved(group.group_id, group.pool, group.reserved is not None))
        self._drop(group, now)

    def group_lost(self, group: Group, why: str, now: float) -> None:
        """A group has vanished."""
        holder = self.book.requests.get(group.holder or "")
        self.notes.tell(events.GroupBroken(group.group_id, group.pool, group.nodes))
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
        self.notes.wake_at(self.broken[group.group_id])
        if group.state is GroupState.FREE:
            group.state = GroupState.BROKEN
            self.touch_group(group, now)
        self.notes.tell(events.GroupBroken(group.group_id, group.pool, missing))

    def healed(self, group: Group) -> None:
        """The nodes of a group are all back."""
        del self.broken[group.group_id]
        if group.state is GroupState.BROKEN and group.holder is None:
            group.state = GroupState.FREE
            self.notes.changed_groups.add(group.group_id)
            self.notes.changed()

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
                self.notes.changed_pools.add(name)

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
        self.touch_group(group, now)
        self.notes.ask(RemoveGroup(group.group_id, group.epoch))

    def _group_for(self, request: Occupancy, offer: Offer, now: float) -> Group:
        """Return the group of an offer: the free one, the victim's with its heir, or a new record."""
        if offer.group_id:
            group = self.book.groups[offer.group_id]
            if group.state is GroupState.FREE:
                group.state, group.holder = GroupState.HELD, request.request_id
            else:
                group.heir = request.request_id
            self.touch_group(group, now)
            return group
        group = self._new_group(request.request.pool, shape_of(request), None, offer.nodes, now)
        group.holder = request.request_id
        self.book.add_group(group)
        return group

    def _new_group(self, pool: str, shape: GroupShape, index: int | None, nodes: tuple[str, ...], now: float) -> Group:
        self._number += 1
        kind = "d" if index is None else f"r{index}"
        name = f"headgate-{pool}-{kind}-{self.generation}.{self._number}"
        self.notes.changed_groups.add(name)
        return Group(name, pool, shape, index, 1, GroupState.CREATING, nodes, None, 0, now)

    def _create(self, group: Group, now: float) -> None:
        self._made_at[group.group_id] = now
        self.notes.ask(CreateGroup(group.group_id, group.epoch, group.shape, group.nodes))

    def _start(self, request: Occupancy, group: Group) -> None:
        request.epoch += 1
        request.begun = True
        group.uses += 1
        self._number += 1
        request.lease_id = f"p-{self.generation}-{self._number}"
        self.notes.touch(request)
        self.notes.changed_groups.add(group.group_id)
        self.notes.ask(StartWork(request.request_id, request.lease_id, request.epoch, group.group_id))

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
        self.notes.changed()
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
        self.notes.changed()
        if group.group_id in self.book.leaving or group.group_id in self.broken or pool is None:
            if heir is not None:
                group.heir = None
                self._renounce_heir(heir, now)
            self.remove(group, now)
        elif heir is not None:
            group.state, group.holder, group.heir = GroupState.HELD, heir.request_id, None
            self.touch_group(group, now)
        elif group.reserved is None and not pool.reuse:
            self.remove(group, now)
        else:
            group.state = GroupState.FREE
            self.touch_group(group, now)

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
            self.notes.changed()
        own = request.request.min_runtime_s
        if request.request.preemptible:
            self.notes.look_at(now + (self.rules.min_runtime_s if own is None else own))

    def _lose(self, request: Occupancy, now: float, why: str) -> None:
        request.losses += 1
        self.notes.tell(events.WorkLost(request.request_id, request.request.pool, why, request.losses))
        if request.losses > self.settings.max_losses:
            request.note = f"its process or node died {request.losses} times, last: {why}"
            self._end(request, Stage.FAILED, now)
        else:
            if request.losses > 1:
                # A dead node is seen after 1.5 s at best: without a pause all tries would be made on it before.
                request.not_before = now + self.settings.lost_retry_s * 2 ** (request.losses - 2)
                self.notes.look_at(request.not_before)
            self.queue(request, now, "lost")

    def _end(self, request: Occupancy, stage: Stage, now: float) -> None:
        ran_s = self._ran(request, now)
        request.stage = stage
        self.notes.touch(request)
        self.notes.tell(events.WorkEnded(request.request_id, request.request.pool, stage.value, request.note, ran_s))

    def _tear_down(self, group: Group, now: float) -> None:
        """Give up a group whose node did not come back."""
        holder = self.book.requests.get(group.holder or "")
        if holder is None:
            if group.state is not GroupState.REMOVING:
                self.remove(group, now)
                self.notes.changed()
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
        self.notes.changed_groups.add(group.group_id)
        self.notes.changed()
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

    def touch_group(self, group: Group, now: float) -> None:
        """Note that the state of a group has changed now."""
        group.since = now
        self.notes.changed_groups.add(group.group_id)
        if group.state is GroupState.FREE and group.reserved is None:
            self.notes.wake_at(now + self.settings.idle_group_s)

    @staticmethod
    def _ran(request: Occupancy, now: float) -> float:
        return 0.0 if request.started_at is None else max(0.0, now - request.started_at)

    def _lost(self, request: Occupancy, now: float, *, saved: bool) -> float:
        """Return the seconds of the whole cluster that a stop lost, as it turned out."""
        if saved:
            request.saved_at = now
        return lost_work(request, self.book.cluster, now)
