"""P12: tokens until all pairs of models are ranked as by a full run, and how often a pair is ranked wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from headgate.core.errors import InvalidInputError
from headgate_bench.artifact import Bar, at_least, at_most
from headgate_bench.definition import Bench, Chart, Outcome, Scenario, spread_of
from headgate_bench.ranking_tables import (
    SETTINGS,
    Kind,
    Played,
    Ranked,
    Recorded,
    Rule,
    Setting,
    faq,
    half_width,
    sequential,
    strict,
    successive_elimination,
    tokens_by_rates,
    told_the_truth,
    ucb_e,
    uniform,
    without_predictions,
)

_CHOSEN_ON: Final = 1_000
"""The constants were chosen on tables with seeds below this."""

OURS: Final = "sequential ranking"
RIVALS: Final[dict[str, Rule]] = {
    "strictly": strict,
    "strictly, told the truth": told_the_truth,
    "uniform": uniform,
    "half-width stop": half_width,
    "successive elimination": successive_elimination,
    "UCB-E, as many cells": ucb_e,
    "FAQ, as many cells": faq,
    "without predictions": without_predictions,
}
_NOTES: Final = (
    "A verdict is wrong where the full table contradicts it: of the order, by more than the indifference.",
    "Rivals rank by the means that they have. UCB-E and FAQ have no rule to stop, and get as many cells as were taken.",
    "P12.shared: tokens until as many pairs are ranked as by plain rates and by shared ones alike.",
    "Who is told the truth knows how far apart models are, and wants no more evidence for many pairs than for one.",
    "FAQ (Wu et al. 2026) estimates a new model beside known ones: its errors are of those settings alone.",
)
_CLOSE: Final = Setting("6 close models × 300 tasks", 6, 300, spread=0.4)


@dataclass(frozen=True, slots=True)
class RankingParameters:
    """Parameters of the scenario."""

    kinds: tuple[str, ...] = ()  # kinds of tables, by name; empty for all
    tables: int = 1  # tables of each kind
    errors: int = 50  # further small tables with close models, to count errors
    environments: tuple[str, ...] = (  # environments that are played
        "affine:sat", "affine:sat-hard", "agentgym:textcraft", "reasoning-gym:chain_sum",
        "reasoning-gym:letter_counting",
    )  # fmt: skip
    tasks: int = 120  # tasks of each environment
    rows_share: float = 1.0  # share of a setting's tasks
    shared: tuple[str, ...] = (  # kinds on which a day's samples are allocated by their use for the ranking
        "10 models × 3 000 tasks", "10 models × 1 000 tasks", "clusters of tasks", "one unlike all others",
    )  # fmt: skip
    uniform: float = 0.25  # `allocation_uniform` of those
    indifference: float = 0.05
    finer: float = 0.02  # a second, smaller indifference
    bar_tokens: float = 0.4  # maximum tokens, as a share of a full run
    bar_strict: float = 1.25  # maximum tokens of strict ranking, relative to the bound of knowing the truth
    bar_error: float = 0.05  # maximum share of tables with a wrong verdict
    bar_held: float = 0.95  # minimum share of intervals that contain the full difference
    bar_worst: float = 1.05  # maximum tokens of the most expensive table, relative to a full run
    bar_shared: float = 0.9  # maximum tokens with `allocation: ranking`, relative to those by rates


def measure(parameters: RankingParameters, bench: Bench) -> Outcome:
    """Return shares of tokens, errors and coverage, by setting and rule."""
    rows: list[dict[str, Any]] = []
    played = asyncio.run(Played.of(parameters.environments, parameters.tasks))
    kinds = (*SETTINGS, played, Recorded.read())
    settings = [one for one in kinds if not parameters.kinds or one.name in parameters.kinds]
    if not settings:
        raise InvalidInputError(f"no kind of table has such a name (got {', '.join(parameters.kinds)})")
    for number, setting in enumerate(settings):
        bench.progress(0.8 * number / len(settings), setting.name)
        for table in range(parameters.tables):
            seed = (_CHOSEN_ON + bench.seed, number, table)
            rows += _replayed(setting, parameters.indifference, parameters, seed, RIVALS)
            rows += _replayed(setting, parameters.finer, parameters, seed, {})
    shared = [
        _shared(setting, parameters, (_CHOSEN_ON + bench.seed, number, table))
        for number, setting in enumerate(settings)
        if setting.name in parameters.shared and isinstance(setting, Setting)
        for table in range(parameters.tables)
    ]
    bench.progress(0.8, "errors")
    for table in range(parameters.errors):
        seed = (_CHOSEN_ON + bench.seed, len(SETTINGS) + 1, table)
        rows += _replayed(_CLOSE, parameters.indifference, parameters, seed, {})
    return Outcome(
        bars=[*_bars(rows, parameters), *_bars_of_days(shared, parameters)],
        samples=[*rows, *shared],
        ratios={
            f"tokens, {rule}: {setting}": spread_of(_values(rows, "share", setting=setting, rule=rule))
            for setting, rule in dict.fromkeys((row["setting"], row["rule"]) for row in rows)
            if rule != "uniform"
        },
        charts=[_chart(rows, parameters)],
        notes=[*(_note(setting, rows, parameters) for setting in settings), *_NOTES],
    )


def _replayed(
    setting: Kind,
    indifference: float,
    parameters: RankingParameters,
    seed: Sequence[int],
    rivals: dict[str, Rule],
) -> list[dict[str, Any]]:
    table = setting.table(np.random.default_rng(list(seed)), parameters.rows_share)
    ours = sequential(table, indifference, np.zeros(0, dtype=np.int64))
    found: dict[str, Ranked] = {OURS: ours}
    for name, rule in rivals.items():
        if not (setting.known and rule is ucb_e) and (setting.known or rule not in (without_predictions, faq)):
            found[name] = rule(table, indifference, ours.cells)
    return [
        {
            "setting": setting.name,
            "rule": name if indifference == parameters.indifference else f"{name}, finer",
            "holds": setting.holds,
            "table": seed[-1],
            **{key: value for key, value in asdict(one).items() if key != "cells"},
        }
        for name, one in found.items()
    ]


def _shared(setting: Setting, parameters: RankingParameters, seed: Sequence[int]) -> dict[str, Any]:
    table = setting.table(np.random.default_rng(list(seed)), parameters.rows_share)
    by_rates, by_rank = (
        tokens_by_rates(table, parameters.indifference, uniform=uniform) for uniform in (1.0, parameters.uniform)
    )
    pairs = min(len(by_rates), len(by_rank))
    share = by_rank[pairs - 1] / by_rates[pairs - 1] if pairs else 1.0
    return {"setting": setting.name, "rule": "shared by what they rank", "table": seed[-1], "share": share,
            "pairs": pairs}  # fmt: skip


def _bars_of_days(shared: Sequence[dict[str, Any]], parameters: RankingParameters) -> list[Bar]:
    if not shared:
        return []
    by_setting = {name: _values(shared, "share", setting=name) for name in dict.fromkeys(r["setting"] for r in shared)}
    means = {name: float(np.mean(values)) for name, values in by_setting.items()}
    what = "tokens of campaigns by rates whose samples are shared by what they rank"
    return [at_most("P12.shared", what, float(np.mean(list(means.values()))), parameters.bar_shared,
                    "of plain rates", means)]  # fmt: skip


def _values(rows: Sequence[dict[str, Any]], figure: str, **where: Any) -> list[float]:
    return [row[figure] for row in rows if all(row[name] == value for name, value in where.items())]


def _bars(rows: Sequence[dict[str, Any]], parameters: RankingParameters) -> list[Bar]:
    def mean_share(rule: str) -> float:
        settings = dict.fromkeys(row["setting"] for row in rows if row["setting"] != _CLOSE.name)
        by_setting = [_values(rows, "share", setting=one, rule=rule) for one in settings]
        return float(np.mean([np.mean(values) for values in by_setting if values]))

    def families(rule: str) -> float:
        wrong = _values(rows, "wrong", rule=rule, holds=True)
        return float(np.mean([count > 0 for count in wrong]))

    ours = [row for row in rows if row["held"] is not None]
    sound = [row for row in ours if row["holds"]]
    played = {row["rule"] for row in rows if row["holds"]}
    shown = [
        name
        for name, rule in RIVALS.items()
        if name in played and rule not in (strict, told_the_truth, without_predictions)
    ]
    error = float(np.mean([row["wrong"] > 0 for row in sound]))
    held = sum(row["held"] for row in sound) / sum(row["pairs"] for row in sound)
    worst = max(row["share"] for row in ours)
    what = "tokens of a full run until every pair is decided, mean over settings"
    return [
        at_most("P12.tokens", what, mean_share(OURS), parameters.bar_tokens, "of a full run",
                {name: mean_share(name) for name in shown if RIVALS[name] is not faq}),
        at_most("P12.strict", "the same until all are told apart or shown to be alike, by the tokens of one who knows",
                mean_share("strictly") / mean_share("strictly, told the truth"), parameters.bar_strict, "x",
                {"of a full run": mean_share("strictly"), "who knows": mean_share("strictly, told the truth")}),
        at_most("P12.error", f"tables of {len(sound)} with a wrong verdict", error, parameters.bar_error, "of tables",
                {name: families(name) for name in shown}),
        at_least("P12.held", "intervals that hold the difference on all tasks", held, parameters.bar_held,
                 "of intervals"),
        at_most("P12.worst", "tokens of the most expensive table", worst, parameters.bar_worst, "of a full run"),
    ]  # fmt: skip


def _note(setting: Kind, rows: Sequence[dict[str, Any]], parameters: RankingParameters) -> str:
    shares = {
        rule: float(np.mean(_values(rows, "share", setting=setting.name, rule=rule)))
        for rule in dict.fromkeys(row["rule"] for row in rows if row["setting"] == setting.name)
    }
    wrong = sum(count > 0 for count in _values(rows, "wrong", setting=setting.name, rule=OURS))
    others = ", ".join(f"{rule} {share:.0%}" for rule, share in shares.items() if rule not in (OURS, f"{OURS}, finer"))
    text = (
        f"{setting.name}: {shares[OURS]:.0%} of the tokens at an indifference of {parameters.indifference:g}, "
        f"{shares[f'{OURS}, finer']:.0%} at {parameters.finer:g}; {wrong} of {parameters.tables} tables with a wrong "
        f"verdict. Beside it: {others}."
    )
    return text if setting.holds else f"{text} What is guaranteed elsewhere is not here: rows are no random sample."


def _chart(rows: Sequence[dict[str, Any]], parameters: RankingParameters) -> Chart:
    shown = (OURS, "half-width stop", "successive elimination")
    series = {
        rule: [
            (setting, 100 * float(np.mean(_values(rows, "share", setting=setting, rule=rule))))
            for setting in dict.fromkeys(row["setting"] for row in rows if row["rule"] == shown[-1])
        ]
        for rule in shown
    }
    title = "Tokens until every two models are ranked"
    return Chart(title, "setting", "% of a full run", "bars", series, level=100 * parameters.bar_tokens)


SCENARIO = Scenario(
    name="ranking",
    quick=RankingParameters(),
    full=RankingParameters(tables=10, errors=1_000, tasks=1_000),
    measure=measure,
)
