"""One pass over the queue: rebuild reserved groups, place the requests that fit, and cast shadows for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from headgate.core import events
from headgate.placement.amounts import NOTHING, Amounts
from headgate.placement.errors import CannotFitError
from headgate.placement.ladder import LOAN, RESERVED, WIDE, Search, by_right, footprint, make_room, must_fit, shape_of
from headgate.placement.lifecycle import Lifecycle
from headgate.placement.outcomes import Offer, Rejected, Why
from headgate.placement.pool import GroupState, Pool
from headgate.placement.preemption import NOBODY, PREEMPT, Preemption, Prospect, Runners, prospect_of
from headgate.placement.queue import Shadow, cast
from headgate.placement.request import Occupancy, Stage
from headgate.placement.victims import turn_at


@dataclass(slots=True)
class Backfill:
    """Places requests in queue order. Owned by the ledger.

    A pass costs only as much as has changed: a request of the same kind as one that found no place is skipped until
    room, quota or rules change, and a request whose reasons are already reported gets a cheap bound check first.
    """

    life: Lifecycle
    shadows: dict[str, Shadow] = field(default_factory=dict)
    _seen: int = -1
    _again_at: float = inf
    _told: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    _missed: set[int] = field(default_factory=set)
    _missed_beside: set[tuple[int, tuple[bool, ...]]] = field(default_factory=set)
    _hopeless: dict[tuple[object, ...], list[tuple[float, int]]] = field(default_factory=dict)
    _prospects: dict[tuple[object, ...], Prospect] = field(default_factory=dict)
    _climbed: dict[tuple[object, ...], list[Rejected]] = field(default_factory=dict)
    _runners: Runners | None = None

    def run(self, now: float) -> None:
        """Place every request that can be placed now."""
        life = self.life
        joined, life.outbox.joined = life.outbox.joined, []
        self._look_anew()
        is_due = self._seen != life.outbox.version or now >= min(self._again_at, life.outbox.look_again_at)
        if is_due or (joined and not self._newcomers(joined, now)):
            self._everything(now)
        if len(self._told) > 2 * len(life.queue) + 16:
            self._told = {each: told for each, told in self._told.items() if each in life.queue}
        if self._again_at < inf:
            life.outbox.wake_at(self._again_at)

    def why(self, request: Occupancy, now: float) -> Why:
        """Return what a request is waiting for, or how it stands."""
        if request.stage.has_ended:
            return Why(request.stage, request.note or f"it is {request.stage}")
        if request.stage is Stage.CLEARING:
            waits_for = ", ".join(sorted(request.victims | request.evicting))
            return Why(request.stage, f"it gets {request.group_id} once {waits_for} have stopped")
        if request.stage is Stage.STOPPING:
            return Why(request.stage, f"it is being stopped: {request.note or request.stop_reason}")
        if request.stage is not Stage.WAITING:
            return Why(request.stage, f"it has {request.group_id}")
        return self._why_waiting(request, now)

    def refusals(self, request: Occupancy, now: float) -> list[NotGiven]:
        """Return why a waiting request gets none of the free groups of its pool, one entry per reason."""
        holdings = self.life.holdings
        pool = holdings.pools[request.request.pool]
        found = self._search(request, pool, now).climb()
        says = {} if isinstance(found, Offer) else {each.step: each.says for each in found}
        groups: dict[str, list[str]] = {}
        for group in holdings.free_groups():
            step = WIDE if group.reserved is None else RESERVED if by_right(request, pool) else LOAN
            if group.pool == pool.name and step in says:
                groups.setdefault(says[step], []).append(group.group_id)
        return [NotGiven(request.request_id, tuple(sorted(names)), reason) for reason, names in groups.items()]

    def _why_waiting(self, request: Occupancy, now: float) -> Why:
        pool = self.life.holdings.pools[request.request.pool]
        ahead = self.life.queue.ahead_of(request.request_id)
        found = self._search(request, pool, now).climb()
        if isinstance(found, Offer):
            until = request.not_before if request.not_before > now else None
            return Why(request.stage, "it is next: there is room for it", until, ahead)
        self._look_anew()
        preempting = self._preempting(request, pool, now)
        if isinstance(stopping := preempting.search(), Rejected):
            found.append(preempting.explained(stopping))
        until = min((each.until for each in found if each.until is not None), default=None)
        says = found[-1].says
        if self._shadow_of(request, pool, now) is None:
            says = "it would not fit even if all other work ended"
            try:
                must_fit(self.life.holdings, pool, request.request)
            except CannotFitError as error:  # as when the quota was lowered since
                says = error.message
        return Why(request.stage, says, until, ahead, tuple(found))

    def _reconsider(self, now: float) -> None:
        """Let each request that waits for victims take a group that has become free without them."""
        holdings = self.life.holdings
        for request in [each for each in holdings.placed_requests() if each.stage is Stage.CLEARING]:
            pool = holdings.pools[request.request.pool]
            roomier = replace(pool, quota=pool.quota + holdings.groups[request.group_id].size)
            if (offer := Search(holdings, request, roomier, (), now).at_once()) is not None:
                self.life.take_instead(request, offer, now)

    def _rebuild(self, now: float) -> None:
        """Create the reserved groups that are missing."""
        holdings = self.life.holdings
        for pool in list(holdings.pools.values()):
            there = {each.reserved for each in holdings.groups_of(pool.name) if each.state is not GroupState.REMOVING}
            for index, shape in enumerate(pool.reserved):
                if index in there:
                    continue
                if (not_before := self.life.rebuild_at.get((pool.name, index), 0.0)) > now:
                    self._later(not_before)
                    continue
                found = make_room(holdings, replace(pool, max_dynamic=None), shape, holdings.idle_groups())
                if found is None:
                    continue
                nodes, evict = found
                for group_id in evict:
                    self.life.remove(holdings.groups[group_id], now)
                if not evict:
                    self.life.reserve(pool.name, index, shape, nodes, now)

    def _everything(self, now: float) -> None:
        """Look at the reserved groups, then at the queue from its head."""
        life = self.life
        self._again_at = life.outbox.look_again_at = inf
        life.look_at_statements(now)
        self._reconsider(now)
        self._rebuild(now)
        self._go_along(now)
        if life.rules.short_first:
            self._later(
                min((life.durations.changes_at(each, now) for each in life.holdings.placed_requests()), default=inf)
            )
        life.outbox.joined.clear()
        self._seen = life.outbox.version

    def _go_along(self, now: float) -> None:
        """Walk the queue from its head; again after each preemption, since a request that was passed may be next."""
        while self._walk(now):
            pass

    def _walk(self, now: float) -> bool:
        """Walk the queue from its head until a request preempts work; return whether one did."""
        life, stops = self.life, len(self.life.holdings.freed)
        self.shadows = {}
        self._missed, self._missed_beside, self._hopeless = set(), set(), {}
        self._prospects.clear()
        missed, passed = 0, set[int]()
        for request_id, number in life.queue.walk(passed):
            if missed >= life.settings.backfill_depth:
                break
            outcome = self._look_at(request_id, number, now)
            missed += outcome is False
            if len(life.holdings.freed) > stops:
                return True
            if not outcome and self._is_passed(request_id, number, now):
                passed.add(number)
        return False

    def _newcomers(self, joined: list[str], now: float) -> bool:
        """Look only at requests that just joined, as nothing was freed; return False where a full pass is needed."""
        queue = self.life.queue
        waiting = sorted((each for each in joined if each in queue), key=queue.place_of)
        for shadow in self.shadows.values():
            passed = shadow.request_id not in queue or shadow.begins_at <= now
            if passed or (waiting and queue.place_of(waiting[0]) < queue.place_of(shadow.request_id)):
                return False
        stops = len(self.life.holdings.freed)
        for request_id in waiting:
            if (number := queue.number_of(request_id)) not in self._missed:
                self._look_at(request_id, number, now)
            if len(self.life.holdings.freed) > stops:
                self._go_along(now)  # without `_reconsider`: requests that wait for victims keep their places for now
                break
        return self._seen == self.life.outbox.version

    def _look_at(self, request_id: str, number: int, now: float) -> bool | None:
        """Place a request if possible; otherwise cast its shadow, if it is the first of its pool.

        Returns:
            Whether it was placed; None where it is skipped for now.
        """
        request = self.life.holdings.requests[request_id]
        if request.not_before > now:
            self._later(request.not_before)
            return None
        if (beside := self._beside(request, number, now)) in self._missed_beside:
            return None
        pool = self.life.holdings.pools[request.request.pool]
        is_shaded, prospect, is_personal = bool(self.shadows), self._prospect(request, pool, now), False
        found: Offer | list[Rejected] = []
        if prospect is not None or request_id not in self._told:
            found = self._climb(request, pool, beside[1], now)
            if not isinstance(found, Offer):
                found, is_personal = self._stop_others(request, pool, found, prospect, now)
        if isinstance(found, Offer):
            self._told.pop(request_id, None)
            size, taken = footprint(self.life.holdings, request, found)
            for shadow in self.shadows.values():
                shadow.took(request, taken, size, now)
            self.life.promise(request, found, now)
            self._prospects.clear()
            self._climbed.clear()
            if self._runners is not None:
                self._runners.add(request)
            return True
        self._shade(request, pool, now)
        if prospect is None or not (is_personal or is_shaded):
            self._missed.add(number)
        elif not is_personal:
            self._missed_beside.add(beside)
        return False

    def _beside(self, request: Occupancy, number: int, now: float) -> tuple[int, tuple[bool, ...]]:
        """Return a key: beside shadows, a request finds no place where another one with the same key found none."""
        return number, tuple(shadow.outlasts(request, now) for shadow in self.shadows.values())

    def _is_passed(self, request_id: str, number: int, now: float) -> bool:
        """Tell whether no request of the same kind as this waiting one can find a place in this pass."""
        if number in self._missed:
            return True
        request, queue = self.life.holdings.requests[request_id], self.life.queue
        return self._beside(request, number, now) in self._missed_beside and all(
            queue.are_alike(request_id, shadow, now) for shadow in self.shadows.values()
        )

    def _climb(self, request: Occupancy, pool: Pool, outlasts: tuple[bool, ...], now: float) -> Offer | list[Rejected]:
        """Return a place without preemption, or why there is none; computed once for all requests alike."""
        *shape, _, priority, _ = self.life.queue.kind_of(request.request_id)
        key = (*shape, None if by_right(request, pool) else priority, outlasts)
        if key in self._climbed:
            return self._climbed[key]
        found = self._search(request, pool, now).climb()
        if not isinstance(found, Offer) and all(
            each.request_id != request.request_id for each in self.shadows.values()
        ):
            self._climbed[key] = found
        return found

    def _stop_others(
        self, request: Occupancy, pool: Pool, rejected: list[Rejected], prospect: Prospect | None, now: float
    ) -> tuple[Offer | list[Rejected], bool]:
        """Return a place by preemption, or why there is none; and whether the answer holds for this request alone."""
        name, told = request.request_id, self._told.setdefault(request.request_id, set())
        if prospect is not None and not prospect.stops and (PREEMPT, NOBODY) in told:
            self._later(prospect.until)
            self._tell(request, rejected)
            return rejected, False
        preempting = self._preempting(request, pool, now)
        outcome = preempting.search()
        if isinstance(outcome, Rejected):
            is_new = (outcome.step, _reason(outcome)) not in told
            self._tell(request, [*rejected, preempting.explained(outcome) if is_new else outcome])
            return rejected, preempting.is_personal
        first = next(iter(outcome.victims.values()))
        self.life.outbox.tell(
            events.PreemptionPlanned(name, pool.name, tuple(outcome.victims), outcome.lost_work_s, first)
        )
        return outcome, False

    def _tell(self, request: Occupancy, rejected: Sequence[Rejected]) -> None:
        """Report each reason once while a request waits."""
        told = self._told[request.request_id]
        for each in rejected:
            if each.until is not None:
                self._later(each.until)
            if (reason := (each.step, _reason(each))) not in told:
                told.add(reason)
                self.life.outbox.tell(
                    events.StepRejected(request.request_id, request.request.pool, each.step, each.says)
                )

    def _prospect(self, request: Occupancy, pool: Pool, now: float) -> Prospect | None:
        """Return an upper bound of what a request could get: no shadows, no budgets of a set, and every victim stopped.

        None where even that gives it no place.
        """
        *shape, labels, priority, length = self.life.queue.kind_of(request.request_id)
        hopeless = self._hopeless.setdefault((*shape, labels), [])
        if any(priority <= other and length >= shorter for other, shorter in hopeless):
            return None
        key = (pool.name, priority, labels, length, self._is_first(request, pool))
        if key not in self._prospects:
            self._prospects[key] = prospect_of(self._preempting(request, pool, now))
        prospect = self._prospects[key]
        if prospect.allows(shape_of(request), self.life.holdings.nodes):
            return prospect
        self._later(prospect.until)
        hopeless.append((priority, length))
        return None

    def _search(self, request: Occupancy, pool: Pool, now: float) -> Search:
        life, shadows = self.life, self._shadows_of_others(request)
        return Search(life.holdings, request, pool, shadows, now, others_wait=len(life.queue) > 1)

    def _preempting(self, request: Occupancy, pool: Pool, now: float) -> Preemption:
        life = self.life
        if self._runners is None:
            self._runners = Runners(life.holdings, life.durations, life.rules, now)
        shadows = self._shadows_of_others(request)
        in_turn = self._is_first(request, pool)
        return Preemption(life.holdings, request, pool, life.budgets, self._runners, shadows, now, in_turn)

    def _is_first(self, request: Occupancy, pool: Pool) -> bool:
        """Tell whether a request is the one of its pool that has the reservation, or would get it."""
        return pool.name not in self.shadows or self.shadows[pool.name].request_id == request.request_id

    def _look_anew(self) -> None:
        """Drop what was derived from an earlier state of the ledger."""
        self._runners = None
        self._climbed.clear()

    def _shadows_of_others(self, request: Occupancy) -> list[Shadow]:
        return [shadow for shadow in self.shadows.values() if shadow.request_id != request.request_id]

    def _shadow_of(self, request: Occupancy, pool: Pool, now: float) -> Shadow | None:
        rules = self.life.rules
        guesses, is_due = self.life.durations if rules.short_first else None, turn_at(request, rules) <= now
        return cast(self.life.holdings, request, pool, shape_of(request), now, guesses, is_due=is_due)

    def _shade(self, request: Occupancy, pool: Pool, now: float) -> None:
        if pool.name not in self.shadows and (shadow := self._shadow_of(request, pool, now)) is not None:
            self.shadows[pool.name] = shadow
            if shadow.due is None:
                self._later(turn_at(request, self.life.rules))

    def _later(self, at: float) -> None:
        self._again_at = min(at, self._again_at)


def _reason(rejected: Rejected) -> str:
    """Return why a step was refused, without the examples."""
    return rejected.says.split(":")[0]


EXPLAINED: Final = 20
"""Most requests per pool for which refusals are looked up: the first waiting request of each kind."""


@dataclass(frozen=True, slots=True)
class NotGiven:
    """A request that waits although its pool has free groups; `says` is why it gets none of them, as in `why`."""

    request_id: str
    group_ids: tuple[str, ...]
    says: str


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """One pool's quota and what its work holds: reserved groups by right, reserved groups on loan, and dynamic groups.

    Free groups are not charged. `not_given` lists the requests that wait although one is free.
    """

    pool: str
    quota: Amounts
    reserved: Amounts
    lent: Amounts
    dynamic: Amounts
    not_given: tuple[NotGiven, ...]

    @property
    def in_use(self) -> Amounts:
        """Everything charged to the pool."""
        return self.reserved + self.lent + self.dynamic


def usage(backfill: Backfill, now: float) -> tuple[PoolUsage, ...]:
    """Return how much of each pool's quota is in use, by what, and which requests wait although a group is free."""
    holdings = backfill.life.holdings
    not_given: dict[str, list[NotGiven]] = {name: [] for name in holdings.pools}
    with_free_groups = {group.pool for group in holdings.free_groups()}
    seen: set[int] = set()
    for request_id, kind in backfill.life.queue.walk() if with_free_groups else ():
        waiting = holdings.requests[request_id]
        told = not_given[waiting.request.pool]
        if waiting.request.pool in with_free_groups and kind not in seen and len(told) < EXPLAINED:
            seen.add(kind)
            told += backfill.refusals(waiting, now)
    usages = []
    for pool in holdings.pools.values():
        held = dict.fromkeys(("reserved", "lent", "dynamic"), NOTHING)
        for request_id in holdings.placed.get(pool.name, set()) - holdings.freed:
            request = holdings.requests[request_id]
            group = holdings.groups[request.group_id]
            held["dynamic" if group.reserved is None else "lent" if request.on_loan else "reserved"] += group.size
        usages.append(PoolUsage(pool.name, pool.quota, **held, not_given=tuple(not_given[pool.name])))
    return tuple(usages)
