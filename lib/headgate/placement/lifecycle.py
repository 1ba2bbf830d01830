"""The life cycle of groups and of the requests in them; the only place where their stages change."""

from __future__ import annotations

from headgate.core import events
from headgate.placement.budgets import Budgets
from headgate.placement.durations import Durations, kind_of_work
from headgate.placement.holdings import Holdings
from headgate.placement.ladder import shape_of
from headgate.placement.outbox import CreateGroup, Outbox, RemoveGroup, StartWork, StopWork
from headgate.placement.outcomes import LedgerSettings, Offer
from headgate.placement.pool import Group, GroupShape, GroupState
from headgate.placement.queue import Queue
from headgate.placement.request import Occupancy, Stage
from headgate.placement.rules import PreemptionRules
from headgate.placement.victims import lost_work

_IN_A_GROUP = (Stage.PLACING, Stage.RUNNING, Stage.STOPPING)
_ENDS = {"withdrawn": Stage.WITHDRAWN, "completed": Stage.DONE}
"""Reasons of stops after which a request is not queued again -> its final stage."""


class Lifecycle:
    """Transitions of groups and requests, with their commands and events: the ledger without its decisions.

    Every report carries the id and epoch of what it answers; reports of another epoch change nothing.

    Attributes:
        settings: settings of the ledger.
        generation: counts the openings of the ledger's journal; part of the names that it gives.
        holdings: groups and requests, with what they take.
        queue: waiting requests.
        budgets: recent preemptions.
        durations: how long work of each kind ran.
        outbox: commands, events and changes that were not taken yet.
        closing: pools that are dropped when their last group is gone.
        clearing: reserved group to be created -> groups that must be gone first.
        broken: group id -> when it is given up unless its nodes are back.
        rebuild_at: pool and index of a reserved group that could not be created -> when to try again.
    """

    def __init__(self, settings: LedgerSettings, rules: PreemptionRules, generation: int) -> None:
        self.settings = settings
        self.generation = generation
        self.holdings = Holdings()
        self.queue = Queue(settings.ageing_per_s)
        self.budgets = Budgets(rules)
        self.durations = Durations()
        self.outbox = Outbox()
        self.closing: set[str] = set()
        self.clearing: dict[str, set[str]] = {}
        self.broken: dict[str, float] = {}
        self.rebuild_at: dict[tuple[str, int], float] = {}
        self._made_at: dict[str, float] = {}
        self._number = 0

    @property
    def rules(self) -> PreemptionRules:
        """The preemption rules in force."""
        return self.budgets.rules

    # Requests

    def enqueue(self, request: Occupancy, now: float, reason: str) -> None:
        """Put a request into the queue."""
        request.stage = Stage.WAITING
        request.waiting_since = now
        request.started_at = None
        request.stop_reason = request.stopped_for = ""
        request.on_loan = request.begun = False
        self._stand(request, now)
        self.outbox.joined.append(request.request_id)
        self.outbox.touch(request)
        self.outbox.tell(events.WorkQueued(request.request_id, request.request.pool, request.request.priority, reason))

    def look_at_statements(self, now: float) -> None:
        """Count the estimates that running work has far outrun."""
        for running in self.holdings.placed_requests():
            if self.durations.has_outrun(running, now):
                self._learn(running, now)

    def promise(self, request: Occupancy, offer: Offer, now: float) -> None:
        """Give a request its place: reserve it, and have victims and groups in its way removed."""
        self.queue.discard(request.request_id)
        request.on_loan = offer.on_loan
        group = self._group_for(request, offer, now)
        self.holdings.hold(request, group)
        request.stage = Stage.CLEARING
        request.victims = set(offer.victims)
        for group_id in offer.evict:
            self.holdings.leave(self.holdings.groups[group_id])
        request.evicting = self.holdings.in_the_way(group.nodes) if group.state is GroupState.CREATING else set()
        self.outbox.touch(request)
        waited = max(0.0, now - request.waiting_since)
        self.outbox.tell(
            events.WorkPlaced(request.request_id, request.request.pool, group.group_id, offer.step, waited)
        )
        self._stop_victims(request, offer, now)
        for group_id in offer.evict:
            evicted = self.holdings.groups[group_id]
            if evicted.state is GroupState.FREE:
                self.remove(evicted, now)
        self._advance(request, now)

    def take_instead(self, request: Occupancy, offer: Offer, now: float) -> None:
        """Move a request that waits for victims to a place that is already free. The victims are stopped anyway."""
        self._renounce(request, now)
        self.promise(request, offer, now)

    def stop(self, request: Occupancy, reason: str, now: float, *, stopped_for: str = "") -> None:
        """Issue the command to stop work."""
        request.stage = Stage.STOPPING
        request.stop_reason, request.stopped_for, request.stop_at = reason, stopped_for, now
        self.outbox.touch(request)
        timeout_s = self.rules.cancel_timeout_s
        self.outbox.commands.append(
            StopWork(request.request_id, request.lease_id, request.epoch, request.group_id, timeout_s, reason)
        )

    def withdraw(self, request_id: str, now: float, why: str = "") -> bool:
        """End a request, at once if it waits or after a stop if it runs; return whether that changed anything."""
        request = self.holdings.requests.get(request_id)
        if request is None or request.stage.has_ended:
            return False
        if request.stage is Stage.STOPPING and request.stop_reason in _ENDS:
            return False
        request.note = why or "withdrawn"
        if request.stage is Stage.WAITING:
            self.queue.discard(request_id)
            self.outbox.changed()  # others may have waited behind its shadow
            self._end(request, Stage.WITHDRAWN, now)
        elif request.stage is Stage.STOPPING:
            request.stop_reason = "withdrawn"
            self.outbox.touch(request)
        elif request.begun:
            self.stop(request, "withdrawn", now)
        else:
            self._renounce(request, now)
            self._end(request, Stage.WITHDRAWN, now)
        return True

    def work_started(self, request_id: str, epoch: int, now: float) -> None:
        """Record that work has started to run."""
        request = self._current(request_id, epoch, Stage.PLACING)
        if request is None:
            return
        request.stage = Stage.RUNNING
        request.started_at = request.saved_at = now
        self.outbox.touch(request)
        if self.holdings.pools[request.request.pool].min_available:
            self.outbox.changed()  # with one more running, another one may be stopped
        own = request.request.min_runtime_s
        if request.request.preemptible:
            self.outbox.look_at(now + (self.rules.min_runtime_s if own is None else own))
        waited = max(0.0, now - request.waiting_since)
        self.outbox.tell(events.WorkStarted(request_id, request.request.pool, request.group_id, waited))

    def work_not_started(self, request_id: str, epoch: int, now: float) -> None:
        """Queue work again that an earlier ledger was starting and that does not run; this does not count as a loss."""
        if (request := self._current(request_id, epoch, Stage.PLACING)) is not None:
            self._leave(request, now)
            self.enqueue(request, now, "restored")

    def work_ended(self, request_id: str, epoch: int, now: float, failed: str | None = None) -> None:
        """Record that work ended by itself and is gone from its group; `failed` says how it failed."""
        request = self._current(request_id, epoch)
        if request is None:
            return
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

    def work_lost(self, request_id: str, epoch: int, now: float, why: str) -> None:
        """Record that the process of work, or its node, died."""
        request = self._current(request_id, epoch)
        if request is None:
            return
        reason, by = request.stop_reason, request.stopped_for
        self._leave(request, now)
        if reason in _ENDS:
            self._end(request, _ENDS[reason], now)
        else:
            self._lose(request, now, why)
        self._out_of_the_way(request, by, now)

    def work_stopped(
        self, request_id: str, epoch: int, now: float, *, saved: bool, dead: bool, answered: bool = False
    ) -> None:
        """Record the result of a stop; `dead` tells whether work is seen dead, `saved` whether its state was kept."""
        request = self._current(request_id, epoch, Stage.STOPPING)
        if request is None:
            return
        group = self.holdings.groups[request.group_id]
        if not dead:
            if group.state is not GroupState.QUARANTINED:
                group.state = GroupState.QUARANTINED
                self.touch_group(group, now)
                self.outbox.tell(events.GroupQuarantined(group.group_id, group.pool, request_id))
            return
        if saved:
            request.saved_at = now
        lost_s = lost_work(request, self.holdings.cluster, now)
        reason, by, ran_s = request.stop_reason, request.stopped_for, _ran_s(request, now)
        took_s = max(0.0, now - request.stop_at)
        self._leave(request, now)
        if reason in _ENDS:
            self._end(request, _ENDS[reason], now)
        elif reason == "node_lost":
            self._lose(request, now, "a node of its group died")
        else:
            request.preemptions += reason != "shorter_work"
            pool = request.request.pool
            self.outbox.tell(
                events.WorkPreempted(request_id, pool, by, reason, ran_s, lost_s, saved, took_s, answered=answered)
            )
            self.enqueue(request, now, "preempted")
        self._out_of_the_way(request, by, now)

    # Groups

    def group_created(self, group_id: str, epoch: int, nodes: tuple[str, ...], now: float) -> None:
        """Record that a group is ready on `nodes`; it goes to its holder, or is free."""
        group = self._group(group_id, epoch, GroupState.CREATING)
        if group is None:
            return
        self.holdings.move_group(group, nodes)
        took_s = max(0.0, now - self._made_at.pop(group_id, now))
        self.outbox.tell(events.GroupCreated(group_id, group.pool, group.reserved is not None, nodes, took_s))
        group.state = GroupState.FREE if group.holder is None else GroupState.HELD
        self.touch_group(group, now)
        if group.state is GroupState.FREE:
            self.outbox.changed()
        if group_id in self.holdings.leaving:
            self.remove(group, now)
        elif group.holder is not None:
            self._start(self.holdings.requests[group.holder], group)
        self.look_for_nodes(group, now)  # one may have died while the group was being made

    def group_failed(self, group_id: str, epoch: int, why: str, now: float) -> None:
        """Record that a group could not be created, and that nothing of it is left."""
        group = self._group(group_id, epoch, GroupState.CREATING)
        if group is None:
            return
        self.outbox.tell(events.GroupCreationFailed(group_id, group.pool, why))
        retry_at = now + self.settings.create_retry_s
        self.outbox.look_at(retry_at)
        if group.reserved is not None:
            self.rebuild_at[group.pool, group.reserved] = retry_at
        holder = self.holdings.requests.get(group.holder or "")
        if holder is not None:
            self.holdings.let_go(holder)
            holder.not_before = retry_at
        self._drop(group, now)
        if holder is not None:
            self.enqueue(holder, now, "group_failed")

    def group_gone(self, group_id: str, epoch: int, now: float) -> None:
        """Record that a group was removed."""
        if (group := self._group(group_id, epoch, GroupState.REMOVING)) is not None:
            self.outbox.tell(events.GroupRemoved(group_id, group.pool, group.reserved is not None))
            self._drop(group, now)

    def group_lost(self, group_id: str, why: str, now: float) -> None:
        """Record that a group has vanished without a command: its work is lost, and a reserved group is rebuilt."""
        group = self.holdings.groups.get(group_id)
        if group is None or group.state is GroupState.CREATING:
            return
        holder = self.holdings.requests.get(group.holder or "")
        self.outbox.tell(events.GroupBroken(group_id, group.pool, group.nodes))
        if holder is not None and holder.group_id == group_id:
            group.state = GroupState.BROKEN
            self.holdings.leave(group)
            if holder.begun:
                self.work_lost(holder.request_id, holder.epoch, now, why)
            else:
                self._back_in_line(holder, now)
        elif group.state is not GroupState.REMOVING:
            self.remove(group, now)

    def reserve(self, pool: str, index: int, shape: GroupShape, nodes: tuple[str, ...], now: float) -> None:
        """Create a reserved group, as soon as the groups that are leaving its nodes are gone."""
        group = self._new_group(pool, shape, index, nodes, None, now)
        if in_the_way := self.holdings.in_the_way(nodes):
            self.clearing[group.group_id] = in_the_way
        else:
            self._create(group, now)

    def remove(self, group: Group, now: float) -> None:
        """Issue the command to remove a group."""
        self.holdings.leave(group)
        group.state = GroupState.REMOVING
        group.holder = group.heir = None
        group.epoch += 1
        self.touch_group(group, now)
        self.outbox.commands.append(RemoveGroup(group.group_id, group.epoch))

    def look_for_nodes(self, group: Group, now: float) -> None:
        """Mark a group as broken while one of its nodes is missing; the node has `heal_grace_s` to come back."""
        missing = tuple(sorted({node for node in group.nodes if node not in self.holdings.nodes}))
        if not missing and group.group_id in self.broken:
            del self.broken[group.group_id]
            if group.state is GroupState.BROKEN and group.holder is None:
                group.state = GroupState.FREE
                self.outbox.changes.groups.add(group.group_id)
                self.outbox.changed()
        elif missing and group.group_id not in self.broken and group.state is not GroupState.REMOVING:
            self.broken[group.group_id] = now + self.settings.heal_grace_s
            self.outbox.wake_at(self.broken[group.group_id])
            if group.state is GroupState.FREE:
                group.state = GroupState.BROKEN
                self.touch_group(group, now)
            self.outbox.tell(events.GroupBroken(group.group_id, group.pool, missing))

    def touch_group(self, group: Group, now: float) -> None:
        """Record that the state of a group has changed now."""
        group.since = now
        self.outbox.changes.groups.add(group.group_id)
        if group.state is GroupState.FREE and group.reserved is None:
            self.outbox.wake_at(now + self.settings.idle_group_s)

    # From a promise to a start

    def _group_for(self, request: Occupancy, offer: Offer, now: float) -> Group:
        """Return the group of an offer: a free one, a victim's with this request as its heir, or a new one."""
        if not offer.group_id:
            return self._new_group(request.request.pool, shape_of(request), None, offer.nodes, request.request_id, now)
        group = self.holdings.groups[offer.group_id]
        if group.state is GroupState.FREE:
            group.state, group.holder = GroupState.HELD, request.request_id
        else:
            group.heir = request.request_id
        self.touch_group(group, now)
        return group

    def _new_group(
        self, pool: str, shape: GroupShape, index: int | None, nodes: tuple[str, ...], holder: str | None, now: float
    ) -> Group:
        """Return a new group that is not in the cluster yet; its room counts as taken."""
        kind = "d" if index is None else f"r{index}"
        name = f"headgate-{pool}-{kind}-{self.generation}.{self._next_number()}"
        self.outbox.changes.groups.add(name)
        group = Group(name, pool, shape, index, 1, GroupState.CREATING, nodes, holder, 0, now)
        self.holdings.add_group(group)
        return group

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _stop_victims(self, request: Occupancy, offer: Offer, now: float) -> None:
        by_pool: dict[str, list[Occupancy]] = {}
        for victim_id, reason in offer.victims.items():
            victim = self.holdings.requests[victim_id]
            self.stop(victim, reason, now, stopped_for=request.request_id)
            self.holdings.free_quota(victim)
            if reason != "reclaimed":
                by_pool.setdefault(victim.request.pool, []).append(victim)
        for pool, victims in by_pool.items():
            self.budgets.record(self.holdings.pools[pool], victims, request.request_id, now)

    def _advance(self, request: Occupancy, now: float) -> None:
        """Place a request once its victims and the groups in its way are gone."""
        if request.stage is not Stage.CLEARING or request.victims or request.evicting:
            return
        request.stage = Stage.PLACING
        self.outbox.touch(request)
        group = self.holdings.groups[request.group_id]
        if group.state is GroupState.CREATING:
            self._create(group, now)
        elif group.holder == request.request_id:
            self._start(request, group)

    def _create(self, group: Group, now: float) -> None:
        self._made_at[group.group_id] = now
        self.outbox.commands.append(CreateGroup(group.group_id, group.epoch, group.shape, group.nodes))

    def _start(self, request: Occupancy, group: Group) -> None:
        request.epoch += 1
        request.begun = True
        group.uses += 1
        request.lease_id = f"p-{self.generation}-{self._next_number()}"
        self.outbox.touch(request)
        self.outbox.changes.groups.add(group.group_id)
        self.outbox.commands.append(StartWork(request.request_id, request.lease_id, request.epoch, group.group_id))

    # From a group to the next

    def _leave(self, request: Occupancy, now: float) -> None:
        """Take a request out of its group, which passes to its heir or becomes free."""
        group = self.holdings.groups[request.group_id]
        if request.request.checkpoints:
            request.served_s += _ran_s(request, now)
        self.holdings.let_go(request)
        self._release(group, now)

    def _release(self, group: Group, now: float) -> None:
        """Pass a group to its heir, free it, or have it removed."""
        heir = self.holdings.requests.get(group.heir or "")
        pool = self.holdings.pools.get(group.pool)
        group.holder = None
        self.outbox.changed()
        if group.group_id in self.holdings.leaving or group.group_id in self.broken or pool is None:
            if heir is not None:
                group.heir = None
                heir.victims, heir.evicting = set(), set()
                self.holdings.let_go(heir)
                self.enqueue(heir, now, "group_lost")
            self.remove(group, now)
        elif heir is not None:
            group.state, group.holder, group.heir = GroupState.HELD, heir.request_id, None
            self.touch_group(group, now)
        elif group.reserved is None and not pool.reuse:
            self.remove(group, now)
        else:
            group.state = GroupState.FREE
            self.touch_group(group, now)

    def _renounce(self, request: Occupancy, now: float) -> None:
        """Give up a place that was promised and not yet used."""
        group = self.holdings.groups[request.group_id]
        request.victims, request.evicting = set(), set()
        was_placing = request.stage is Stage.PLACING
        self.holdings.let_go(request)
        self.outbox.changed()
        if group.heir == request.request_id:
            group.heir = None
        elif group.state is GroupState.CREATING and not was_placing:
            self._drop(group, now)  # its creation was not commanded yet
        elif group.state is GroupState.CREATING:
            group.holder = None
            self.holdings.leave(group)
        else:
            self._release(group, now)

    def _back_in_line(self, request: Occupancy, now: float) -> None:
        """Queue a request again that has lost a promised place before using it."""
        self._renounce(request, now)
        self.enqueue(request, now, "group_lost")

    def _lose(self, request: Occupancy, now: float, why: str) -> None:
        request.losses += 1
        self.outbox.tell(events.WorkLost(request.request_id, request.request.pool, why, request.losses))
        if request.losses > self.settings.max_losses:
            request.note = f"its process or node died {request.losses} times, last: {why}"
            self._end(request, Stage.FAILED, now)
            return
        if request.losses > 1:
            # A dead node is noticed after 1.5 s at best: without a pause all retries could be spent on it before that.
            request.not_before = now + self.settings.lost_retry_s * 2 ** (request.losses - 2)
            self.outbox.look_at(request.not_before)
        self.enqueue(request, now, "lost")

    def _end(self, request: Occupancy, stage: Stage, now: float) -> None:
        ran_s = _ran_s(request, now)
        if stage is Stage.DONE and request.started_at is not None:
            self._learn(request, now, max(request.served_s, ran_s))
        request.stage = stage
        self.outbox.touch(request)
        self.outbox.tell(events.WorkEnded(request.request_id, request.request.pool, stage.value, request.note, ran_s))

    def _stand(self, request: Occupancy, now: float) -> None:
        """Add a request to the queue, ordered by how long it is likely to run."""
        request.left_s = self.durations.left_s(request, now)
        self.queue.add(request, self.rules)

    def _learn(self, of: Occupancy, now: float, took_s: float | None = None) -> None:
        """Count how long a run took, or that it outran its estimate; reorder its kind if that changes their factor."""
        kind = kind_of_work(of)
        before = self.durations.times_told(kind)
        self.outbox.changes.durations.update(
            self.durations.outrun(of) if took_s is None else self.durations.learn(of, took_s)
        )
        self.outbox.touch(of)
        if self.durations.times_told(kind) == before:
            return
        self.outbox.changed()
        for each in self.holdings.requests.values():
            if each.stage is Stage.WAITING and kind_of_work(each) == kind:
                self.queue.discard(each.request_id)
                self._stand(each, now)

    def _out_of_the_way(self, victim: Occupancy, preemptor_id: str, now: float) -> None:
        """Tell the preemptor, if it still waits for this victim, that the victim is gone."""
        preemptor = self.holdings.requests.get(preemptor_id)
        if preemptor is not None and victim.request_id in preemptor.victims:
            preemptor.victims.discard(victim.request_id)
            self._advance(preemptor, now)

    def _drop(self, group: Group, now: float) -> None:
        """Forget a group that is not in the cluster, and advance the requests and groups that waited for that."""
        gone = group.group_id
        self.holdings.drop_group(group)
        self.broken.pop(gone, None)
        self._made_at.pop(gone, None)
        self.clearing.pop(gone, None)
        self.outbox.changes.groups.add(gone)
        self.outbox.changed()
        for request in list(self.holdings.placed_requests()):
            if gone in request.evicting:
                request.evicting.discard(gone)
                self._advance(request, now)
        for group_id, in_the_way in list(self.clearing.items()):
            in_the_way.discard(gone)
            if not in_the_way:
                del self.clearing[group_id]
                self._create(self.holdings.groups[group_id], now)

    def _group(self, group_id: str, epoch: int, state: GroupState) -> Group | None:
        group = self.holdings.groups.get(group_id)
        return group if group is not None and group.epoch == epoch and group.state is state else None

    def _current(self, request_id: str, epoch: int, *stages: Stage) -> Occupancy | None:
        request = self.holdings.requests.get(request_id)
        if request is None or request.epoch != epoch or not request.begun:
            return None  # while its new group is being created it still has the epoch of the previous start
        return request if request.stage in (stages or _IN_A_GROUP) else None


def _ran_s(request: Occupancy, now: float) -> float:
    return 0.0 if request.started_at is None else max(0.0, now - request.started_at)
