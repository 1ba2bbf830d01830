"""The charts of the idle suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from headgate_bench.definition import Chart
from headgate_bench.idle.bars import ADAPTIVE, ADVISED, FIXED_HIGH, FIXED_LOW, PRESSED, published
from headgate_bench.idle.facts import Run, Step
from headgate_bench.idle.metrics import MODEL
from headgate_bench.idle.providers import OPEN

_POINTS: Final = 300
"""Maximum number of points of a line: charts are small."""

_FRONTIERS: Final = {"one group, fixed": FIXED_LOW, "adaptive": ADAPTIVE, "eight groups, fixed": FIXED_HIGH}
_PRESSURE: Final = {"without advice": PRESSED, "with advice": ADVISED}


def charts_of(cases: Mapping[str, Mapping[str, Any]], runs: Mapping[str, Run], bar_wall: float) -> list[Chart]:
    """Return the charts of the cases; those of cases that were not run are left out."""
    charts = [_utilisation(cases), _wall(cases, bar_wall)]
    frontier = {label: runs[name] for label, name in _FRONTIERS.items() if name in runs}
    if len(frontier) == len(_FRONTIERS):
        charts.append(_frontier(frontier))
    pressed = {label: runs[name] for label, name in _PRESSURE.items() if name in runs}
    if len(pressed) == len(_PRESSURE):
        charts.append(_open_slot(pressed))
    return charts


def _utilisation(cases: Mapping[str, Mapping[str, Any]]) -> Chart:
    ours = [(_short(name), 100 * case[f"{MODEL}_utilization_ratio"]) for name, case in cases.items()]
    theirs = [(_short(name), 100 * published()[name]["utilisation"]) for name in cases if name in published()]
    return Chart(
        "Share of the model capacity that is leased, by case",
        "case",
        "% of capacity",
        "bars",
        {"Headgate": ours, "as published by DataDesigner": theirs},
    )


def _wall(cases: Mapping[str, Mapping[str, Any]], bar: float) -> Chart:
    ours = [(_short(name), case["wall_time_over_ideal"]) for name, case in cases.items()]
    theirs = [
        (_short(name), case["generation_count"] / published()[name]["per_s"] / case["ideal_wall_time_seconds"])
        for name, case in cases.items()
        if name in published()
    ]
    return Chart(
        "Wall time over its ideal, by case",
        "case",
        "× ideal",
        "bars",
        {"Headgate": ours, "as published by DataDesigner": theirs},
        level=bar,
        log="y",
    )


def _frontier(runs: Mapping[str, Run]) -> Chart:
    series = {label: _leased_over_time(run) for label, run in runs.items()}
    return Chart(
        "Leased model capacity over time, by how the frontier is opened", "ms", "units leased", "lines", series
    )


def _open_slot(runs: Mapping[str, Run]) -> Chart:
    return Chart(
        "The open provider's slot in use while the other one is held for 50 ms",
        "ms",
        "slots in use",
        "lines",
        {label: _over_time(run, _slot_changes(run)) for label, run in runs.items()},
    )


def _leased_over_time(run: Run) -> Sequence[tuple[float | str, float]]:
    changes = {Step.LEASED: 1, Step.UNPARKED: 1, Step.RELEASED: -1, Step.PARKED: -1}
    return _over_time(run, [changes.get(fact.step, 0) if MODEL in fact.resources else 0 for fact in run.facts])


def _slot_changes(run: Run) -> list[int]:
    changes = {Step.ADMITTED: 1, Step.DONE: -1}
    return [changes.get(fact.step, 0) if fact.provider == OPEN else 0 for fact in run.facts]


def _over_time(run: Run, changes: Sequence[int]) -> Sequence[tuple[float | str, float]]:
    """Return the mean of the summed changes in equal slices of the run, as (middle of the slice in ms, mean)."""
    times = np.array([fact.at for fact in run.facts]) - run.facts[0].at
    areas = np.concatenate(([0.0], np.cumsum(np.cumsum(changes)[:-1] * np.diff(times))))
    edges = np.linspace(0.0, max(run.wall_s, 1e-9), _POINTS + 1)
    means = np.diff(np.interp(edges, times, areas)) / np.diff(edges)
    return [(1e3 * float(at), float(mean)) for at, mean in zip((edges[1:] + edges[:-1]) / 2, means, strict=True)]


def _short(name: str) -> str:
    return name.partition("/")[2]
