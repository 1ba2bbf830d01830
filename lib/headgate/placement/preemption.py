"""The preemption step: which victims suffice for a request, at the least lost work, and where it is then placed.

A search over all running work is exact only while there is little of it. But a request needs only a few nodes, and each
node runs little work: so each node is searched exactly, too, and the best set is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, inf
from typing import Final

from headgate.placement.amounts import NOTHING, Amounts, total
from headgate.placement.budgets import Budgets
from headgate.placement.durations import Durations, level
from headgate.placement.holdings import Holdings, Room, could_place, covers, fits, give, take
from headgate.placement.ladder import by_right, footprint, make_room, shape_of
from headgate.placement.outcomes import Offer, Rejected
from headgate.placement.pool import Group, GroupShape, NodeView, Pool
from headgate.placement.queue import Shadow, ranking_labels
from headgate.placement.request import Occupancy, Stage
from headgate.placement.rules import PreemptionRules
from headgate.placement.victims import (
    OUTRANKED,
    Candidate,
    Reason,
    Refusal,
    Runner,
    cheapest_set,
    giving_way,
    kept,
    lost_work,
    out_of_reach,
    promoted_band,
    reason,
    refusal,
    runner,
    too_close,
)

Worth = tuple[int, float, int, float]


def worth(victims: Sequence[Candidate]) -> Worth:
    """Return the values to minimise: highest band, lost work, number of victims, and minus the latest start."""
    return (
        max((each.band for each in victims), default=0),
        fsum(each.cost for each in victims),
        len(victims),
        -max((each.started_at for each in victims), default=0.0),
    )


PREEMPT = "preemption"
NOBODY: Final = "no running work may be preempted for it"
TOO_LITTLE: Final = "preempting all that may be preempted would not free enough"
_ON_LOAN_BAND = -(10**9)


Rank = tuple[str, float, tuple[tuple[str, str | None], ...], int, bool]
"""What preemption rules depend on: pool, priority, labels, band, and whether work runs on loan."""


@dataclass(slots=True)
class Runners:
    """A snapshot of all work that holds a group, or is promised one without waiting for victims.

    Attributes:
        by_rank: the work, grouped by what preemption rules depend on.
        is_short: whether more is promised on some node than it has.
    """

    holdings: Holdings
    durations: Durations
    rules: PreemptionRules
    now: float
    by_rank: dict[Rank, list[Runner]] = field(default_factory=dict)
    is_short: bool = False

    def __post_init__(self) -> None:
        self.is_short = any(units < 0 for free in self.holdings.room.values() for units in free.values())
        for each in self.holdings.placed_requests():
            self.add(each)

    def add(self, placed: Occupancy) -> None:
        """Add a request that was placed since."""
        if placed.stage is not Stage.CLEARING:
            of = placed.request
            labels = ranking_labels(of, self.rules)
            rank = (of.pool, of.priority, labels, promoted_band(placed, self.rules), placed.on_loan)
            self.by_rank.setdefault(rank, []).append(runner(placed, self.durations, self.rules, self.now))


@dataclass(slots=True)
class Preemption:
    """One search for victims. Changes nothing.

    Attributes:
        runners: running work as of `now`.
        in_turn: whether the request is the first waiting one of its pool, for which work that passed it may stop.
        until: the earliest time at which a victim that is spared now may be stopped; None if there is none.
        is_personal: whether work is spared because one preempted the other lately: others of the kind may differ.
    """

    holdings: Holdings
    waiting: Occupancy
    pool: Pool
    budgets: Budgets
    runners: Runners
    shadows: Sequence[Shadow]
    now: float
    in_turn: bool
    until: float | None = None
    is_personal: bool = False
    _reasons: dict[str, Reason] = field(default_factory=dict)
    _refusals: list[Refusal] = field(default_factory=list)
    _never: list[tuple[list[Runner], set[Runner]]] = field(default_factory=list)

    def search(self) -> Offer | Rejected:
        """Return a place with its victims, or why no work is stopped."""
        candidates = [self._candidate(*each) for each in self.stoppable()]
        if not candidates:
            return Rejected(PREEMPT, NOBODY, self.until)
        chosen = self._best_victims(candidates)
        if chosen is None:
            return Rejected(PREEMPT, TOO_LITTLE, self.until)
        victims = frozenset(each.request_id for each in chosen)
        held_back = self._over_budget(victims)
        if held_back is not None:
            self._sooner(held_back.until)
            return Rejected(PREEMPT, held_back.says, self.until)
        offer = self._place(victims)
        assert offer is not None, "cheapest_set returns a sufficient set"
        size, taken = footprint(self.holdings, self.waiting, offer)  # shadows also cover the room that victims free
        delayed = [each for each in self.shadows if not each.allows(self.waiting, taken, size, self.now)]
        if delayed or not victims:
            ahead = delayed[0].request_id if delayed else "the first in the queue"
            return Rejected(PREEMPT, f"it would delay {ahead}", self.until)
        return replace(
            offer,
            victims={each.request_id: self._reasons[each.request_id] for each in chosen},
            lost_work_s=sum(each.cost for each in chosen),
        )

    def stoppable(self) -> Iterator[tuple[Runner, bool, bool]]:
        """Yield each work that may be stopped for the request, whether its group is reclaimed, and whether by length.

        Budgets of a whole set are checked later.
        """
        entitled, rules, wanted = by_right(self.waiting, self.pool), self.budgets.rules, self.waiting.request
        for (pool, _, _, _, on_loan), among in self.runners.by_rank.items():
            first = among[0].occupancy
            reclaim = on_loan and entitled and pool == self.pool.name
            spared_by = "" if reclaim else too_close(wanted, first.request, rules, shorter=False)
            is_able = spared_by not in {"", OUTRANKED}
            longer = giving_way(self.waiting, among, rules, in_turn=self.in_turn) if is_able else set()
            if spared_by:
                self._never.append((among, longer))
            for victim in longer if spared_by else among:
                shorter = victim in longer
                held = self._held(victim, self.holdings.pools[pool], reclaim=reclaim, shorter=shorter)
                if held is None:
                    yield victim, reclaim, shorter
                else:
                    self._refusals.append(held)
                    self._sooner(held.until)

    def explained(self, rejected: Rejected) -> Rejected:
        """Return an answer of `search` with the refusals by rule and an example of each, to show what to change."""
        if rejected.says not in {NOBODY, TOO_LITTLE}:
            return rejected
        by_rule: dict[str, list[str]] = {}
        for among, stoppable in self._never:
            first = among[0].occupancy
            pool = self.holdings.pools[first.request.pool]
            kept_by = kept(self.waiting.request, first, pool, self.budgets.rules, shorter=False)
            for each in among:
                if each in stoppable:
                    continue
                for_ever = each.spared if each.spared is not None and each.spared.until is None else kept_by
                if (held := out_of_reach(each.occupancy, reclaim=False) or for_ever) is not None:
                    self._refusals.append(held)
        for held in self._refusals:
            by_rule.setdefault(held.rule, []).append(held.says)
        reasons = "; ".join(f"{len(all_)} x {rule} ({all_[0]})" for rule, all_ in sorted(by_rule.items()))
        return replace(rejected, says=f"{rejected.says}: {reasons}") if reasons else rejected

    def _candidate(self, victim: Runner, reclaim: bool, shorter: bool) -> Candidate:
        running, rules = victim.occupancy, self.budgets.rules
        self._reasons[running.request_id] = reason(
            self.waiting.request, running.request, rules, reclaim=reclaim, shorter=shorter
        )
        band = _ON_LOAN_BAND if reclaim else promoted_band(running, rules)
        started_at = self.now if running.started_at is None else running.started_at
        return Candidate(running.request_id, band, lost_work(running, self.holdings.cluster, self.now), started_at)

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
        """Yield subsets of candidates to search: those of one node, or those chosen member by member for a gang."""
        request = self.waiting.request
        if len(request.bundles) == 1 or request.strategy in {"STRICT_PACK", "PACK"}:
            for node in self.holdings.nodes:
                yield [each for each in able if node in self._group_of(each.request_id).nodes]
        if len(request.bundles) > 1 and request.strategy != "STRICT_PACK":
            yield self._member_by_member(able)

    def _member_by_member(self, able: Sequence[Candidate]) -> list[Candidate]:
        """Return victims that make room for each bundle of the gang in turn, on the node where that loses least."""
        room = self.holdings.room_without(self.holdings.free_groups())  # removing idle dynamic groups costs nothing
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

    def _held(self, victim: Runner, victim_pool: Pool, *, reclaim: bool, shorter: bool) -> Refusal | None:
        """Return why a victim is spared; permanent reasons come before temporary ones."""
        wanted, rules, running = self.waiting.request, self.budgets.rules, victim.occupancy
        held = out_of_reach(running, reclaim=reclaim)
        if held is not None or reclaim:
            return held
        if (held := victim.spared) is not None and held.until is not None:
            later = refusal(wanted, running, victim_pool, rules, held.until, shorter=shorter)
            return later if later is not None and later.until is None else held
        held = held or kept(wanted, running, victim_pool, rules, shorter=shorter)
        if held is None:
            held = self.budgets.allows(victim_pool, [running], wanted.request_id, self._running(victim_pool), self.now)
            self.is_personal |= held is not None and held.rule == "pair_interval"
        return held

    def _running(self, pool: Pool) -> Iterator[Occupancy]:
        return (self.holdings.requests[each] for each in self.holdings.placed.get(pool.name, ()))

    def _over_budget(self, victims: frozenset[str]) -> Refusal | None:
        charged = [self.holdings.requests[each] for each in victims if self._reasons[each] != "reclaimed"]
        for name in {victim.request.pool for victim in charged}:
            pool, of_pool = self.holdings.pools[name], [each for each in charged if each.request.pool == name]
            held = self.budgets.allows(pool, of_pool, self.waiting.request_id, self._running(pool), self.now)
            if held is not None:
                return held
        return None

    def _place(self, gone: frozenset[str]) -> Offer | None:
        """Return the request's place once these victims are gone: an existing group, or a new one."""
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


@dataclass(frozen=True, slots=True)
class Prospect:
    """An upper bound of what a request of one pool, priority and labels could get.

    Attributes:
        quota: the quota left in the pool if all work that may be stopped were gone.
        room: the room left on the nodes if, in addition, all idle dynamic groups were gone.
        groups: groups that could be taken as they are and are not covered by `room`.
        stops: whether any work may be stopped.
        makes: whether a new group could be created if everything that may be removed were gone.
        until: when other work may be stopped; infinite if that does not happen by itself.
    """

    quota: Mapping[str, int]
    room: Room
    groups: tuple[Group, ...]
    stops: bool
    makes: bool
    until: float

    def allows(self, shape: GroupShape, nodes: Mapping[str, NodeView]) -> bool:
        """Tell whether a shape could be placed at all; if not, no step finds a place."""
        if not fits(self.quota, shape.size):
            return False
        if self.makes and could_place(shape, self.room, nodes):
            return True
        return any(covers(group.shape, group.nodes, shape, nodes) for group in self.groups)


def prospect_of(preempting: Preemption) -> Prospect:
    """Return an upper bound of what requests of this pool, priority and labels could get in the current state.

    Which work may be stopped depends on these alone, except for pairs of which one preempted the other lately;
    these are ignored, which can only make the bound too high.
    """
    holdings, pool, waiting = preempting.holdings, preempting.pool, preempting.waiting
    # As large as the cluster, since work gives way only to work that is at least as large.
    request = replace(waiting.request, request_id="", bundles=(holdings.cluster,))
    anybody = replace(
        preempting, waiting=Occupancy(request, "", -inf, waiting.order, left_s=2.0 ** level(waiting.left_s))
    )
    victims = [each.occupancy for each, _, _ in anybody.stoppable()]
    going = [*holdings.free_groups(), *(holdings.groups[each.group_id] for each in victims)]
    quota = dict(holdings.quota_left(pool).units)
    for victim in victims:
        if victim.request.pool == pool.name and victim.request_id not in holdings.freed:
            give(quota, holdings.groups[victim.group_id].size)
    makes = pool.max_dynamic is None or pool.max_dynamic > holdings.dynamic_count(pool.name) - sum(
        holdings.may_go(each) for each in going if each.pool == pool.name
    )
    all_of_them = preempting.runners.is_short or not makes
    as_they_are = tuple(
        group for group in going if group.pool == pool.name and (all_of_them or group.reserved is not None)
    )
    until = inf if anybody.until is None else anybody.until
    return Prospect(quota, holdings.room_without(going), as_they_are, bool(victims), makes, until)
