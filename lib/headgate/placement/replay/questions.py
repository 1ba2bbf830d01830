"""What stood where when the ledger decided to stop work, so that the least loss can be searched for afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.placement.amounts import Amounts
from headgate.placement.eligibility import lost_work, refusal
from headgate.placement.occupancy import Occupancy
from headgate.placement.pool import Pool
from headgate.placement.replay.least import Stoppable, least_lost
from headgate.placement.replay.outcome import Decision
from headgate.placement.replay.room import Free, Shape
from headgate.placement.rules import PreemptionRules


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
