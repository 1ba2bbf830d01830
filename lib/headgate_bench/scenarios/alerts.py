"""P17: how often a steady model raises a false alarm, and how soon a real drop in score is found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from headgate_bench.artifact import at_least, at_most
from headgate_bench.definition import Bench, Chart, Outcome, Scenario, Spread
from headgate_bench.score_changes import KINDS, Kind, ManyScoreChanges, Scores

_POINTS: Final = 0.1
_CHOSEN_ON: Final = 1_000
"""The test's constants were chosen on histories with seeds below this."""


@dataclass(frozen=True, slots=True)
class AlertParameters:
    """Parameters of the scenario."""

    models: int = 300  # steady models of each kind
    years: float = 0.5  # time for which each of them is sampled
    dropping: int = 200  # models of each kind that lose 10 points
    samples_per_day: int = 100  # samples of each model
    history_days: int = 30  # days before the drop
    search_days: int = 14  # days after it; a drop not found by then counts as 30 days
    bar_false: float = 0.05  # maximum false alarms per year of a steady model
    bar_found: float = 0.5  # minimum share of drops found within a day


@dataclass(frozen=True, slots=True)
class Found:
    """The result for the models of one kind."""

    kind: str
    spread: float  # spread of a score around its expectation
    false_alarms: int
    model_years: float
    median_days: float  # median time until a drop is found
    within_day: float  # share of drops found within a day
    within_week: float  # share of drops found within a week
    drops: int


def measure(parameters: AlertParameters, bench: Bench) -> Outcome:
    """Return false alarms and delays, over all kinds and by kind."""
    found = []
    for number, kind in enumerate(KINDS):
        bench.progress(number / len(KINDS), kind.name)
        found.append(_measured(kind, parameters, _CHOSEN_ON + bench.seed * len(KINDS) * 2 + 2 * number))
    years = sum(one.model_years for one in found)
    false = sum(one.false_alarms for one in found) / years
    day = float(np.mean([one.within_day for one in found]))
    by_spread = sorted(found, key=lambda one: one.spread)
    return Outcome(
        bars=[
            at_most("P17.false", f"false alarms over {years:.0f} years", false, parameters.bar_false, "per model-year"),
            at_least("P17.day", "10-point drops found within a day", day, parameters.bar_found, "of drops"),
        ],
        samples=[asdict(one) for one in found],
        ratios={
            f"days until found: {one.kind}": Spread(one.median_days, one.median_days, one.median_days, one.drops)
            for one in found
        },
        charts=[
            Chart(
                "Drops of 10 points found, by the spread of a score around what was expected",
                "spread", "share found", "lines",
                {
                    "within a day": [(one.spread, one.within_day) for one in by_spread],
                    "within a week": [(one.spread, one.within_week) for one in by_spread],
                },
            )
        ],
        notes=[
            f"{one.kind}: spread {one.spread:.2f}, {one.false_alarms / one.model_years:.3f} false alarms a year, "
            f"10 points found in {one.median_days:.1f} days (half), within a day {one.within_day:.0%}."
            for one in found
        ]
        + [f"{parameters.samples_per_day} samples a day; the test's constants were chosen on other histories."],
    )  # fmt: skip


def _measured(kind: Kind, parameters: AlertParameters, seed: int) -> Found:
    per_day = parameters.samples_per_day
    steady, changes = (
        Scores(kind, parameters.models, seed),
        ManyScoreChanges(parameters.models, kind.tasks, 1 / per_day),
    )
    samples = int(parameters.years * 365 * per_day)
    false = sum(int(changes.add(number, steady.next(number)).sum()) for number in range(samples))
    delays = _delays(kind, parameters, seed + 1)
    return Found(
        kind=kind.name,
        spread=changes.spread,
        false_alarms=false,
        model_years=parameters.models * samples / per_day / 365,
        median_days=float(np.median(delays)),
        within_day=float((delays <= 1.0).mean()),
        within_week=float((delays <= 7.0).mean()),
        drops=len(delays),
    )


def _delays(kind: Kind, parameters: AlertParameters, seed: int) -> np.ndarray:
    """Return the days from each model's drop to the alarm; 30 if the drop was not found."""
    per_day, began = parameters.samples_per_day, parameters.history_days * parameters.samples_per_day
    models = parameters.dropping
    dropping, changes = Scores(kind, models, seed), ManyScoreChanges(models, kind.tasks, 1 / per_day)
    delays = np.full(models, 30.0)
    for number in range(began + parameters.search_days * per_day):
        if number == began:
            dropping.drop(_POINTS)
        alarms = changes.add(number, dropping.next(number))
        if number >= began:
            delays[alarms & (delays == 30.0)] = (number + 1 - began) / per_day
    return delays


SCENARIO = Scenario(
    name="alerts",
    quick=AlertParameters(),
    full=AlertParameters(models=1_000, years=1.0, dropping=1_000),
    measure=measure,
)
