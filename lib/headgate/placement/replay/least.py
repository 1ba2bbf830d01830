"""The least work that a preemption could have lost: complete search over the sets of work that might be stopped.

What stood where is kept when the ledger decides to stop work; the search comes afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.placement.amounts import Amounts
from headgate.placement.eligibility import lost_work, refusal
from headgate.placement.occupancy import Occupancy
from headgate.placement.pool import Pool
from headgate.placement.replay.outcome import Decision
from headgate.placement.replay.room import Free, Shape, Units, place_in
from headgate.placement.rules import PreemptionRules

_MAX_STEPS: Final = 5_000
"""Sets that are looked at for one question; beyond it a lower bound answers."""


@dataclass(frozen=True, slots=True)
class Stoppable:
    """Work that the rules allow to stop.

    Attributes:
        frees: node -> what is free there when it is gone.
        cost: what stopping it loses.
        band: whole part of its priority.
    """

    frees: tuple[tuple[int, Units], ...]
    cost: float
    band: int


@dataclass(frozen=True, slots=True)
class Least:
    """The answer: `cost`, and whether it was found by complete search or is a lower bound. None fits: no answer."""

    cost: float
    is_exact: bool


def least_lost(free: Free, shape: Shape, stoppable: Iterable[Stoppable]) -> Least | None:
    """Return the least total cost of stopping work until `shape` fits, or None where stopping all is not enough."""
    candidates = sorted(stoppable, key=lambda each: each.cost)
    if place_in(_freed(free, candidates), shape) is None:
        return None
    search = _Search(free, shape, candidates)
    search.run()
    if search.is_complete:
        return Least(search.best, is_exact=True)
    return Least(min(search.best, fractional_bound(free, shape, candidates)), is_exact=False)


class _Search:
    """Depth first: each candidate, cheapest first, is stopped or kept; a branch ends when it cannot be better.

    Fitting is monotone in what is free, so a branch also ends where even all that is left would not be enough.
    """

    def __init__(self, free: Free, shape: Shape, candidates: Sequence[Stoppable]) -> None:
        self.best = float("inf")
        self.steps = 0
        self._shape = shape
        self._start = free
        self._candidates = _useful(free, shape, candidates)

    @property
    def is_complete(self) -> bool:
        return self.steps <= _MAX_STEPS

    def run(self) -> None:
        for candidates in self._candidates:
            self._step(self._start, 0, 0.0, candidates)

    def _step(self, free: Free, position: int, cost: float, candidates: Sequence[Stoppable]) -> None:
        self.steps += 1
        if cost >= self.best or not self.is_complete:
            return
        if place_in(free, self._shape) is not None:
            self.best = cost
            return
        if position == len(candidates) or cost + candidates[position].cost >= self.best:
            return
        if place_in(_freed(free, candidates[position:]), self._shape) is None:
            return
        self._step(
            _freed(free, candidates[position : position + 1]),
            position + 1,
            cost + candidates[position].cost,
            candidates,
        )
        self._step(free, position + 1, cost, candidates)


def _useful(free: Free, shape: Shape, candidates: Sequence[Stoppable]) -> list[list[Stoppable]]:
    """Return the candidates of each separate search: node by node where one node must hold everything."""
    if len(shape.bundles) > 1 and shape.strategy != "STRICT_PACK":
        return [list(candidates)]
    return [[each for each in candidates if any(at == node for at, _ in each.frees)] for node in range(len(free))]


def fractional_bound(free: Free, shape: Shape, candidates: Sequence[Stoppable]) -> float:
    """Return a lower bound: all nodes as one, and work that can be stopped in part, each resource by itself."""
    bound = 0.0
    for place, units in enumerate(shape.whole):
        # A shape that lies on one node needs what the emptiest one lacks at least.
        have = max(node[place] for node in free) if _on_one_node(shape) else sum(node[place] for node in free)
        bound = max(bound, _cheapest_cover(units - have, place, candidates))
    return bound


def _on_one_node(shape: Shape) -> bool:
    return len(shape.bundles) == 1 or shape.strategy == "STRICT_PACK"


def _cheapest_cover(lacking: int, place: int, candidates: Sequence[Stoppable]) -> float:
    offers = sorted(
        (each.cost / freed, freed, each.cost)
        for each in candidates
        if (freed := sum(units[place] for _, units in each.frees)) > 0
    )
    cost = 0.0
    for _, freed, price in offers:
        if lacking <= 0:
            break
        cost += price * min(1.0, lacking / freed)
        lacking -= freed
    return cost


def _freed(free: Free, candidates: Iterable[Stoppable]) -> Free:
    room = [list(units) for units in free]
    for each in candidates:
        for node, units in each.frees:
            have = room[node]
            for place, more in enumerate(units):
                have[place] += more
    return room


@dataclass(frozen=True, slots=True)
class Holding:
    """What one request holds: its whole group.

    Attributes:
        shape: of the group.
        nodes: of its bundles.
        reserved: whether it is a reserved group.
    """

    shape: Shape
    nodes: tuple[int, ...]
    reserved: bool


@dataclass(frozen=True, slots=True)
class Question:
    """One decision of the ledger, and everything that it could have stopped instead.

    Attributes:
        at_s: when.
        job: position of the preemptor.
        victims: positions of the victims.
        free: what no work held; idle groups that can be removed are free.
        shape: what the preemptor asks for.
        chosen: the victims.
        others: what else the rules allowed to stop.
    """

    at_s: float
    job: int
    victims: tuple[int, ...]
    free: Free
    shape: Shape
    chosen: tuple[Stoppable, ...]
    others: tuple[Stoppable, ...]


@dataclass(frozen=True, slots=True)
class Asker:
    """Makes questions of decisions. Holds what does not change during a replay."""

    rules: PreemptionRules
    pool: Pool
    cluster: Amounts

    def candidates(
        self,
        preemptor: Occupancy,
        victims: Sequence[str],
        requests: Mapping[str, Occupancy],
        held: Mapping[str, Holding],
        now: float,
    ) -> tuple[tuple[Stoppable, ...], tuple[Stoppable, ...]]:
        """Return the chosen victims, and the other work that might have been stopped by the same rules."""
        chosen, others = [], []
        for request_id, holding in held.items():
            occupancy = requests[request_id]
            if request_id in victims:
                chosen.append(self._stoppable(occupancy, holding, now))
            elif self._may_stop(preemptor, occupancy, holding, now):
                others.append(self._stoppable(occupancy, holding, now))
        return tuple(chosen), tuple(others)

    def _may_stop(self, preemptor: Occupancy, victim: Occupancy, holding: Holding, now: float) -> bool:
        entitled = self.pool.reserved_from_priority
        on_loan = holding.reserved and victim.request.priority < entitled <= preemptor.request.priority
        return refusal(preemptor.request, victim, self.pool, self.rules, now, reclaim=on_loan) is None

    def _stoppable(self, occupancy: Occupancy, holding: Holding, now: float) -> Stoppable:
        frees = tuple(zip(holding.nodes, holding.shape.bundles, strict=True))
        cost = lost_work(occupancy, self.cluster, now)
        return Stoppable(frees, cost, int(occupancy.request.priority // 1))


def answered(question: Question) -> Decision | None:
    """Return the decision beside the least that could have been lost; None where stopping all makes no room."""
    everybody = question.chosen + question.others
    least = least_lost(question.free, question.shape, everybody)
    band = max((each.band for each in question.chosen), default=0)
    within = least_lost(question.free, question.shape, [each for each in everybody if each.band <= band])
    if least is None or within is None:
        return None
    return Decision(
        question.at_s,
        question.job,
        question.victims,
        sum(each.cost for each in question.chosen),
        least.cost,
        within.cost,
        least.is_exact and within.is_exact,
    )
