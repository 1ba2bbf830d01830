"""One pass over the line: rebuilds what is reserved, places what fits, and lets the rest wait behind its shadows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from math import inf

from headgate.core import events
from headgate.placement.book import Book
from headgate.placement.budgets import Budgets
from headgate.placement.fitting import Room, covers, fits, give, place
from headgate.placement.group import Group, GroupState
from headgate.placement.house import reserve_group
from headgate.placement.ladder import Search, make_room, shape_of
from headgate.placement.life import Life
from headgate.placement.node import NodeView
from headgate.placement.occupancy import Occupancy, Stage
from headgate.placement.outcomes import Offer, Rejected, Why
from headgate.placement.pool import GroupShape, Pool
from headgate.placement.preempting import Preempting
from headgate.placement.rules import PreemptionRules
from headgate.placement.shadow import Shadow, amounts_by_node, cast

_Class = tuple[str, float, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Prospect:
    """Everything that requests of one pool, priority and labels could have, if they got all of it.

    Attributes:
        quota: what the pool could still hold with all that may be stopped gone.
        room: the same for the nodes, with idle dynamic groups gone as well.
        groups: groups that could be taken as they are, beside what `room` tells.
        makes: whether a group may be made, with all gone that may go.
        until: when somebody else may be stopped; infinite where that is never by itself.
    """

    quota: Mapping[str, int]
    room: Room
    groups: tuple[Group, ...]
    makes: bool
    until: float

    def allows(self, shape: GroupShape, nodes: Mapping[str, NodeView]) -> bool:
        """Tell whether there is any hope for a shape; without it no step finds a place."""
        if not fits(self.quota, shape.size):
            return False
        if self.makes and place(shape, self.room, nodes) is not None:
            return True
        return any(covers(group.shape, group.nodes, shape, nodes) for group in self.groups)


@dataclass(slots=True)
class Prospects:
    """Prospects as the book stands at one moment; to be dropped when anybody is placed.

    Who may be stopped for whom depends on pool, priority and labels alone, but for pairs that met lately; those are
    left out, which makes a prospect too good at most.
    """

    book: Book
    rules: PreemptionRules
    budgets: Budgets
    now: float
    _known: dict[_Class, Prospect] = field(default_factory=dict)

    def of(self, waiting: Occupancy, pool: Pool) -> Prospect:
        """Return the prospect of a request."""
        request = waiting.request
        key = (request.pool, request.priority, tuple(sorted(request.labels.items())))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._look(waiting, pool)
        return known

    def _look(self, waiting: Occupancy, pool: Pool) -> Prospect:
        book = self.book
        anybody = replace(waiting, request=replace(waiting.request, request_id=""))
        preempting = Preempting(book, anybody, pool, self.rules, self.budgets, (), self.now)
        victims = [book.requests[each.request_id] for each in preempting.candidates()]
        idle = book.free_groups()
        going = [*idle, *(book.groups[each.group_id] for each in victims)]
        quota = dict(book.quota_left(pool).units)
        room: Room = {node: dict(units) for node, units in book.room.items()}
        is_short = any(units < 0 for free in room.values() for units in free.values())
        for victim in victims:
            if victim.request.pool == pool.name and victim.request_id not in book.freed:
                give(quota, book.groups[victim.group_id].size)
        made = book.dynamic_count(pool.name)
        for group in going:
            if group.reserved is None and group.group_id not in book.leaving:
                made -= group.pool == pool.name
                for node, bundle in zip(group.nodes, group.shape.bundles, strict=False):
                    if node in room:
                        give(room[node], bundle)
        makes = pool.max_dynamic is None or made < pool.max_dynamic
        as_they_are = [
            group
            for group in going
            if group.pool == pool.name and (group.reserved is not None or is_short or not makes)
        ]
        until = inf if preempting.until is None else preempting.until
        return Prospect(quota, room, tuple(as_they_are), makes, until)


class _Outcome(Enum):
    """What a look at one request came to."""

    PLACED = auto()
    MISSED = auto()  # as all of its kind would that go around the same shadows
    MISSED_ALONE = auto()
    HOPELESS = auto()  # as all of its kind are, whatever the shadows


@dataclass(slots=True)
class Passing:
    """Looks for places in the order of the line. Owned by the ledger.

    A pass costs what has changed: a request like one that found no place is not looked at until room, quota or rules
    have changed, and a request that was told its reasons before is asked first whether there is any hope.
    """

    life: Life
    shadows: dict[str, Shadow] = field(default_factory=dict)
    _seen: int = -1
    _again_at: float = inf
    _told: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    _missed: set[int] = field(default_factory=set)
    _missed_beside: set[tuple[int, tuple[bool, ...]]] = field(default_factory=set)
    _prospects: Prospects | None = None

    def run(self, now: float) -> None:
        """Place what can be placed now."""
        life = self.life
        joined, life.notes.joined = life.notes.joined, []
        is_due = self._seen != life.notes.version or now >= min(self._again_at, life.notes.look_again_at)
        if is_due or (joined and not self._newcomers(joined, now)):
            self._everything(now)
        if len(self._told) > 2 * len(life.line) + 16:
            self._forget_told()
        if self._again_at < inf:
            life.notes.wake_at(self._again_at)

    def why(self, request: Occupancy, now: float) -> Why:
        """Return what holds a request."""
        if request.stage.has_ended:
            return Why(request.stage, request.note or f"it is {request.stage}")
        if request.stage is Stage.CLEARING:
            waits_for = ", ".join(sorted(request.victims | request.evicting))
            return Why(request.stage, f"it gets {request.group_id} once {waits_for} have stopped")
        if request.stage is Stage.STOPPING:
            return Why(request.stage, f"it is being stopped: {request.stop_reason}")
        if request.stage is not Stage.WAITING:
            return Why(request.stage, f"it has {request.group_id}")
        return self._why_waiting(request, now)

    def refusals(self, request: Occupancy, now: float) -> list[Rejected]:
        """Return why each step that stops nobody gives a waiting request no place; nothing where one does."""
        found = self._search(request, self.life.book.pools[request.request.pool], now).climb()
        return [] if isinstance(found, Offer) else found

    def _why_waiting(self, request: Occupancy, now: float) -> Why:
        pool = self.life.book.pools[request.request.pool]
        ahead = self.life.line.ahead_of(request.request_id)
        found = self._search(request, pool, now).climb()
        if isinstance(found, Offer):
            until = request.not_before if request.not_before > now else None
            return Why(request.stage, "it is next: there is room for it", until, ahead)
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
            if (offer := Search(book, request, roomier, (), now).at_once()) is not None:
                self.life.take_instead(request, offer, now)

    def _rebuild(self, now: float) -> None:
        """Have reserved groups made that are not there."""
        book = self.life.book
        for pool in list(book.pools.values()):
            there = {group.reserved for group in book.groups_of(pool.name) if group.state is not GroupState.REMOVING}
            for index, shape in enumerate(pool.reserved):
                if index in there:
                    continue
                if (not_before := self.life.groups.rebuild_not_before(pool.name, index)) > now:
                    self._later(not_before)
                    continue
                idle = [group for group in book.free_groups() if group.reserved is None]
                beside = replace(pool, max_dynamic=None)
                found = make_room(book, beside, shape, sorted(idle, key=lambda each: each.since))
                if found is None:
                    continue
                nodes, evict = found
                for group_id in evict:
                    self.life.groups.remove(book.groups[group_id], now)
                if not evict:
                    reserve_group(self.life, pool.name, index, shape, nodes, now)

    def _everything(self, now: float) -> None:
        """Look at the reserved groups and at the line from its head."""
        life = self.life
        self._again_at = life.notes.look_again_at = inf
        self._reconsider(now)
        self._rebuild(now)
        self.shadows = {}
        self._missed, self._missed_beside = set(), set()
        self._prospects = None
        missed = 0
        for request_id, number in life.line.walk():
            if number in self._missed:
                continue
            if missed >= life.settings.backfill_depth:
                break
            missed += self._look_at(request_id, number, now) is False
        life.notes.joined.clear()
        self._seen = life.notes.version

    def _newcomers(self, joined: list[str], now: float) -> bool:
        """Look only at those who joined the line, since nothing got free; return False where that is not enough."""
        line = self.life.line
        waiting = sorted((each for each in joined if each in line), key=line.ahead_of)
        for shadow in self.shadows.values():
            passed = shadow.request_id not in line or shadow.begins_at <= now
            if passed or any(line.ahead_of(each) < line.ahead_of(shadow.request_id) for each in waiting):
                return False
        for request_id in waiting:
            if (number := line.number_of(request_id)) not in self._missed:
                self._look_at(request_id, number, now)
        return self._seen == self.life.notes.version

    def _look_at(self, request_id: str, number: int, now: float) -> bool | None:
        """Return whether a request was placed; None where it is not to be looked at now."""
        request = self.life.book.requests[request_id]
        if request.not_before > now:
            self._later(request.not_before)
            return None
        beside = (number, tuple(shadow.outlasts(request, now) for shadow in self.shadows.values()))
        if beside in self._missed_beside:
            return None
        is_shaded = bool(self.shadows)
        outcome = self._try(request, now)
        if outcome is _Outcome.PLACED:
            self._prospects = None
        elif outcome is _Outcome.HOPELESS or (outcome is _Outcome.MISSED and not is_shaded):
            self._missed.add(number)
        elif outcome is _Outcome.MISSED:
            self._missed_beside.add(beside)
        return outcome is _Outcome.PLACED

    def _try(self, request: Occupancy, now: float) -> _Outcome:
        """Place one request if that can be; cast its shadow otherwise, if it is the first of its pool."""
        pool = self.life.book.pools[request.request.pool]
        is_hopeless = self._is_hopeless(request, pool, now)
        if is_hopeless and request.request_id in self._told:
            self._shade(request, pool, now)
            return _Outcome.HOPELESS
        found = self._search(request, pool, now).climb()
        reclaimed: tuple[str, ...] = ()
        if not isinstance(found, Offer):
            preempting = self._preempting(request, pool, now)
            outcome = preempting.search()
            if isinstance(outcome, Rejected):
                self._reject(request, [*found, outcome])
                self._shade(request, pool, now)
                if is_hopeless:
                    return _Outcome.HOPELESS
                return _Outcome.MISSED_ALONE if preempting.is_personal else _Outcome.MISSED
            reclaimed = tuple(each for each in outcome.victims if preempting.was_reclaimed(each))
            self._tell_plan(request, outcome)
            found = outcome
        self._told.pop(request.request_id, None)
        self._count_in_shadows(request, found, now)
        self.life.promise(request, found, reclaimed, now)
        return _Outcome.PLACED

    def _is_hopeless(self, request: Occupancy, pool: Pool, now: float) -> bool:
        """Tell whether a request finds no place even without shadows, budgets of a set, and the best of victims."""
        if self._prospects is None:
            self._prospects = Prospects(self.life.book, self.life.rules, self.life.budgets, now)
        prospect = self._prospects.of(request, pool)
        if prospect.allows(shape_of(request), self.life.book.nodes):
            return False
        self._later(prospect.until)
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

    def _later(self, at: float) -> None:
        self._again_at = min(at, self._again_at)

    def _forget_told(self) -> None:
        """Forget what was told to those who wait no longer."""
        self._told = {request_id: told for request_id, told in self._told.items() if request_id in self.life.line}

    def _reject(self, request: Occupancy, rejected: list[Rejected]) -> None:
        """Tell each step's reason once while the request waits, and look again when a rule ends by itself."""
        told = self._told.setdefault(request.request_id, set())
        for each in rejected:
            if each.until is not None:
                self._later(each.until)
            says = each.says.split(":")[0]
            if (each.step, says) not in told:
                told.add((each.step, says))
                self.life.notes.tell(
                    events.StepRejected(request.request_id, request.request.pool, each.step, each.says)
                )

    def _tell_plan(self, request: Occupancy, offer: Offer) -> None:
        self.life.notes.tell(
            events.PreemptionPlanned(
                request.request_id, request.request.pool, offer.victims, offer.lost_work_s, offer.reason
            )
        )
