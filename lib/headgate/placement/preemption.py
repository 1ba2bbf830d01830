"""The step that stops others: which victims suffice for a request, at the least lost work, and where it then lies.

One search over everything that runs is exact only while there is little of it. What a request needs lies on few
nodes, though, and on each of them there is little: a node at a time is searched exactly, and the best is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, inf

from headgate.placement.amounts import NOTHING, Amounts, total
from headgate.placement.budgets import Budgets
from headgate.placement.durations import Durations, level
from headgate.placement.holdings import Holdings, Room, covers, fits, give, place, take
from headgate.placement.ladder import by_right, footprint, make_room, shape_of
from headgate.placement.outcomes import Offer, Rejected
from headgate.placement.pool import Group, GroupShape, NodeView, Pool
from headgate.placement.queue import Shadow
from headgate.placement.request import Occupancy, Stage
from headgate.placement.victims import (
    Candidate,
    Reason,
    Refusal,
    cheapest_set,
    is_shorter,
    lost_work,
    promoted_band,
    reason,
    refusal,
    too_close,
)

Worth = tuple[int, float, int, float]


def worth(victims: Sequence[Candidate]) -> Worth:
    """Return what is minimised: highest band, lost work, number, and minus the latest start."""
    return (
        max((each.band for each in victims), default=0),
        fsum(each.cost for each in victims),
        len(victims),
        -max((each.started_at for each in victims), default=0.0),
    )


PREEMPT = "preemption"
_ON_LOAN_BAND = -(10**9)


@dataclass(slots=True)
class Preemption:
    """One look for victims. Changes nothing.

    Attributes:
        until: the earliest time at which a victim that is spared now may be stopped; None where there is none.
        is_personal: whether somebody is spared because the two met lately, which others of the kind did not.
    """

    holdings: Holdings
    waiting: Occupancy
    pool: Pool
    budgets: Budgets
    durations: Durations
    shadows: Sequence[Shadow]
    now: float
    until: float | None = None
    is_personal: bool = False
    _reasons: dict[str, Reason] = field(default_factory=dict)
    _refusals: list[Refusal] = field(default_factory=list)
    _never: list[tuple[Occupancy, bool]] = field(default_factory=list)

    def search(self) -> Offer | Rejected:
        """Return a place with its victims, or why nobody is stopped."""
        candidates = self.candidates()
        if not candidates:
            return self._rejected("no running work may be preempted for it")
        chosen = self._best_victims(candidates)
        if chosen is None:
            return self._rejected("preempting all that may be preempted would not free enough")
        victims = frozenset(each.request_id for each in chosen)
        held_back = self._over_budget(victims)
        if held_back is not None:
            self._sooner(held_back.until)
            return Rejected(PREEMPT, held_back.says, self.until)
        offer = self._place(victims)
        assert offer is not None, "cheapest_set returns a sufficient set"
        size, taken = footprint(self.holdings, self.waiting, offer)  # what victims leave is not spared from those ahead
        delayed = [each for each in self.shadows if not each.allows(self.waiting, taken, size, self.now)]
        if delayed or not victims:
            ahead = delayed[0].request_id if delayed else "the first in the queue"
            return Rejected(PREEMPT, f"it would delay {ahead}", self.until)
        return replace(
            offer,
            victims={each.request_id: self._reasons[each.request_id] for each in chosen},
            lost_work_s=sum(each.cost for each in chosen),
        )

    def candidates(self) -> list[Candidate]:
        """Return what may be stopped for the request, one by one; budgets of a whole set are asked later."""
        candidates = []
        entitled, rules = by_right(self.waiting, self.pool), self.budgets.rules
        for victim in self.holdings.placed_requests():
            if victim.stage is Stage.CLEARING:
                continue
            victim_pool = self.holdings.pools[victim.request.pool]
            reclaim = victim.on_loan and entitled and victim.request.pool == self.pool.name
            shorter = is_shorter(self.waiting, victim, self.durations, rules, self.now)
            if not reclaim and too_close(self.waiting.request, victim.request, rules, shorter=shorter):
                self._never.append((victim, shorter))
                continue
            held = self._held(victim, victim_pool, reclaim=reclaim, shorter=shorter)
            if held is not None:
                self._refusals.append(held)
                self._sooner(held.until)
                continue
            self._reasons[victim.request_id] = reason(
                self.waiting.request, victim.request, self.budgets.rules, reclaim=reclaim, shorter=shorter
            )
            band = _ON_LOAN_BAND if reclaim else promoted_band(victim, rules)
            cost = lost_work(victim, self.holdings.cluster, self.now)
            started_at = self.now if victim.started_at is None else victim.started_at
            candidates.append(Candidate(victim.request_id, band, cost, started_at))
        return candidates

    def _best_victims(self, candidates: Sequence[Candidate]) -> tuple[Candidate, ...] | None:
        """Return the best sufficient set that any search finds, or None if stopping all would not be enough."""
        best = cheapest_set(candidates, self._is_enough)
        if not best or len(candidates) == 1:
            return best
        highest_band = max(each.band for each in best)
        for where in self._neighbours([each for each in candidates if each.band <= highest_band]):
            found = cheapest_set(where, self._is_enough) if where else None
            if found is not None and worth(found) < worth(best):
                best = found
        return best

    def _neighbours(self, able: Sequence[Candidate]) -> Iterator[list[Candidate]]:
        """Return candidates that belong together: of one node, or of the nodes of a gang."""
        request = self.waiting.request
        if len(request.bundles) == 1 or request.strategy in {"STRICT_PACK", "PACK"}:
            for node in self.holdings.nodes:
                yield [each for each in able if node in self._group_of(each.request_id).nodes]
        if len(request.bundles) > 1 and request.strategy != "STRICT_PACK":
            yield self._member_by_member(able)

    def _member_by_member(self, able: Sequence[Candidate]) -> list[Candidate]:
        """Return what clears each bundle of the gang in turn where that loses least."""
        room = self.holdings.room_without(self.holdings.free_groups())  # idle dynamic ones cost nothing
        chosen: list[Candidate] = []
        used: set[str] = set()
        for bundle in self.waiting.request.bundles:
            left = [each for each in able if each not in chosen]
            found = self._cheapest_node(bundle, room, left, used)
            if found is None:
                return []
            node, victims = found
            for victim in victims:
                self.holdings.count_out(self._group_of(victim.request_id), room)
            take(room[node], bundle)
            used.add(node)
            chosen.extend(victims)
        return chosen

    def _cheapest_node(
        self, bundle: Amounts, room: Room, left: Sequence[Candidate], used: set[str]
    ) -> tuple[str, tuple[Candidate, ...]] | None:
        spread = self.waiting.request.strategy in {"SPREAD", "STRICT_SPREAD"}
        best: tuple[Worth, str, tuple[Candidate, ...]] | None = None
        for node_id, node in self.holdings.nodes.items():
            if (spread and node_id in used) or not node.has(self.waiting.request.node_labels):
                continue
            there = [each for each in left if node_id in self._group_of(each.request_id).nodes]

            def clears(gone: frozenset[str], at: str = node_id) -> bool:
                units = dict(room[at])
                for group in map(self._group_of, gone):
                    self.holdings.count_out(group, {at: units})
                return fits(units, bundle)

            victims = cheapest_set(there, clears)
            if victims is not None and (best is None or (worth(victims), node_id) < best[:2]):
                best = (worth(victims), node_id, victims)
        return None if best is None else best[1:]

    def _group_of(self, request_id: str) -> Group:
        return self.holdings.groups[self.holdings.requests[request_id].group_id]

    def _is_enough(self, gone: frozenset[str]) -> bool:
        return self._place(gone) is not None

    def _held(self, victim: Occupancy, victim_pool: Pool, *, reclaim: bool, shorter: bool) -> Refusal | None:
        """Return why a victim is spared; what spares it for ever comes before what spares it for now."""
        wanted = self.waiting.request
        rules = self.budgets.rules
        held = refusal(wanted, victim, victim_pool, rules, self.now, reclaim=reclaim, shorter=shorter)
        if held is not None and held.until is not None:
            later = refusal(wanted, victim, victim_pool, rules, held.until, reclaim=reclaim, shorter=shorter)
            return later if later is not None and later.until is None else held
        if held is None and not reclaim:
            held = self.budgets.allows(victim_pool, [victim], wanted.request_id, self._running(victim_pool), self.now)
            self.is_personal |= held is not None and held.rule == "pair_interval"
        return held

    def _running(self, pool: Pool) -> list[Occupancy]:
        return [self.holdings.requests[each] for each in self.holdings.placed.get(pool.name, ())]

    def _over_budget(self, victims: frozenset[str]) -> Refusal | None:
        charged = [self.holdings.requests[each] for each in victims if self._reasons[each] != "reclaimed"]
        for name in {victim.request.pool for victim in charged}:
            pool, of_pool = self.holdings.pools[name], [each for each in charged if each.request.pool == name]
            held = self.budgets.allows(pool, of_pool, self.waiting.request_id, self._running(pool), self.now)
            if held is not None:
                return held
        return None

    def _place(self, gone: frozenset[str]) -> Offer | None:
        """Return where the request lies once these victims are gone: in a group as it is, or in a new one."""
        victims = [self.holdings.requests[each] for each in gone]
        mine = [victim for victim in victims if victim.request.pool == self.pool.name]
        freed = total(self.holdings.groups[victim.group_id].size for victim in mine) if mine else NOTHING
        shape = shape_of(self.waiting)
        free = [group for group in self.holdings.free_groups() if group.pool == self.pool.name]
        standing = [*free, *(self.holdings.groups[victim.group_id] for victim in mine)]
        fitting = [
            group
            for group in standing
            if (group.reserved is None or by_right(self.waiting, self.pool))
            and covers(group.shape, group.nodes, shape, self.holdings.nodes)
            and self.holdings.within_quota(self.pool, group.size, freed)
        ]
        if fitting:
            best = min(fitting, key=lambda group: (1 / max(1e-9, shape.size.share_of(group.size)), group.group_id))
            return Offer(PREEMPT, group_id=best.group_id)
        if not self.holdings.within_quota(self.pool, shape.size, freed):
            return None
        going = [*self.holdings.free_groups(), *(self.holdings.groups[victim.group_id] for victim in victims)]
        found = make_room(self.holdings, self.pool, shape, [group for group in going if self.holdings.may_go(group)])
        return None if found is None else Offer(PREEMPT, nodes=found[0], evict=found[1])

    def _sooner(self, until: float | None) -> None:
        if until is not None and (self.until is None or until < self.until):
            self.until = until

    def _rejected(self, says: str) -> Rejected:
        """Name the refusals by rule with one example each, so that people see what to change."""
        by_rule: dict[str, list[str]] = {}
        for victim, shorter in self._never:
            held = self._held(victim, self.holdings.pools[victim.request.pool], reclaim=False, shorter=shorter)
            if held is not None:
                self._refusals.append(held)
        for held in self._refusals:
            by_rule.setdefault(held.rule, []).append(held.says)
        reasons = "; ".join(f"{len(all_)} x {rule} ({all_[0]})" for rule, all_ in sorted(by_rule.items()))
        return Rejected(PREEMPT, f"{says}: {reasons}" if reasons else says, self.until)


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


def prospect_of(preempting: Preemption) -> Prospect:
    """Return what requests of this pool, priority and labels could have at best, as the book stands at this moment.

    Who may be stopped for whom depends on these alone, but for pairs that met lately; those are left out, which makes
    a prospect too good at most.
    """
    holdings, pool, waiting = preempting.holdings, preempting.pool, preempting.waiting
    anybody = replace(
        preempting,
        waiting=replace(
            waiting,
            request=replace(waiting.request, request_id=""),
            submitted_at=-inf,
            left_s=2.0 ** level(waiting.left_s),
        ),
    )
    victims = [holdings.requests[each.request_id] for each in anybody.candidates()]
    going = [*holdings.free_groups(), *(holdings.groups[each.group_id] for each in victims)]
    quota = dict(holdings.quota_left(pool).units)
    is_short = any(units < 0 for free in holdings.room.values() for units in free.values())
    for victim in victims:
        if victim.request.pool == pool.name and victim.request_id not in holdings.freed:
            give(quota, holdings.groups[victim.group_id].size)
    made = holdings.dynamic_count(pool.name) - sum(holdings.may_go(each) for each in going if each.pool == pool.name)
    makes = pool.max_dynamic is None or made < pool.max_dynamic
    as_they_are = tuple(
        group for group in going if group.pool == pool.name and (group.reserved is not None or is_short or not makes)
    )
    return Prospect(
        quota, holdings.room_without(going), as_they_are, makes, inf if anybody.until is None else anybody.until
    )
