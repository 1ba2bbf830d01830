"""What an owner gains by understating job durations, and what it costs other owners."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from headgate.placement.rules import PreemptionRules
from headgate_bench.artifact import Bar, at_least, at_most
from headgate_bench.placement.heavy_tails import Case
from headgate_replay.placement import by_work, through_ledger, understated, waited_s
from headgate_replay.placement.jobs import Trace

TIMES: Final = 10.0
"""Factor by which a lying owner understates the durations of jobs."""

_OWNERS: Final = 3
"""Owners of a trace that lie, one per replay: those with the most work."""


@dataclass(frozen=True, slots=True)
class Lie:
    """Mean waiting of one owner and of all others, in seconds, if the owner tells the truth and if it lies."""

    trace: str
    owner: str
    own_s: float
    others_s: float
    own_lying_s: float
    others_lying_s: float

    def document(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return asdict(self)


def lies(cases: Iterable[Case], tell: Callable[[str], None]) -> list[Lie]:
    """Return the effect of each owner's lie, on every trace that states durations and names owners."""
    found = []
    for case in cases:
        if not any(job.estimated_s and "owner" in job.labels for job in case.trace.jobs):
            continue
        tell(f"{case.name}, with a lie")
        honest = _waits(case, case.trace)
        for owner in by_work(case.trace)[:_OWNERS]:
            lying = _waits(case, understated(case.trace, owner, TIMES))
            found.append(Lie(case.name, owner, *_means(honest, owner), *_means(lying, owner)))
    return found


def lie_bars(found: list[Lie], least: float, others: float) -> list[Bar]:
    """Return the bars of lies: means over all of them, since a single replay is noisy; none if no liar has to wait."""
    found = [each for each in found if max(each.own_s, each.own_lying_s) >= 1.0]
    if not found:
        return []
    own = _over(sum(each.own_lying_s for each in found), sum(each.own_s for each in found))
    rest = _over(sum(each.others_lying_s for each in found), sum(each.others_s for each in found))
    what = f"of {len(found)} owners who state a {TIMES:g}th of what their jobs take"
    return [
        at_least("P7.trace_lie", f"mean waiting over that with the truth, {what}", own, least, "x"),
        at_most("P7.trace_lied_to", f"mean waiting of all others over that with the truth, {what}", rest, others, "x"),
    ]


def _over(lying_s: float, honest_s: float) -> float:
    """Return how many times as long work waits; a total of less than a second counts as one."""
    return max(1.0, lying_s) / max(1.0, honest_s)


def _waits(case: Case, trace: Trace) -> list[tuple[str, float]]:
    """Return owner and waiting of each job."""
    outcome = through_ledger(trace, case.cluster, PreemptionRules())
    waits = zip(trace.jobs, waited_s(trace, outcome), strict=True)
    return [(job.labels["owner"], waited or 0.0) for job, waited in waits]


def _means(waits: list[tuple[str, float]], owner: str) -> tuple[float, float]:
    """Return the mean waiting of an owner and of all others."""
    own = [waited_s for each, waited_s in waits if each == owner]
    others = [waited_s for each, waited_s in waits if each != owner]
    return sum(own) / len(own), sum(others) / max(1, len(others))
