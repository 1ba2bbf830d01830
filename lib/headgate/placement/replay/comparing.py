"""One trace under several policies, with their figures and the bounds beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.placement.replay.bound import least_waiting_s
from headgate.placement.replay.cluster import Cluster, check_fits
from headgate.placement.replay.engine import replayed
from headgate.placement.replay.errors import InvalidTraceError
from headgate.placement.replay.job import HIGH_FROM, Trace
from headgate.placement.replay.ledger_driver import through_ledger
from headgate.placement.replay.measures import QUANTILES, Measures, measured
from headgate.placement.replay.outcome import Outcome
from headgate.placement.replay.rivals.clairvoyant import clairvoyant
from headgate.placement.replay.rivals.fifo import Easy, PlainRay, StrictFifo
from headgate.placement.replay.rivals.single_victim import SingleVictim
from headgate.placement.rules import PreemptionRules

Play = Callable[[Trace, Cluster, PreemptionRules], Outcome]

POLICIES: Final[dict[str, Play]] = {
    "headgate": through_ledger,
    "ray": lambda trace, cluster, _rules: replayed(trace, cluster, PlainRay()),
    "fifo": lambda trace, cluster, _rules: replayed(trace, cluster, StrictFifo()),
    "easy": lambda trace, cluster, _rules: replayed(trace, cluster, Easy(by_priority=False)),
    "priority-easy": lambda trace, cluster, _rules: replayed(trace, cluster, Easy(by_priority=True)),
    "single-victim": lambda trace, cluster, rules: replayed(
        trace, cluster, SingleVictim(rules.label_rules, victims_return=False)
    ),
    "single-victim-requeued": lambda trace, cluster, rules: replayed(
        trace, cluster, SingleVictim(rules.label_rules, victims_return=True)
    ),
    "clairvoyant": lambda trace, cluster, _rules: clairvoyant(trace, cluster),
}
"""Name on the command line -> what replays a trace under it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What several policies made of one trace.

    Attributes:
        trace: the jobs.
        cluster: the nodes.
        outcomes: one for each policy, in the order asked for.
        measures: their figures.
        least_waiting_s: quantile -> what high-priority waiting cannot fall below under any policy.
    """

    trace: Trace
    cluster: Cluster
    outcomes: tuple[Outcome, ...]
    measures: tuple[Measures, ...]
    least_waiting_s: dict[str, float]

    def document(self) -> dict[str, Any]:
        """Return it as JSON values, without the stays of each job."""
        return {
            "trace": self.trace.name,
            "jobs": len(self.trace.jobs),
            "cluster": str(self.cluster),
            "notes": list(self.trace.notes),
            "high_from": HIGH_FROM,
            "policies": [
                {"says": outcome.says} | each.document()
                for outcome, each in zip(self.outcomes, self.measures, strict=True)
            ],
            "least_high_waiting_s": self.least_waiting_s,
        }


def compared(
    trace: Trace,
    cluster: Cluster,
    rules: PreemptionRules,
    policies: Sequence[str] = tuple(POLICIES),
    *,
    tell: Callable[[str], None] = lambda _name: None,
) -> Comparison:
    """Replay a trace under each policy.

    Args:
        trace: the jobs.
        cluster: the nodes.
        rules: who may be preempted for whom; `single-victim` takes their label rules.
        policies: names from `POLICIES`.
        tell: called with each name before its turn.

    Raises:
        InvalidTraceError: an unknown policy.
        CannotFitError: a job is larger than the cluster can ever give.
    """
    for name in policies:
        if name not in POLICIES:
            raise InvalidTraceError(f"there is no policy {name!r}; there are {', '.join(POLICIES)}")
    check_fits(trace, cluster)
    outcomes = []
    for name in policies:
        tell(name)
        outcomes.append(POLICIES[name](trace, cluster, rules))
    return Comparison(
        trace,
        cluster,
        tuple(outcomes),
        tuple(measured(trace, cluster, outcome) for outcome in outcomes),
        {f"p{round(q * 100)}": least_waiting_s(trace, cluster, q, HIGH_FROM) for q in QUANTILES},
    )
