"""Charts of the elastic benchmark: workers over time, and cost against waiting."""

from __future__ import annotations

from typing import Final

from headgate_bench.definition import Chart
from headgate_bench.elastic.replaying import Played
from headgate_replay.elastic import OURS, asked_course, awake_course

_SHORTEST_S: Final = 0.01
_DRAWN: Final = (OURS, "verl", "clairvoyant")
_LEFT_OUT: Final = frozenset({"fixed", "fixed-need", "ray-serve", "clairvoyant-calm"})
"""Policies left out of the cost chart: too far from the others, or one colour too many. The page has them."""


def charts_of(played: Played) -> list[Chart]:
    """Return the charts of one load."""
    return [_workers(played), _cost(played)]


def _workers(played: Played) -> Chart:
    comparison = played.comparison
    series = {"asked for": asked_course(comparison.load)} | {
        outcome.policy: awake_course(comparison.load, outcome)
        for outcome in comparison.outcomes
        if outcome.policy in _DRAWN
    }
    return Chart(f"Workers awake on {_on(played)}", "minutes", "workers", "lines", series)


def _cost(played: Played) -> Chart:
    """Return policies as points, or as lines if their knob was swept; waiting below 0.01 s is drawn at 0.01 s."""
    comparison = played.comparison
    points: dict[str, list[tuple[float | str, float]]] = {
        measures.policy: [(measures.cost, max(_SHORTEST_S, measures.p99_s))]
        for measures in comparison.measures
        if measures.policy not in _LEFT_OUT
    }
    for line in comparison.frontiers:
        if line.policy in points:
            swept = [point.measures for point in line.best]
            points[line.policy] = [(measures.cost, max(_SHORTEST_S, measures.p99_s)) for measures in swept]
    points["bound, nobody waits longer"] = [(bound.cost, max(_SHORTEST_S, bound.wait_s)) for bound in comparison.bounds]
    return Chart(
        f"Cost against p99 waiting on {_on(played)}",
        "cost (worker-seconds by the work)",
        "p99 waiting (s)",
        "lines",
        points,
        log="y",
    )


def _on(played: Played) -> str:
    return f"{played.comparison.load.name}, {played.comparison.site.start_text}"
