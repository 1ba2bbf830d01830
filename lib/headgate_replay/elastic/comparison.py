"""One load under several policies: their figures, frontiers and bounds, and short loads that test one property."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from headgate.elastic import ElasticConfig
from headgate_replay.elastic.bounds import Bound, bounds
from headgate_replay.elastic.contenders import Terms, contender, terms_of
from headgate_replay.elastic.load import SLOTS, Load, Site, backlog, steady, step
from headgate_replay.elastic.outcome import Measures, Outcome, measured


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of a knob and its figures."""

    value: float
    measures: Measures


@dataclass(frozen=True, slots=True)
class Frontier:
    """The figures of one policy for all values of its knob, in the order of the values."""

    policy: str
    knob: str
    points: tuple[Point, ...]

    @property
    def best(self) -> tuple[Point, ...]:
        """The points that no other setting of the knob beats in both cost and p99 waiting, cheapest first."""
        kept: list[Point] = []
        for point in sorted(self.points, key=lambda point: (point.measures.cost, point.measures.p99_s)):
            if not kept or point.measures.p99_s < kept[-1].measures.p99_s:
                kept.append(point)
        return tuple(kept)

    def document(self) -> dict[str, Any]:
        """Return the frontier as JSON values."""
        points = [{"value": point.value} | asdict(point.measures) for point in self.points]
        return {"policy": self.policy, "knob": self.knob, "points": points}


def frontier(name: str, terms: Terms, *, tell: Callable[[str], None] = lambda _what: None) -> Frontier:
    """Replay a policy with each value of its knob's sweep and return the frontier.

    Raises:
        InvalidLoadError: if there is no such policy.
    """
    who = contender(name)
    points = []
    for value in who.sweep(terms):
        tell(f"{terms.site.start_text}: {name}, {who.knob} {value:g}")
        points.append(Point(float(value), measured(terms.load, who.play(terms, value))))
    return Frontier(name, who.knob, tuple(points))


COLUMNS: Final = (
    *("policy", "cost", "wait p50", "wait p95", "wait p99", "longest"),
    *("operations", "worth starting", "peak", "lost"),
)
"""Column heads of `Comparison.rows`."""

DEFINITIONS: Final = {
    "cost": "Worker-seconds awake (starting, draining and going to sleep included), divided by what the work takes on "
    "workers that are always full: 1 cannot be beaten.",
    "waiting": "From arrival until the request was given to the worker that answered it.",
    "operations": "Workers that were started, drained, or turned back while they drained.",
    "worth starting": "Share of the active periods that lasted at least three times as long as the start.",
    "lost": "Requests that were never answered, or answered more than once.",
    "bound": "The minimum for any policy, whatever it knows about the future.",
}
"""Term -> its meaning."""

USUAL: Final = ("predictive", "target", "threshold", "verl", "ray-serve", "ray-serve-5-60", "knative", "fixed-need")
"""Policies that are compared by default; `clairvoyant` is added to show what planning alone can reach."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of several policies on one load: outcomes and figures in the requested order, and the bounds.

    `config` holds the settings of the pool that our policies ran in.
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
        """The rows of the table, one per policy, with the columns `COLUMNS`."""
        return [
            (
                each.policy,
                f"{each.cost:.2f}x",
                *(f"{wait_s:.2f} s" for wait_s in (each.p50_s, each.p95_s, each.p99_s, each.longest_s)),
                str(each.operations),
                f"{each.worth_share:.0%} of {each.periods}",
                str(each.peak),
                str(each.dropped + each.doubled),
            )
            for each in self.measures
        ]

    @property
    def says(self) -> str:
        """What was replayed, in sentences."""
        load, site = self.load, self.site
        return (
            f"{len(load.calls):,} requests in {load.window_s / 60:.0f} min, work for {load.work_s:,.0f} "
            f"worker-seconds. {site.workers} workers of {load.slots} slots, {site.start_s:g} s to start, "
            f"{site.sleep_s:g} s to sleep, {site.awake} awake at the start."
        )

    @property
    def limits(self) -> str:
        """The minimum cost of any policy, in a sentence."""
        costs = (f"{bound.cost:.2f}x if no request waits over {bound.wait_s:g} s" for bound in self.bounds)
        return f"No policy can cost less than {'; '.join(costs)}."

    def of(self, policy: str) -> Measures:
        """Return the figures of a policy that took part."""
        return next(measures for measures in self.measures if measures.policy == policy)

    def document(self) -> dict[str, Any]:
        """Return the comparison as JSON values, without the times of each call."""
        return {
            "load": self.load.name,
            "calls": len(self.load.calls),
            "window_s": self.load.window_s,
            "slots": self.load.slots,
            "work_s": self.load.work_s,
            "site": asdict(self.site),
            "notes": list(self.load.notes),
            "policies": [
                {"says": outcome.says} | asdict(each)
                for outcome, each in zip(self.outcomes, self.measures, strict=True)
            ],
            "bounds": [asdict(bound) for bound in self.bounds],
            "frontiers": [each.document() for each in self.frontiers],
        }


def compared(
    load: Load,
    site: Site,
    *,
    config: ElasticConfig | None = None,
    policies: Sequence[str] = (*USUAL, "clairvoyant"),
    frontiers: Sequence[str] = (),
    at_most_every_s: float = 0.0,
    tell: Callable[[str], None] = lambda _what: None,
) -> Comparison:
    """Replay a load under each of these contenders, and with all knob values for those in `frontiers`.

    The policy of `config` takes part only if it is named. `tell` is called before each replay with a description of
    it. Rules that would decide more often than every `at_most_every_s` seconds decide at this interval.

    Raises:
        InvalidLoadError: if a policy is unknown.
        ReplayFailedError: if the pool made an error.
    """
    for name in (*policies, *frontiers):
        contender(name)
    terms = terms_of(load, site, config)
    outcomes = []
    for name in policies:
        tell(f"{site.start_text}: {name}")
        outcomes.append(contender(name).play(terms, at_most_every_s=at_most_every_s))
    return Comparison(
        load,
        site,
        terms.config,
        tuple(outcomes),
        tuple(measured(load, outcome) for outcome in outcomes),
        bounds(load, start_s=site.start_s, lowest=terms.config.min_workers),
        tuple(frontier(name, terms, tell=tell) for name in frontiers),
    )


_STEP_AT_S = 121.3
"""A moment between two decisions of policies that decide at whole seconds."""


def operations_when_steady(policy: str, *, lasts_s: float = 600.0) -> int:
    """Return how many workers are started, drained or turned back with 7 requests in flight on 2 workers of 8 slots.

    One worker would have room for all of them, and be nearly full.
    """
    load, site = steady(SLOTS - 1, lasts_s=lasts_s), Site(workers=8, awake=2)
    return len(contender(policy).play(terms_of(load, site)).changes)


def drained_with_a_backlog(policy: str, *, count: int = 500) -> int:
    """Return how many of 4 workers are drained while any of `count` requests that arrive at once still wait."""
    load, site = backlog(count), Site(workers=8, awake=4)
    outcome = contender(policy).play(terms_of(load, site))
    until_s = max(given_s for given_s in outcome.given_s if given_s is not None)
    return sum(change < 0 and at < until_s for at, change in outcome.changes)


def starts_until_served(policy: str, *, workers: int = 4, start_s: float = 1.0) -> float:
    """Return how long a sudden load for `workers` workers takes until as many accept requests, in start times."""
    load, site = step(workers, at_s=_STEP_AT_S), Site(workers=2 * workers, start_s=start_s)
    outcome = contender(policy).play(terms_of(load, site))
    edges = [(stay.ready_s, 1) for stay in outcome.stays if stay.ready_s is not None]
    edges += [(stay.drained_s, -1) for stay in outcome.stays if stay.drained_s is not None]
    active = sum(change for at, change in edges if at < _STEP_AT_S)
    if active >= workers:
        return 0.0
    for at, change in sorted(edge for edge in edges if edge[0] >= _STEP_AT_S):
        active += change
        if active >= workers:
            return (at - _STEP_AT_S) / start_s
    return math.inf
