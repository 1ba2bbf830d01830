"""One pass over the queue: rebuilds what is reserved, places what fits, and lets the rest wait behind its shadows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from math import inf
from typing import Final

from headgate.core import events
from headgate.placement.amounts import NOTHING, Amounts
from headgate.placement.holdings import Holdings
from headgate.placement.ladder import LOAN, RESERVED, WIDE, Search, by_right, make_room, shape_of
from headgate.placement.lifecycle import Lifecycle
from headgate.placement.maintenance import reserve_group
from headgate.placement.outcomes import Offer, Rejected, Why
from headgate.placement.pool import GroupState, Pool
from headgate.placement.preemption import Preemption, Prospects
from headgate.placement.queue import Shadow, amounts_by_node, cast
from headgate.placement.request import Occupancy, Stage


class _Outcome(Enum):
    """What a look at one request came to."""

    PLACED = auto()
    MISSED = auto()  # as all of its kind would that go around the same shadows
    MISSED_ALONE = auto()
    HOPELESS = auto()  # as all of its kind are, whatever the shadows


@dataclass(slots=True)
class Backfill:
    """Looks for places in the order of the line. Owned by the ledger.

    A pass costs what has changed: a request like one that found no place is not looked at until room, quota or rules
    have changed, and a request that was told its reasons before is asked first whether there is any hope.
    """

    life: Lifecycle
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
        joined, life.outbox.joined = life.outbox.joined, []
        is_due = self._seen != life.outbox.version or now >= min(self._again_at, life.outbox.look_again_at)
        if is_due or (joined and not self._newcomers(joined, now)):
            self._everything(now)
        if len(self._told) > 2 * len(life.queue) + 16:
            self._forget_told()
        if self._again_at < inf:
            life.outbox.wake_at(self._again_at)

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
        found = self._search(request, self.life.holdings.pools[request.request.pool], now).climb()
        return [] if isinstance(found, Offer) else found

    def _why_waiting(self, request: Occupancy, now: float) -> Why:
        pool = self.life.holdings.pools[request.request.pool]
        ahead = self.life.queue.ahead_of(request.request_id)
        found = self._search(request, pool, now).climb()
        if isinstance(found, Offer):
            until = request.not_before if request.not_before > now else None
            return Why(request.stage, "it is next: there is room for it", until, ahead)
        preempting = self._preempting(request, pool, now).search()
        if isinstance(preempting, Rejected):
            found.append(preempting)
        until = min((each.until for each in found if each.until is not None), default=None)
        says = found[-1].says
        if cast(self.life.holdings, request, pool, shape_of(request), now) is None:
            says = "it would not fit beside the reserved groups even if all other work ended"
        return Why(request.stage, says, until, ahead, tuple(found))

    def _reconsider(self, now: float) -> None:
        """Let whoever waits for victims take a group that has become free by itself."""
        holdings = self.life.holdings
        for request in [each for each in holdings.placed_requests() if each.stage is Stage.CLEARING]:
            pool = holdings.pools[request.request.pool]
            roomier = replace(pool, quota=pool.quota + holdings.groups[request.group_id].size)
            if (offer := Search(holdings, request, roomier, (), now).at_once()) is not None:
                self.life.take_instead(request, offer, now)

    def _rebuild(self, now: float) -> None:
        """Have reserved groups made that are not there."""
        holdings = self.life.holdings
        for pool in list(holdings.pools.values()):
            there = {
                group.reserved for group in holdings.groups_of(pool.name) if group.state is not GroupState.REMOVING
            }
            for index, shape in enumerate(pool.reserved):
                if index in there:
                    continue
                if (not_before := self.life.groups.rebuild_not_before(pool.name, index)) > now:
                    self._later(not_before)
                    continue
                idle = [group for group in holdings.free_groups() if group.reserved is None]
                beside = replace(pool, max_dynamic=None)
                found = make_room(holdings, beside, shape, sorted(idle, key=lambda each: each.since))
                if found is None:
                    continue
                nodes, evict = found
                for group_id in evict:
                    self.life.groups.remove(holdings.groups[group_id], now)
                if not evict:
                    reserve_group(self.life, pool.name, index, shape, nodes, now)

    def _everything(self, now: float) -> None:
        """Look at the reserved groups and at the line from its head."""
        life = self.life
        self._again_at = life.outbox.look_again_at = inf
        self._reconsider(now)
        self._rebuild(now)
        self.shadows = {}
        self._missed, self._missed_beside = set(), set()
        self._prospects = None
        missed = 0
        for request_id, number in life.queue.walk():
            if number in self._missed:
                continue
            if missed >= life.settings.backfill_depth:
                break
            missed += self._look_at(request_id, number, now) is False
        life.outbox.joined.clear()
        self._seen = life.outbox.version

    def _newcomers(self, joined: list[str], now: float) -> bool:
        """Look only at those who joined the line, since nothing got free; return False where that is not enough."""
        queue = self.life.queue
        waiting = sorted((each for each in joined if each in queue), key=queue.ahead_of)
        for shadow in self.shadows.values():
            passed = shadow.request_id not in queue or shadow.begins_at <= now
            if passed or any(queue.ahead_of(each) < queue.ahead_of(shadow.request_id) for each in waiting):
                return False
        for request_id in waiting:
            if (number := queue.number_of(request_id)) not in self._missed:
                self._look_at(request_id, number, now)
        return self._seen == self.life.outbox.version

    def _look_at(self, request_id: str, number: int, now: float) -> bool | None:
        """Return whether a request was placed; None where it is not to be looked at now."""
        request = self.life.holdings.requests[request_id]
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
        pool = self.life.holdings.pools[request.request.pool]
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
            self._prospects = Prospects(self.life.holdings, self.life.rules, self.life.budgets, now)
        prospect = self._prospects.of(request, pool)
        if prospect.allows(shape_of(request), self.life.holdings.nodes):
            return False
        self._later(prospect.until)
        return True

    def _search(self, request: Occupancy, pool: Pool, now: float) -> Search:
        return Search(self.life.holdings, request, pool, self._shadows_of_others(request), now)

    def _preempting(self, request: Occupancy, pool: Pool, now: float) -> Preemption:
        life, shadows = self.life, self._shadows_of_others(request)
        return Preemption(life.holdings, request, pool, life.rules, life.budgets, shadows, now)

    def _shadows_of_others(self, request: Occupancy) -> list[Shadow]:
        return [shadow for shadow in self.shadows.values() if shadow.request_id != request.request_id]

    def _shade(self, request: Occupancy, pool: Pool, now: float) -> None:
        if pool.name in self.shadows:
            return
        shadow = cast(self.life.holdings, request, pool, shape_of(request), now)
        if shadow is not None:
            self.shadows[pool.name] = shadow

    def _count_in_shadows(self, request: Occupancy, offer: Offer, now: float) -> None:
        if not self.shadows:
            return
        group = self.life.holdings.groups.get(offer.group_id)
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
        self._told = {request_id: told for request_id, told in self._told.items() if request_id in self.life.queue}

    def _reject(self, request: Occupancy, rejected: list[Rejected]) -> None:
        """Tell each step's reason once while the request waits, and look again when a rule ends by itself."""
        told = self._told.setdefault(request.request_id, set())
        for each in rejected:
            if each.until is not None:
                self._later(each.until)
            says = each.says.split(":")[0]
            if (each.step, says) not in told:
                told.add((each.step, says))
                self.life.outbox.tell(
                    events.StepRejected(request.request_id, request.request.pool, each.step, each.says)
                )

    def _tell_plan(self, request: Occupancy, offer: Offer) -> None:
        self.life.outbox.tell(
            events.PreemptionPlanned(
                request.request_id, request.request.pool, offer.victims, offer.lost_work_s, offer.reason
            )
        )


EXPLAINED: Final = 20
"""So many entries a pool are looked up: the first waiting request of each kind."""


@dataclass(frozen=True, slots=True)
class NotGiven:
    """A request that waits beside free groups of its pool; `says` is why it gets none of these, as in `why`."""

    request_id: str
    group_ids: tuple[str, ...]
    says: str


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """One pool's quota, and what its work holds: by right in reserved groups, in these on loan, and in dynamic ones.

    Free groups are not charged. `not_given` names who waits beside one.
    """

    pool: str
    quota: Amounts
    reserved: Amounts
    lent: Amounts
    dynamic: Amounts
    not_given: tuple[NotGiven, ...]

    @property
    def in_use(self) -> Amounts:
        """All that is charged to the pool."""
        return self.reserved + self.lent + self.dynamic


def usage(holdings: Holdings, backfill: Backfill, now: float) -> tuple[PoolUsage, ...]:
    """Return how much of each pool's quota is in use, by what, and who waits beside a free group."""
    not_given = _not_given(holdings, backfill, now)
    return tuple(
        PoolUsage(pool.name, pool.quota, **_held(holdings, pool.name), not_given=tuple(not_given.get(pool.name, ())))
        for pool in holdings.pools.values()
    )


def _held(holdings: Holdings, pool: str) -> dict[str, Amounts]:
    held = dict.fromkeys(("reserved", "lent", "dynamic"), NOTHING)
    for request_id in holdings.placed.get(pool, set()) - holdings.freed:
        request = holdings.requests[request_id]
        group = holdings.groups[request.group_id]
        held["dynamic" if group.reserved is None else "lent" if request.on_loan else "reserved"] += group.size
    return held


def _not_given(holdings: Holdings, backfill: Backfill, now: float) -> dict[str, list[NotGiven]]:
    waiting: dict[str, list[NotGiven]] = {group.pool: [] for group in holdings.free_groups()}
    seen: set[int] = set()
    for request_id, kind in backfill.life.queue.walk() if waiting else ():
        request = holdings.requests[request_id]
        told = waiting.get(request.request.pool)
        if told is not None and kind not in seen and len(told) < EXPLAINED:
            seen.add(kind)
            told += _refused(holdings, backfill, request, now)
    return waiting


def _refused(holdings: Holdings, backfill: Backfill, request: Occupancy, now: float) -> list[NotGiven]:
    pool = holdings.pools[request.request.pool]
    says = {each.step: each.says for each in backfill.refusals(request, now)}
    groups: dict[str, list[str]] = {}
    for group in holdings.free_groups():
        step = WIDE if group.reserved is None else RESERVED if by_right(request, pool) else LOAN
        if group.pool == pool.name and step in says:
            groups.setdefault(says[step], []).append(group.group_id)
    return [NotGiven(request.request_id, tuple(sorted(names)), reason) for reason, names in groups.items()]
