"""One load under several policies, with their figures and the bounds beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from headgate.elastic.replay.contenders import contender, terms_of
from headgate.elastic.replay.frontier import Bound, Frontier, bounds, frontier
from headgate.elastic.replay.load import Load, Site
from headgate.elastic.replay.measures import Measures, measured
from headgate.elastic.replay.outcome import Outcome
from headgate.elastic.settings import ElasticConfig

COLUMNS: Final = (
    "policy",
    "cost",
    "wait p50",
    "wait p95",
    "wait p99",
    "longest",
    "operations",
    "worth starting",
    "peak",
    "lost",
)
"""Heads of `Comparison.rows`."""

USUAL: Final = ("predictive", "target", "threshold", "verl", "ray-serve", "ray-serve-5-60", "knative", "fixed-need")
"""Who is compared when nobody is named; `clairvoyant` is added as what planning alone can reach."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What several policies made of one load.

    Attributes:
        load: the requests.
        site: the workers.
        config: of the pool that our policies ran in.
        outcomes: one for each policy, in the order asked for.
        measures: their figures.
        bounds: what no policy can do without.
        frontiers: of the policies that were asked for.
    """

    load: Load
    site: Site
    config: ElasticConfig
    outcomes: tuple[Outcome, ...]
    measures: tuple[Measures, ...]
    bounds: tuple[Bound, ...]
    frontiers: tuple[Frontier, ...] = ()

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The table, one row a policy, under `COLUMNS`."""
        return [_row(measures) for measures in self.measures]

    def of(self, policy: str) -> Measures:
        """Return the figures of a policy that took part."""
        return next(measures for measures in self.measures if measures.policy == policy)

    def document(self) -> dict[str, Any]:
        """Return it as JSON values, without the times of each call."""
        return {
            "load": self.load.name,
            "calls": len(self.load.calls),
            "window_s": self.load.window_s,
            "slots": self.load.slots,
            "work_s": self.load.work_s,
            "site": asdict(self.site),
            "notes": list(self.load.notes),
            "policies": [
                {"says": outcome.says} | measures.document()
                for outcome, measures in zip(self.outcomes, self.measures, strict=True)
            ],
            "bounds": [bound.document() for bound in self.bounds],
            "frontiers": [each.document() for each in self.frontiers],
        }


def compared(
    load: Load,
    site: Site,
    *,
    config: ElasticConfig | None = None,
    policies: Sequence[str] = (*USUAL, "clairvoyant"),
    frontiers: Sequence[str] = (),
    tell: Callable[[str], None] = lambda _what: None,
) -> Comparison:
    """Replay a load under each policy.

    Args:
        load: the requests.
        site: the workers, and how long they take.
        config: of the pool; its own policy is called by its name like any other. The defaults unless given.
        policies: names of contenders.
        frontiers: names of contenders whose frontier is wanted, too; each takes several replays.
        tell: called with what is being replayed.

    Raises:
        InvalidLoadError: an unknown policy.
        ReplayFailedError: the pool made an error.
    """
    for name in (*policies, *frontiers):
        contender(name)
    terms = terms_of(load, site, config)
    outcomes = []
    for name in policies:
        tell(name)
        outcomes.append(contender(name).play(terms))
    return Comparison(
        load,
        site,
        terms.config,
        tuple(outcomes),
        tuple(measured(load, outcome) for outcome in outcomes),
        bounds(load, start_s=site.start_s, lowest=terms.config.min_workers),
        tuple(frontier(name, terms, tell=tell) for name in frontiers),
    )


def _row(measures: Measures) -> tuple[str, ...]:
    waits = (measures.p50_s, measures.p95_s, measures.p99_s, measures.longest_s)
    return (
        measures.policy,
        f"{measures.cost:.2f}x",
        *(f"{wait_s:.2f} s" for wait_s in waits),
        str(measures.operations),
        f"{measures.worth_share:.0%} of {measures.periods}",
        str(measures.peak),
        str(measures.dropped + measures.doubled),
    )
