"""One pass over the line: rebuilds what is reserved, places what fits, and lets the rest wait behind its shadows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headgate.core import events
from headgate.placement.group import GroupState
from headgate.placement.ladder import Search, make_room, shape_of
from headgate.placement.life import Life
from headgate.placement.occupancy import Occupancy, Stage
from headgate.placement.outcomes import Offer, Rejected, Why
from headgate.placement.pool import Pool
from headgate.placement.preempting import Preempting
from headgate.placement.shadow import Shadow, amounts_by_node, cast

_Likeness = tuple[object, ...]


@dataclass(slots=True)
class Passing:
    """Looks for places in the order of the line. Owned by the ledger.

    A request like one that found no place is not looked at again until something changed, so that a long line of
    equal requests costs one search.
    """

    life: Life
    shadows: dict[str, Shadow] = field(default_factory=dict)
    _seen: int = -1
    _again_at: float | None = None
    _told: dict[str, set[tuple[str, str]]] = field(default_factory=dict)

    def run(self, now: float) -> None:
        """Place what can be placed now."""
        life = self.life
        if self._seen == life.version and (self._again_at is None or now < self._again_at):
            return
        self._again_at = None
        self._reconsider(now)
        self._rebuild(now)
        self._place_line(now)
        self._seen = life.version
        self._ask_again()

    def why(self, request: Occupancy, now: float) -> Why:
        """Return what holds a request."""
        if request.stage.has_ended:
            return Why(request.stage, request.note or f"it is {request.stage}")
        if request.stage is Stage.CLEARING:
            waits_for = ", ".join(sorted(request.victims | request.evicting))
            return Why(request.stage, f"it has its place, {request.group_id}, once {waits_for} are gone")
        if request.stage is Stage.STOPPING:
            return Why(request.stage, f"it is being stopped: {request.stop_reason}")
        if request.stage is not Stage.WAITING:
            return Why(request.stage, f"it has its place, {request.group_id}")
        return self._why_waiting(request, now)

    def _why_waiting(self, request: Occupancy, now: float) -> Why:
        pool = self.life.book.pools[request.request.pool]
        ahead = list(self.life.line).index(request.request_id)
        found = self._search(request, pool, now).climb()
        if isinstance(found, Offer):
            until = request.not_before if request.not_before > now else None
            return Why(request.stage, "it is next: a place is free", until, ahead)
        preempting = self._preempting(request, pool, now).search()
        if isinstance(preempting, Rejected):
            found.append(preempting)
        until = min((each.until for each in found if each.until is not None), default=None)
        says = found[-1].says
        if cast(self.life.book, request, pool, shape_of(request), now) is None:
            says = "it would not fit beside the reserved groups even if all other work ended"
        return Why(request.stage, says, until, ahead, tuple(found))

    def _reconsider(self, now: float) -> None:
        """Let whoever waits for victims take a group that has become free by itself."""
        book = self.life.book
        for request in [each for each in book.placed_requests() if each.stage is Stage.CLEARING]:
            pool = book.pools[request.request.pool]
            roomier = replace(pool, quota=pool.quota + book.groups[request.group_id].size)
            if Search(book, request, roomier, (), now).at_once() is not None:
                self.life.renew_place(request, now)

    def _rebuild(self, now: float) -> None:
        """Have reserved groups made that are not there."""
        book = self.life.book
        for pool in list(book.pools.values()):
            there = {group.reserved for group in book.groups_of(pool.name) if group.state is not GroupState.REMOVING}
            for index, shape in enumerate(pool.reserved):
                if index in there or not self.life.may_rebuild(pool.name, index, now):
                    continue
                idle = [group for group in book.free_groups() if group.reserved is None]
                beside = replace(pool, max_dynamic=None)
                found = make_room(book, beside, shape, sorted(idle, key=lambda each: each.since))
                if found is None:
                    continue
                nodes, evict = found
                for group_id in evict:
                    self.life.remove(book.groups[group_id], now)
                if not evict:
                    self.life.reserve_group(pool.name, index, shape, nodes, now)

    def _place_line(self, now: float) -> None:
        life, book = self.life, self.life.book
        self.shadows = {}
        failed: set[_Likeness] = set()
        missed = 0
        for request_id in life.line:
            request = book.requests[request_id]
            if request.not_before > now:
                self._later(request.not_before)
                continue
            likeness = _likeness(request)
            if likeness in failed:
                continue
            if missed >= life.settings.backfill_depth:
                break
            if not self._try(request, now):
                failed.add(likeness)
                missed += 1

    def _try(self, request: Occupancy, now: float) -> bool:
        """Place one request if that can be; cast its shadow otherwise, if it is the first of its pool."""
        pool = self.life.book.pools[request.request.pool]
        found = self._search(request, pool, now).climb()
        reclaimed: tuple[str, ...] = ()
        if not isinstance(found, Offer):
            preempting = self._preempting(request, pool, now)
            outcome = preempting.search()
            if isinstance(outcome, Rejected):
                self._reject(request, [*found, outcome])
                self._shade(request, pool, now)
                return False
            reclaimed = tuple(each for each in outcome.victims if preempting.was_reclaimed(each))
            self._tell_plan(request, outcome)
            found = outcome
        self._told.pop(request.request_id, None)
        self._count_in_shadows(request, found, now)
        self.life.promise(request, found, reclaimed, now)
        return True

    def _search(self, request: Occupancy, pool: Pool, now: float) -> Search:
        return Search(self.life.book, request, pool, self._shadows_of_others(request), now)

    def _preempting(self, request: Occupancy, pool: Pool, now: float) -> Preempting:
        life, shadows = self.life, self._shadows_of_others(request)
        return Preempting(life.book, request, pool, life.rules, life.budgets, shadows, now)

    def _shadows_of_others(self, request: Occupancy) -> list[Shadow]:
        return [shadow for shadow in self.shadows.values() if shadow.request_id != request.request_id]

    def _shade(self, request: Occupancy, pool: Pool, now: float) -> None:
        if pool.name in self.shadows:
            return
        shadow = cast(self.life.book, request, pool, shape_of(request), now)
        if shadow is not None:
            self.shadows[pool.name] = shadow

    def _count_in_shadows(self, request: Occupancy, offer: Offer, now: float) -> None:
        if not self.shadows:
            return
        group = self.life.book.groups.get(offer.group_id)
        shape = shape_of(request) if group is None else group.shape
        on_nodes = group is None or group.reserved is None
        nodes = offer.nodes if group is None else group.nodes
        taken = amounts_by_node(shape, nodes) if on_nodes else {}
        for shadow in self.shadows.values():
            shadow.took(request, taken, shape.size, now)

    def _ask_again(self) -> None:
        if self._again_at is not None:
            self.life.wake_at(self._again_at)

    def _later(self, at: float) -> None:
        if self._again_at is None or at < self._again_at:
            self._again_at = at

    def _reject(self, request: Occupancy, rejected: list[Rejected]) -> None:
        """Tell each step's reason once while the request waits, and look again when a rule ends by itself."""
        told = self._told.setdefault(request.request_id, set())
        for each in rejected:
            if each.until is not None:
                self._later(each.until)
            says = each.says.split(":")[0]
            if (each.step, says) not in told:
                told.add((each.step, says))
                self.life.tell(events.StepRejected(request.request_id, request.request.pool, each.step, each.says))

    def _tell_plan(self, request: Occupancy, offer: Offer) -> None:
        self.life.tell(
            events.PreemptionPlanned(
                request.request_id, request.request.pool, offer.victims, offer.lost_work_s, offer.reason
            )
        )


def _likeness(request: Occupancy) -> _Likeness:
    """Return what two requests must share for the one to find no place where the other found none."""
    wanted = request.request
    return (
        wanted.pool,
        wanted.bundles,
        wanted.strategy,
        tuple(sorted(wanted.node_labels.items())),
        tuple(sorted(wanted.labels.items())),
        wanted.priority,
        wanted.preemptible,
        wanted.estimated_duration_s,
    )
