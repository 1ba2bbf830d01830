"""A leaderboard as rows of text for every reader of it, and as a document for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from headgate.reports.compared import count, interval, percent, score
from headgate.reports.costs import money
from headgate.reports.leaderboard import Cell, Leaderboard, MissingRule, NoAnswers, Standing
from headgate.reports.ranking import neighbours_said, ranking_document
from headgate.reports.statistics import Comparison
from headgate.statistics import MIN_COMMON_TASKS, MeanEstimate, TooFewSamples

FEWER: Final = " *"
"""Marks a mean that is not over all environments, and a difference that is not over all tasks of both models."""

COULD_MOVE: Final = " †"
"""Marks a rank that missing scores could change."""

PARTIAL: Final = " ‡"
"""Marks a cost that is not of all samples."""

_NAMED: Final = 5

_COUNTED_AS: Final[Mapping[MissingRule, str]] = {
    "bound": "Order, ranks, groups and differences count a missing score as 0: failing gains nothing. Means leave it "
    "out; intervals reach from all of them 0 to all of them 1.",
    "zero": "A missing score counts as 0 everywhere.",
    "exclude": "Missing scores are left out everywhere: a model that fails where it is unsure ranks higher by it.",
}


def leaderboard_notes(board: Leaderboard, *, of_differences: bool = True) -> tuple[str, ...]:
    """Return a sentence for each mark and each gap in the leaderboard's tables, those `of_differences` if they show."""
    return (
        *_means(board),
        *(_differences(board) if of_differences else ()),
        *_missing(board),
        *_ranks(board),
        *filter(None, [neighbours_said(board.neighbours)]),
        *_costs(board),
    )


def _means(board: Leaderboard) -> Iterator[str]:
    of = len(board.environments)
    yield from _same(
        (one.model, f"mean over {one.environments} of {of} environments; no score in {_listed(left_out)}.")
        for one in board.standings
        if (left_out := board.left_out(one.model))
    )
    if board.without_scores:
        yield f"In no mean, since no model has a score there: {_listed(board.without_scores)}."


def _differences(board: Leaderboard) -> Iterator[str]:
    told = []
    for one in board.standings:
        if one.versus is not None and board.is_partial(one):
            few = _listed([f"{environment} ({count(common)})" for environment, common in one.versus.left_out.items()])
            less = f"; left out, with fewer than {MIN_COMMON_TASKS} of them: {few}" if few else ""
            told.append((one.model, f"difference from {board.against} over common tasks alone{less}."))
    yield from _same(told)


def _missing(board: Leaderboard) -> Iterator[str]:
    if any(one.missing.share for one in board.standings):
        yield _COUNTED_AS[board.missing]
    marked = [one for one in board.standings if one.could_move]
    if marked:
        told = [
            f"{one.model} {score(one.missing.mean_if_zero)} or {score(one.missing.mean_if_one)}"
            for one in sorted(marked, key=lambda one: -one.missing.share)
            if one.missing.share
        ]
        yield (
            "† Missing scores could change this rank. With every missing score 0, or every one 1, the mean would be: "
            f"{_listed(told, '; ')}."
        )
    if board.unscored:
        told = [f"{model} ({count(samples)})" for model, samples in board.unscored.items()]
        yield f"Not ranked, since none of their samples has a score: {_listed(told)}."


def _ranks(board: Leaderboard) -> Iterator[str]:
    if len(board.standings) > board.most_compared:
        here = len(board.standings)
        yield f"No ranks: at most {board.most_compared} models are compared with each other (here {here})."
        return
    ranks = [one.rank for one in board.standings]
    if any(ranks.count(rank) > 1 for rank in ranks if rank is not None):
        yield "Models that share a rank are tied: as many others are better than each by more than chance explains."
    if None in ranks:
        yield f"– has no rank: no other model shares {MIN_COMMON_TASKS} tasks of an environment with it."


def _costs(board: Leaderboard) -> Iterator[str]:
    told = [
        f"{one.model} {count(one.cost.samples)} of {count(one.cost.of)}"
        for one in board.standings
        if one.cost is not None and one.cost.is_partial
    ]
    if told:
        yield f"‡ Cost of the samples alone whose cost is known: {_listed(told)}."


def _same(told: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield each sentence once, after the names of all of whom it is said."""
    for sentence, said in groupby(sorted(told, key=lambda one: one[1]), key=lambda one: one[1]):
        yield f"* {_listed([name for name, _ in said])}: {sentence}"


def _listed(names: Sequence[str], separator: str = ", ") -> str:
    more = len(names) - _NAMED
    return separator.join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def standing_rows(board: Leaderboard) -> list[dict[str, str]]:
    """Return one row per model, best first: rank, mean with interval, missing scores, groups, difference, votes.

    Models without any score come last and have no rank. Marks are explained by `footnotes`.
    """
    return [_standing(board, one) for one in board.standings] + [_unscored(board, model) for model in board.unscored]


def versus_rows(board: Leaderboard) -> list[dict[str, str]]:
    """Return one row per model but the reference: the paired difference and what it rests on."""
    return [_versus(one.versus) for one in board.standings if one.versus is not None]


def cell_rows(board: Leaderboard) -> list[dict[str, str]]:
    """Return one row per model and environment: mean with clustered interval, design effect, pass@k, maj@k."""
    return [_cell(board, one) for one in board.cells]


def leaderboard_document(board: Leaderboard) -> dict[str, Any]:
    """Return the leaderboard as JSON values, every two models included."""
    return {
        "environments": list(board.environments),
        "against": board.against or None,
        "is_chosen": board.is_chosen,
        "missing": board.missing,
        "models": [
            {
                "rank": one.rank,
                "model": one.model,
                "groups": list(one.groups),
                "mean": one.mean.mean,
                "low": one.mean.low,
                "high": one.mean.high,
                "environments": one.environments,
                "samples": one.samples,
                "tasks": one.tasks,
                "missing": one.missing.samples - one.missing.scored,
                "missing_share": one.missing.share,
                "mean_if_missing_0": one.missing.mean_if_zero,
                "mean_if_missing_1": one.missing.mean_if_one,
                "rank_could_change": one.could_move,
                "left_out": list(board.left_out(one.model)),
                "versus": None if one.versus is None else _comparison_document(one.versus),
                "pass_at_k": {str(k): None if made is None else _limits(made) for k, made in one.passes.items()},
                "maj_at_k": {str(k): None if made is None else _limits(made) for k, made in one.majorities.items()},
                "cost": None if one.cost is None else one.cost.document(),
            }
            for one in board.standings
        ],
        "cells": [
            {
                "model": cell.model,
                "environment": cell.environment,
                "samples": cell.estimate.samples,
                "tasks": cell.estimate.tasks,
                **_limits(cell.estimate),
                "method": cell.estimate.method,
                "design_effect": cell.estimate.design_effect,
                "pass_at_k": {str(k): _at_document(made) for k, made in cell.passes.items()},
                "maj_at_k": {str(k): _at_document(made) for k, made in cell.majorities.items()},
            }
            for cell in board.cells
        ],
        "pairs": [_comparison_document(pair) for pair in board.pairs],
        "neighbours": ranking_document(board.neighbours),
        "unscored": dict(board.unscored),
        "without_scores": list(board.without_scores),
        "notes": list(leaderboard_notes(board)),
        "problems": list(board.problems()),
    }


def p_value(value: float | None) -> str:
    """Return a p-value with three digits; what is smaller is not written as 0."""
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def signed(value: float | None) -> str:
    """Return a difference with its sign."""
    return "–" if value is None else f"{value:+.3f}"


def _standing(board: Leaderboard, one: Standing) -> dict[str, str]:
    fewer = FEWER if one.environments < len(board.environments) else ""
    row = {
        "rank": ("–" if one.rank is None else str(one.rank)) + (COULD_MOVE if one.could_move else ""),
        "model": one.model,
        "mean": score(one.mean.mean) + fewer,
        "95 % interval": interval(one.mean.low, one.mean.high),
        "missing": percent(one.missing.share),
        **({} if board.missing != "bound" else {"worst case": score(one.missing.mean_if_zero)}),
        "group": " ".join(one.groups),
        "difference": "reference" if one.model == board.against else _difference(board, one),
        "environments": f"{one.environments} of {len(board.environments)}",
        "p": "" if one.versus is None else p_value(one.versus.adjusted_p),
        "tasks": count(one.tasks),
        "samples": count(one.samples),
    }
    if board.has_costs:
        mark = PARTIAL if one.cost is not None and one.cost.is_partial else ""
        total, per_point = (None, None) if one.cost is None else (one.cost.total, one.cost.per_point)
        row |= {"cost": money(total) + mark, "per point": money(per_point)}
    row |= {f"pass@{k}": _estimate(made) for k, made in one.passes.items()}
    return row | {f"maj@{k}": _estimate(made) for k, made in one.majorities.items()}


def _unscored(board: Leaderboard, model: str) -> dict[str, str]:
    row = {"rank": "–", "model": model, "mean": "–", "95 % interval": "–", "missing": percent(1.0)}
    row |= {"group": ""} if board.missing != "bound" else {"worst case": "–", "group": ""}
    row |= {"difference": "–", "environments": f"0 of {len(board.environments)}", "p": "", "tasks": "0", "samples": "0"}
    row |= {"cost": "–", "per point": "–"} if board.has_costs else {}
    return row | {f"{measure}@{k}": "–" for measure in ("pass", "maj") for k in board.ks}


def _difference(board: Leaderboard, one: Standing) -> str:
    if one.versus is None or one.versus.difference is None:
        return "–"
    return signed(one.versus.difference.difference) + (FEWER if board.is_partial(one) else "")


def _versus(one: Comparison) -> dict[str, str]:
    made = one.difference
    return {
        "model": one.model,
        "difference (95 % interval)": one.problem
        if made is None
        else f"{signed(made.difference)} ({signed(made.low)} to {signed(made.high)})",
        "means on these tasks": "–" if made is None else f"{score(made.first)}, {score(made.second)}",
        "common tasks": "" if made is None else count(made.tasks),
        "p (Holm)": p_value(one.adjusted_p),
        "environments": "" if made is None else str(made.environments),
        "p": p_value(None if made is None else made.p_value),
        "correlation": "–" if made is None or made.correlation is None else f"{made.correlation:.2f}",
        "gain": "–" if made is None or made.gain is None else f"{made.gain:.1f}x",
    }


def _cell(board: Leaderboard, cell: Cell) -> dict[str, str]:
    made = cell.estimate
    row = {
        "model": cell.model,
        "environment": cell.environment,
        "tasks": count(made.tasks),
        "samples": count(made.samples),
        "mean": score(made.mean),
        "95 % interval": interval(made.low, made.high),
        "method": made.method,
        "design effect": f"{made.design_effect:.2f}",
    }
    row |= {f"pass@{k}": _at(cell.passes[k]) for k in board.ks}
    return row | {f"maj@{k}": _at(cell.majorities[k]) for k in board.ks}


def _at(made: MeanEstimate | TooFewSamples | NoAnswers) -> str:
    if isinstance(made, TooFewSamples):
        return f"refused: at most {made.most} samples of a task"
    if isinstance(made, NoAnswers):
        return "none: no answers to vote on"
    return f"{score(made.mean)} ({interval(made.low, made.high)}; {count(made.tasks)} tasks)"


def _estimate(made: MeanEstimate | None) -> str:
    return "–" if made is None else f"{score(made.mean)} ({interval(made.low, made.high)})"


def _limits(made: MeanEstimate) -> dict[str, float]:
    return {"mean": made.mean, "low": made.low, "high": made.high}


def _at_document(made: MeanEstimate | TooFewSamples | NoAnswers) -> dict[str, Any]:
    if not isinstance(made, MeanEstimate):
        return {"problem": str(made)}
    return {**_limits(made), "tasks": made.tasks}


def _comparison_document(one: Comparison) -> dict[str, Any]:
    made = one.difference
    compared = {"model": one.model, "against": one.against, "left_out": dict(one.left_out)}
    if made is None:
        return compared | {"problem": one.problem}
    return compared | {
        "common_tasks": made.tasks,
        "environments": made.environments,
        "mean": made.first,
        "against_mean": made.second,
        "difference": made.difference,
        "low": made.low,
        "high": made.high,
        "p": made.p_value,
        "p_holm": one.adjusted_p,
        "is_told_apart": one.is_told_apart,
        "correlation": made.correlation,
        "gain": made.gain,
    }
