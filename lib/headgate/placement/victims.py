"""Which running work may be stopped for a waiting request, what that costs, and the cheapest sufficient set."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import floor, fsum, inf
from typing import Final, Literal

from headgate.placement.amounts import Amounts
from headgate.placement.durations import Durations, level, ran_s
from headgate.placement.pool import Pool
from headgate.placement.request import Occupancy, PlacementRequest, Stage
from headgate.placement.rules import PreemptionRules

Reason = Literal["label_based_preemption", "same_pool_preemption", "cross_pool_preemption", "reclaimed", "shorter_work"]
"""Why work was preempted; the first three are ScheduleMesh's words."""

OUTRANKED: Final = "outranked_by_label"
"""The rule that spares work that outranks the preemptor, however short the preemptor is."""

MUCH_SHORTER: Final = 4.0
"""How many times longer the remaining run time of work must be for it to stop for shorter work of its band."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A preemption that a rule forbids.

    Attributes:
        rule: short name of the rule.
        says: the reason, as a sentence.
        until: monotonic seconds when the rule stops applying by itself; None if unknown.
    """

    rule: str
    says: str
    until: float | None = None


def refusal(
    preemptor: PlacementRequest,
    victim: Occupancy,
    victim_pool: Pool,
    rules: PreemptionRules,
    now: float,
    *,
    reclaim: bool = False,
    shorter: bool = False,
) -> Refusal | None:
    """Return why the running `victim` may not be stopped for the waiting `preemptor`, or None if it may.

    `shorter` means that the victim gives way without being outranked; see `giving_way`. With `reclaim` the victim runs
    in a reserved group on loan to which the preemptor is entitled: then it may be stopped unless it already is.
    """
    if (held := out_of_reach(victim, reclaim=reclaim)) is not None or reclaim:
        return held
    return spared(victim, rules, now) or kept(preemptor, victim, victim_pool, rules, shorter=shorter)


def out_of_reach(victim: Occupancy, *, reclaim: bool) -> Refusal | None:
    """Return why work cannot be stopped because it does not run, or None if it does."""
    if victim.stage is Stage.STOPPING:
        return Refusal("already_stopping", f"{victim.request_id} is being stopped already")
    if victim.stage is not Stage.RUNNING and not (reclaim and victim.stage is Stage.PLACING):
        return Refusal("not_running", f"{victim.request_id} does not run: it is {victim.stage}")
    return None


def kept(
    preemptor: PlacementRequest, victim: Occupancy, victim_pool: Pool, rules: PreemptionRules, *, shorter: bool
) -> Refusal | None:
    """Return why work may not be stopped for this particular request, or None if it may."""
    if victim.request.pool != preemptor.pool:
        if not rules.cross_pool:
            return Refusal("other_pool", f"{victim.request_id} is in pool {victim_pool.name}, and cross_pool is off")
        if victim_pool.protected:
            return Refusal("protected_pool", f"{victim.request_id} is in pool {victim_pool.name}, which is protected")
    return _told_too_close(preemptor, victim.request, rules, shorter=shorter)


@dataclass(slots=True, eq=False)
class Runner:
    """Running work at one moment, as far as it does not depend on the waiting request.

    Attributes:
        occupancy: the work.
        spared: why it may not be stopped for any request; None if it may.
        stands_at: monotonic seconds that would order it in its band if it waited.
        stops_for_s: the longest expected run time of a request of its band for which it stops; see `giving_way`.
        passed_until: monotonic seconds; the work passed requests whose turn had come before this, by a guess of its
            run time that it has since outrun. -inf if it has not.
    """

    occupancy: Occupancy
    spared: Refusal | None
    stands_at: float
    stops_for_s: float
    passed_until: float


def runner(running: Occupancy, durations: Durations, rules: PreemptionRules, now: float) -> Runner:
    """Return the `Runner` of running work as of `now`."""
    undone, held = undone_s(running, now), spared(running, rules, now)
    passed_until = -inf
    if running.request.checkpoints and running.started_at is not None and now > running.started_at + running.left_s:
        passed_until = min(running.started_at, turn_at(running, rules))
    if ran_s(running, now) < MUCH_SHORTER * undone:
        return Runner(running, held, -inf, -inf, passed_until)
    left_s = durations.left_s(running, now)
    stops_for_s = left_s / MUCH_SHORTER - undone - running.request.restart_s
    return Runner(running, held, running.submitted_at + rules.short_first * left_s, stops_for_s, passed_until)


def turn_at(waiting: Occupancy, rules: PreemptionRules) -> float:
    """Return until when a request lets shorter, later work of its band go first; this orders waiting requests."""
    return waiting.submitted_at + rules.short_first * waiting.left_s


def giving_way(preemptor: Occupancy, among: Sequence[Runner], rules: PreemptionRules, *, in_turn: bool) -> set[Runner]:
    """Return the work of `among`, all alike for the rules, that stops for waiting work that does not outrank it.

    It is of the same pool, of no higher priority and band, and no wider, since a preempted gang has to find all of its
    room at once again. In addition one of two cases applies. Either it would be behind the preemptor in the same band,
    and is likely to run four times as long as the preemptor and the work that stopping it undoes. So two requests can
    stop each other again only after running four times as long in between, the loss is a small part of what the
    preemptor would have waited, and work that never saves its state is spared. Or the preemptor is the first of its
    pool (`in_turn`), its turn had come before the victim, then behind it, started, and the victim has outrun the guess
    that let it pass. As the order of the queue is strict, two requests cannot stop each other in this way.
    """
    mine, theirs = preemptor.request, among[0].occupancy.request
    bands = promoted_band(preemptor, rules), promoted_band(among[0].occupancy, rules)
    if not rules.short_first or mine.priority < theirs.priority or mine.pool != theirs.pool or bands[0] < bands[1]:
        return set()
    turn, size = turn_at(preemptor, rules), mine.size
    # Lengths are compared as powers of two, so that the answer is the same for all requests of a kind.
    length_s = 2.0 ** level(preemptor.left_s) if bands[0] == bands[1] else inf
    return {
        each
        for each in among
        if (turn < each.stands_at and length_s <= each.stops_for_s) or (in_turn and turn < each.passed_until)
        if each.occupancy.request.size.fits(size)
    }


def reason(
    preemptor: PlacementRequest,
    victim: PlacementRequest,
    rules: PreemptionRules,
    *,
    reclaim: bool = False,
    shorter: bool = False,
) -> Reason:
    """Return the rule by which `victim` is stopped for `preemptor`."""
    if reclaim:
        return "reclaimed"
    if shorter:
        return "shorter_work"
    if rules.outranks(preemptor.labels, victim.labels):
        return "label_based_preemption"
    return "same_pool_preemption" if preemptor.pool == victim.pool else "cross_pool_preemption"


def lost_work(victim: Occupancy, cluster: Amounts, now: float) -> float:
    """Return the loss of stopping work: seconds of the whole cluster, weighted by the work's dominant share.

    The loss is the work since the last checkpoint, or since the start if there are none, plus the cost of a restart.
    """
    return victim.request.size.share_of(cluster) * (undone_s(victim, now) + victim.request.restart_s)


def undone_s(victim: Occupancy, now: float) -> float:
    """Return how many seconds of its run a stop would undo."""
    if victim.started_at is None:
        return 0.0
    since = max(victim.saved_at, victim.started_at) if victim.request.checkpoints else victim.started_at
    return max(0.0, now - since)


def promoted_band(occupancy: Occupancy, rules: PreemptionRules) -> int:
    """Return the band of a request: the whole part of its priority, plus one once it was preempted too often."""
    return floor(occupancy.request.priority) + (0 < rules.max_preemptions <= occupancy.preemptions)


def spared(victim: Occupancy, rules: PreemptionRules, now: float) -> Refusal | None:
    """Return why work may not be stopped for any request, or None if it may."""
    request = victim.request
    if not request.preemptible:
        return Refusal("not_preemptible", f"{victim.request_id} was submitted as not preemptible")
    if victim.preemptions >= rules.max_preemptions:
        return Refusal(
            "preempted_too_often",
            f"{victim.request_id} was preempted {victim.preemptions} times; "
            f"max_preemptions {rules.max_preemptions} allows no more",
        )
    started_at = now if victim.started_at is None else victim.started_at
    min_runtime_s = rules.min_runtime_s if request.min_runtime_s is None else request.min_runtime_s
    if now < (until := started_at + min_runtime_s):
        return Refusal(
            "too_young",
            f"{victim.request_id} has run {now - started_at:.1f} s, and min_runtime_s is {min_runtime_s:g}",
            until,
        )
    ends_at = started_at + request.estimated_duration_s
    if now < ends_at < now + rules.patience_s:
        return Refusal("ends_soon", f"{victim.request_id} should end by itself in {ends_at - now:.1f} s", ends_at)
    return None


def too_close(preemptor: PlacementRequest, victim: PlacementRequest, rules: PreemptionRules, *, shorter: bool) -> str:
    """Return the rule by which labels and priorities, compared in whole thousandths, spare a victim; empty if none.

    Labels and priorities never change, so the answer is permanent for a given `shorter`.
    """
    if rules.outranks(victim.labels, preemptor.labels):
        return OUTRANKED
    if shorter:
        return ""
    ahead = _milli(preemptor.priority) - _milli(victim.priority)
    if rules.outranks(preemptor.labels, victim.labels):
        return "" if -ahead <= _most_above(rules) else "label_difference"
    return "" if ahead >= _milli(getattr(rules, _threshold(preemptor, victim))) else "priority_difference"


def _threshold(preemptor: PlacementRequest, victim: PlacementRequest) -> str:
    return "same_pool_threshold" if preemptor.pool == victim.pool else "cross_pool_threshold"


def _most_above(rules: PreemptionRules) -> int:
    """Return how much higher than the preemptor's the priority of a label rule's victim may be, in thousandths.

    A chain of label preemptions must raise it by less than one preemption by priority lowers it, or cycles could arise.
    """
    return min(_milli(rules.label_threshold), (_milli(rules.same_pool_threshold) - 1) // rules.order.longest_chain)


def _told_too_close(
    preemptor: PlacementRequest, victim: PlacementRequest, rules: PreemptionRules, *, shorter: bool
) -> Refusal | None:
    """Return why labels and priorities spare a victim, or None if they do not."""
    rule = too_close(preemptor, victim, rules, shorter=shorter)
    mine, theirs, name = preemptor.priority, victim.priority, victim.request_id
    match rule:
        case "":
            return None
        case _ if rule == OUTRANKED:
            return Refusal(rule, f"{name} outranks {preemptor.request_id} by its labels")
        case "label_difference":
            most = _most_above(rules) / 1_000
            return Refusal(rule, f"{name} has priority {theirs:g}; a label rule lets {mine:g} preempt {most:g} above")
        case _:
            threshold = _threshold(preemptor, victim)
            says = f"{name} has priority {theirs:g}; {mine:g} is not {threshold} {getattr(rules, threshold):g} above it"
            return Refusal(rule, says)


def _milli(number: float) -> int:
    return round(number * 1_000)


Sufficient = Callable[[frozenset[str]], bool]
"""Whether stopping these requests makes enough room; monotonic, as more requests never make less room."""

EXACT_UP_TO: Final = 12
"""Up to this many candidates the best set is found by an exact search, usually with some tens of checks."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Running work that may be stopped.

    Attributes:
        request_id: unique among the candidates.
        band: whole part of its priority; lower bands are stopped first.
        cost: work that would be lost, >= 0.
        started_at: monotonic seconds; among equals the one that started last is stopped.
    """

    request_id: str
    band: int
    cost: float
    started_at: float


Worth = tuple[float, int, float, tuple[str, ...]]


def cheapest_set(candidates: Sequence[Candidate], sufficient: Sufficient) -> tuple[Candidate, ...] | None:
    """Return the set to stop, lowest band and cheapest first, or None if all together are not enough.

    Among sufficient sets it has the lowest highest band, then the least cost, then the fewest members, then the latest
    start among them. With more than `EXACT_UP_TO` candidates in those bands it is good but not always the best; no
    member of it is superfluous. `sufficient` is called rarely, and never twice for the same set.
    """
    in_order = sorted(candidates, key=lambda each: (each.band, each.cost, -each.started_at, each.request_id))
    search = _Search(in_order, sufficient)
    if search.enough(0):
        return ()
    if not search.enough(search.everybody):
        return None
    search.keep_lowest_bands()
    best = search.greedy()
    if len(search.among) <= EXACT_UP_TO:
        best = search.exact(best)
    return search.members(best)


@dataclass(slots=True)
class _Search:
    """One search; sets are bit masks over `among`. Caches answers and everything that follows from them."""

    among: list[Candidate]
    sufficient: Sufficient
    too_small: list[int] = field(default_factory=list)
    large_enough: list[int] = field(default_factory=list)

    @property
    def everybody(self) -> int:
        return (1 << len(self.among)) - 1

    def members(self, mask: int) -> tuple[Candidate, ...]:
        return tuple(each for number, each in enumerate(self.among) if mask >> number & 1)

    def enough(self, mask: int) -> bool:
        if any(mask & known == mask for known in self.too_small):
            return False
        if any(mask & known == known for known in self.large_enough):
            return True
        enough = self.sufficient(frozenset(each.request_id for each in self.members(mask)))
        (self.large_enough if enough else self.too_small).append(mask)
        return enough

    def worth(self, mask: int) -> Worth:
        """Return the values to minimise, for sets within the lowest sufficient bands."""
        members = self.members(mask)
        latest = max((each.started_at for each in members), default=0.0)
        return fsum(each.cost for each in members), len(members), -latest, tuple(each.request_id for each in members)

    def keep_lowest_bands(self) -> None:
        """Drop candidates of higher bands than needed; the rest is sufficient."""
        ends = [n for n in range(1, len(self.among)) if self.among[n].band != self.among[n - 1].band]
        ends.append(len(self.among))
        first = bisect_left(ends, True, hi=len(ends) - 1, key=lambda end: self.enough((1 << end) - 1))
        self.among = self.among[: ends[first]]

    def greedy(self) -> int:
        """Return the better of two greedy sets: cheapest first, and again with the last candidate needed put first."""
        numbers = list(range(len(self.among)))
        first, last = self._grown(numbers)
        numbers.remove(last)
        second, _ = self._grown([last, *numbers])
        return min(first, second, key=self.worth)

    def exact(self, best: int) -> int:
        """Return the best set, by branch and bound from a sufficient set; the most expensive are decided first."""
        best_worth = self.worth(best)

        def descend(chosen: int, undecided: int) -> None:
            nonlocal best, best_worth
            worth = self.worth(chosen)
            rest = (1 << undecided) - 1
            if worth[:2] > best_worth[:2] or not self.enough(chosen | rest):
                return
            if undecided:
                descend(chosen, undecided - 1)
                descend(chosen | 1 << (undecided - 1), undecided - 1)
            elif worth < best_worth:
                best, best_worth = chosen, worth

        descend(0, len(self.among))
        return best

    def _grown(self, numbers: Sequence[int]) -> tuple[int, int]:
        """Return a set without superfluous members, taken in this order, and the candidate that made it sufficient."""

        def first(count: int) -> int:
            return sum(1 << number for number in numbers[:count])

        count = bisect_left(range(len(numbers)), True, lo=1, key=lambda taken: self.enough(first(taken)))
        mask = first(count)
        for number in reversed(numbers[:count]):
            if self.enough(without := mask & ~(1 << number)):
                mask = without
        return mask, numbers[count - 1]
