"""What happens to requests and to the groups they are in, step by step; the one place where their stages change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate.core import events
from headgate.placement.budgets import Budgets
from headgate.placement.group_lifecycle import GroupLifecycle
from headgate.placement.holdings import Holdings
from headgate.placement.ladder import shape_of
from headgate.placement.outbox import Outbox, StartWork, StopWork
from headgate.placement.outcomes import LedgerSettings, Offer
from headgate.placement.pool import Group, GroupState
from headgate.placement.queue import Queue
from headgate.placement.request import Occupancy, Stage
from headgate.placement.rules import PreemptionRules
from headgate.placement.victims import lost_work


@dataclass(slots=True)
class Lifecycle:
    """Stages of groups and requests with the commands and events they give. Owned by the ledger.

    Attributes:
        holdings: groups and requests, with what they take.
        queue: who waits.
        budgets: what was stopped lately.
        settings: of the ledger.
        rules: of preemption, as they are now.
        groups: what happens to groups by themselves.
        outbox: commands, events and changes that nobody has taken yet.
        closing: pools that go when their last group is gone.
        clearing: reserved group that is to be made -> groups that must be gone before.
    """

    holdings: Holdings
    queue: Queue
    budgets: Budgets
    settings: LedgerSettings
    rules: PreemptionRules
    groups: GroupLifecycle
    outbox: Outbox
    closing: set[str] = field(default_factory=set)
    clearing: dict[str, set[str]] = field(default_factory=dict)

    # The way of a request

    def enqueue(self, request: Occupancy, now: float, reason: str) -> None:
        """Let a request stand in line."""
        request.stage = Stage.WAITING
        request.waiting_since = now
        request.started_at = None
        request.stop_reason = request.stopped_for = ""
        request.on_loan = request.begun = False
        self.queue.add(request, self.rules)
        self.outbox.joined.append(request.request_id)
        self.outbox.touch(request)
        self.outbox.tell(events.WorkQueued(request.request_id, request.request.pool, request.request.priority, reason))

    def promise(self, request: Occupancy, offer: Offer, reclaimed: Iterable[str], now: float) -> None:
        """Give a request its place: reserve it, and ask for what must go first."""
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
        waited = now - request.waiting_since
        self.outbox.tell(
            events.WorkPlaced(request.request_id, request.request.pool, group.group_id, offer.step, max(0.0, waited))
        )
        self._stop_victims(request, offer, set(reclaimed), now)
        for group_id in offer.evict:
            evicted = self.holdings.groups[group_id]
            if evicted.state is GroupState.FREE:
                self.groups.remove(evicted, now)
        self.advance(request, now)

    def advance(self, request: Occupancy, now: float) -> None:
        """Go on with a request once nothing stands in its place any longer."""
        if request.stage is not Stage.CLEARING or request.victims or request.evicting:
            return
        request.stage = Stage.PLACING
        self.outbox.touch(request)
        group = self.holdings.groups[request.group_id]
        if group.state is GroupState.CREATING:
            self.groups.create(group, now)
        elif group.holder == request.request_id:
            self._start(request, group)

    def stop(self, request: Occupancy, reason: str, now: float, *, stopped_for: str = "") -> None:
        """Ask for work to be stopped."""
        request.stage = Stage.STOPPING
        request.stop_reason, request.stopped_for, request.stop_at = reason, stopped_for, now
        self.outbox.touch(request)
        timeout_s = self.rules.cancel_timeout_s
        self.outbox.ask(
            StopWork(request.request_id, request.lease_id, request.epoch, request.group_id, timeout_s, reason)
        )

    def withdraw(self, request: Occupancy, now: float, why: str) -> bool:
        """End a request, in whatever stage it is."""
        request.note = why
        if request.stage is Stage.WAITING:
            self.queue.discard(request.request_id)
            self.outbox.changed()  # others may have gone around it
            self._end(request, Stage.WITHDRAWN, now)
        elif request.stage is Stage.STOPPING:
            if request.stop_reason in {"withdrawn", "completed"}:
                return False
            request.stop_reason = "withdrawn"
            self.outbox.touch(request)
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

    def back_in_line(self, request: Occupancy, now: float) -> None:
        """Let a request stand in line again whose place was promised, not yet used, and is lost."""
        self._renounce(request, now)
        self.enqueue(request, now, "group_lost")

    # Reports

    def work_started(self, request: Occupancy, now: float) -> None:
        """Work runs."""
        request.stage = Stage.RUNNING
        request.started_at = request.saved_at = now
        self.outbox.touch(request)
        self._look_when_stoppable(request, now)
        waited = max(0.0, now - request.waiting_since)
        self.outbox.tell(events.WorkStarted(request.request_id, request.request.pool, request.group_id, waited))

    def work_not_started(self, request: Occupancy, now: float) -> None:
        """Work that was asked to start does not run, and nothing says that it ever began: nothing of it was lost."""
        self._leave(request, now)
        self.enqueue(request, now, "restored")

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

    def work_stopped(self, request: Occupancy, now: float, *, saved: bool, dead: bool, answered: bool = False) -> None:
        """Work that was asked to stop is dead, or was not seen dead in time."""
        group = self.holdings.groups[request.group_id]
        if not dead:
            if group.state is not GroupState.QUARANTINED:
                group.state = GroupState.QUARANTINED
                self.groups.touch(group, now)
                self.outbox.tell(events.GroupQuarantined(group.group_id, group.pool, request.request_id))
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
            name, pool = request.request_id, request.request.pool
            self.outbox.tell(
                events.WorkPreempted(name, pool, by, reason, ran_s, lost_s, saved, took_s, answered=answered)
            )
            self.enqueue(request, now, "preempted")
        self._out_of_the_way(request, by, now)

    def group_created(self, group: Group, nodes: tuple[str, ...], now: float) -> None:
        """A group is ready."""
        self.groups.created(group, nodes, now)
        if group.group_id in self.holdings.leaving:
            self.groups.remove(group, now)
        elif group.holder is not None:
            self._start(self.holdings.requests[group.holder], group)

    def group_failed(self, group: Group, why: str, now: float) -> None:
        """A group could not be made."""
        retry_at = self.groups.failed(group, why, now)
        holder = self.holdings.requests.get(group.holder or "")
        if holder is not None:
            self.holdings.let_go(holder)
            holder.not_before = retry_at
        self.drop(group, now)
        if holder is not None:
            self.enqueue(holder, now, "group_failed")

    def group_gone(self, group: Group, now: float) -> None:
        """A group was removed."""
        self.outbox.tell(events.GroupRemoved(group.group_id, group.pool, group.reserved is not None))
        self.drop(group, now)

    def group_lost(self, group: Group, why: str, now: float) -> None:
        """A group has vanished."""
        holder = self.holdings.requests.get(group.holder or "")
        self.outbox.tell(events.GroupBroken(group.group_id, group.pool, group.nodes))
        if holder is not None and holder.group_id == group.group_id:
            group.state = GroupState.BROKEN
            self.holdings.leave(group)
            if holder.stage in {Stage.RUNNING, Stage.STOPPING} or holder.begun:
                self.work_lost(holder, now, why)
            else:
                self.back_in_line(holder, now)
        elif group.state is not GroupState.REMOVING:
            self.groups.remove(group, now)

    def drop(self, group: Group, now: float) -> None:
        """Forget a group of which nothing is in the cluster, and let those go on who waited for that."""
        self.groups.forget(group)
        self.clearing.pop(group.group_id, None)
        self._make_in_its_place(group.group_id, now)

    def _group_for(self, request: Occupancy, offer: Offer, now: float) -> Group:
        """Return the group of an offer: the free one, the victim's with its heir, or a new record."""
        if offer.group_id:
            group = self.holdings.groups[offer.group_id]
            if group.state is GroupState.FREE:
                group.state, group.holder = GroupState.HELD, request.request_id
            else:
                group.heir = request.request_id
            self.groups.touch(group, now)
            return group
        return self.groups.add(request.request.pool, shape_of(request), None, offer.nodes, now, request.request_id)

    def _start(self, request: Occupancy, group: Group) -> None:
        request.epoch += 1
        request.begun = True
        group.uses += 1
        request.lease_id = f"p-{self.groups.generation}-{self.groups.next_number()}"
        self.outbox.touch(request)
        self.outbox.changed_groups.add(group.group_id)
        self.outbox.ask(StartWork(request.request_id, request.lease_id, request.epoch, group.group_id))

    def _stop_victims(self, request: Occupancy, offer: Offer, reclaimed: set[str], now: float) -> None:
        by_pool: dict[str, list[Occupancy]] = {}
        for victim_id in offer.victims:
            victim = self.holdings.requests[victim_id]
            reason = "reclaimed" if victim_id in reclaimed else offer.reason
            self.stop(victim, reason, now, stopped_for=request.request_id)
            self.holdings.free_quota(victim)
            if victim_id not in reclaimed:
                by_pool.setdefault(victim.request.pool, []).append(victim)
        for pool, victims in by_pool.items():
            self.budgets.record(self.holdings.pools[pool], victims, request.request_id, now)

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
            self.drop(group, now)  # nobody was asked to make it yet
        elif group.state is GroupState.CREATING:
            group.holder = None
            self.holdings.leave(group)
        else:
            self._release(group, now)

    def _leave(self, request: Occupancy, now: float) -> None:
        """Take a request out of its group, which goes to whoever is next."""
        group = self.holdings.groups[request.group_id]
        self.holdings.let_go(request)
        self._release(group, now)

    def _release(self, group: Group, now: float) -> None:
        """Hand a group on: to its heir, to the next, or to be removed."""
        heir = self.holdings.requests.get(group.heir or "")
        pool = self.holdings.pools.get(group.pool)
        group.holder = None
        self.outbox.changed()
        if group.group_id in self.holdings.leaving or group.group_id in self.groups.broken or pool is None:
            if heir is not None:
                group.heir = None
                self._renounce_heir(heir, now)
            self.groups.remove(group, now)
        elif heir is not None:
            group.state, group.holder, group.heir = GroupState.HELD, heir.request_id, None
            self.groups.touch(group, now)
        elif group.reserved is None and not pool.reuse:
            self.groups.remove(group, now)
        else:
            group.state = GroupState.FREE
            self.groups.touch(group, now)

    def _renounce_heir(self, heir: Occupancy, now: float) -> None:
        heir.victims, heir.evicting = set(), set()
        self.holdings.let_go(heir)
        self.enqueue(heir, now, "group_lost")

    def _out_of_the_way(self, victim: Occupancy, preemptor_id: str, now: float) -> None:
        """Let the preemptor of a victim go on, if it still waits for it."""
        preemptor = self.holdings.requests.get(preemptor_id)
        if preemptor is not None and victim.request_id in preemptor.victims:
            preemptor.victims.discard(victim.request_id)
            self.advance(preemptor, now)

    def _look_when_stoppable(self, request: Occupancy, now: float) -> None:
        """Have the line looked at when work that has started may be stopped for others, or others in its stead."""
        if self.holdings.pools[request.request.pool].min_available:
            self.outbox.changed()
        own = request.request.min_runtime_s
        if request.request.preemptible:
            self.outbox.look_at(now + (self.rules.min_runtime_s if own is None else own))

    def _lose(self, request: Occupancy, now: float, why: str) -> None:
        request.losses += 1
        self.outbox.tell(events.WorkLost(request.request_id, request.request.pool, why, request.losses))
        if request.losses > self.settings.max_losses:
            request.note = f"its process or node died {request.losses} times, last: {why}"
            self._end(request, Stage.FAILED, now)
        else:
            if request.losses > 1:
                # A dead node is seen after 1.5 s at best: without a pause all tries would be made on it before.
                request.not_before = now + self.settings.lost_retry_s * 2 ** (request.losses - 2)
                self.outbox.look_at(request.not_before)
            self.enqueue(request, now, "lost")

    def _end(self, request: Occupancy, stage: Stage, now: float) -> None:
        ran_s = self._ran(request, now)
        request.stage = stage
        self.outbox.touch(request)
        self.outbox.tell(events.WorkEnded(request.request_id, request.request.pool, stage.value, request.note, ran_s))

    def _make_in_its_place(self, gone: str, now: float) -> None:
        """Let those go on who waited for a group to be gone."""
        for request in list(self.holdings.placed_requests()):
            if gone in request.evicting:
                request.evicting.discard(gone)
                self.advance(request, now)
        for group_id, in_the_way in list(self.clearing.items()):
            in_the_way.discard(gone)
            if not in_the_way:
                del self.clearing[group_id]
                self.groups.create(self.holdings.groups[group_id], now)

    @staticmethod
    def _ran(request: Occupancy, now: float) -> float:
        return 0.0 if request.started_at is None else max(0.0, now - request.started_at)

    def _lost(self, request: Occupancy, now: float, *, saved: bool) -> float:
        """Return the seconds of the whole cluster that a stop lost, as it turned out."""
        if saved:
            request.saved_at = now
        return lost_work(request, self.holdings.cluster, now)
