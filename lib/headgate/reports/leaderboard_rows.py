"""A leaderboard as rows of text for every reader of it, and as a document for programs."""

from __future__ import annotations

from typing import Any

from headgate.reports.comparing import Comparison
from headgate.reports.leaderboard import Cell, Leaderboard, Standing
from headgate.reports.statistics import Estimate
from headgate.reports.wording import count, interval, score
from headgate.statistics import MeanEstimate, PairedDifference, TooFewSamples


def standing_rows(board: Leaderboard) -> list[dict[str, str]]:
    """Return one row per model, best first: rank, groups, mean with interval, difference from the reference, pass@k."""
    return [_standing(board, one) for one in board.standings]


def versus_rows(board: Leaderboard) -> list[dict[str, str]]:
    """Return one row per model but the reference: the paired difference and what it rests on."""
    return [_versus(one.versus) for one in board.standings if one.versus is not None]


def cell_rows(board: Leaderboard) -> list[dict[str, str]]:
    """Return one row per model and environment: mean with clustered interval, design effect, pass@k."""
    return [_cell(board, one) for one in board.cells]


def leaderboard_document(board: Leaderboard) -> dict[str, Any]:
    """Return the leaderboard as JSON values, every two models included."""
    return {
        "environments": list(board.environments),
        "against": board.against or None,
        "is_chosen": board.is_chosen,
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
                "versus": None if one.versus is None else _comparison_document(one.versus),
                "pass_at_k": {str(k): _limits(made) for k, made in one.passes.items()},
            }
            for one in board.standings
        ],
        "cells": [
            {
                "model": cell.model,
                "environment": cell.environment,
                "samples": cell.estimate.samples,
                "tasks": cell.estimate.tasks,
                **_limits_of(cell.estimate),
                "method": cell.estimate.method,
                "design_effect": cell.estimate.design_effect,
                "pass_at_k": {str(k): _pass_document(made) for k, made in cell.passes.items()},
            }
            for cell in board.cells
        ],
        "pairs": [_comparison_document(pair) for pair in board.pairs],
        "problems": list(board.problems()),
    }


def p_value(value: float | None) -> str:
    """Return a p-value with three digits; what is smaller is not written as 0."""
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def signed(value: float | None) -> str:
    """Return a difference with its sign."""
    return "–" if value is None else f"{value:+.3f}"


def _standing(board: Leaderboard, one: Standing) -> dict[str, str]:
    row = {
        "rank": "–" if one.rank is None else str(one.rank),
        "model": one.model,
        "group": " ".join(one.groups),
        "mean": score(one.mean.mean),
        "95 % interval": interval(one.mean.low, one.mean.high),
        "tasks": count(one.tasks),
        "samples": count(one.samples),
        "environments": f"{one.environments} of {len(board.environments)}",
        "difference": _difference(one.versus),
        "p": "" if one.versus is None else p_value(one.versus.adjusted_p),
    }
    return row | {f"pass@{k}": _estimate(made) for k, made in one.passes.items()}


def _difference(versus: Comparison | None) -> str:
    if versus is None:
        return "reference"
    return "–" if versus.difference is None else _spread(versus.difference)


def _spread(difference: PairedDifference) -> str:
    return f"{signed(difference.difference)} ({signed(difference.low)} to {signed(difference.high)})"


def _versus(one: Comparison) -> dict[str, str]:
    made = one.difference
    return {
        "model": one.model,
        "against": one.against,
        "common tasks": "" if made is None else count(made.tasks),
        "difference (95 % interval)": one.problem if made is None else _spread(made),
        "p": p_value(None if made is None else made.p_value),
        "p (Holm)": p_value(one.adjusted_p),
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
    return row | {f"pass@{k}": _pass(cell.passes[k]) for k in board.ks}


def _pass(made: MeanEstimate | TooFewSamples) -> str:
    if isinstance(made, TooFewSamples):
        return f"refused: at most {made.most} samples of a task"
    return f"{score(made.mean)} ({interval(made.low, made.high)}; {count(made.tasks)} tasks)"


def _estimate(made: Estimate | None) -> str:
    return "–" if made is None else f"{score(made.mean)} ({interval(made.low, made.high)})"


def _limits(made: Estimate | None) -> dict[str, float] | None:
    return None if made is None else _limits_of(made)


def _limits_of(made: Estimate | MeanEstimate) -> dict[str, float]:
    return {"mean": made.mean, "low": made.low, "high": made.high}


def _pass_document(made: MeanEstimate | TooFewSamples) -> dict[str, Any]:
    if isinstance(made, TooFewSamples):
        return {"problem": str(made)}
    return {**_limits_of(made), "tasks": made.tasks}


def _comparison_document(one: Comparison) -> dict[str, Any]:
    made = one.difference
    if made is None:
        return {"model": one.model, "against": one.against, "problem": one.problem}
    return {
        "model": one.model,
        "against": one.against,
        "common_tasks": made.tasks,
        "environments": made.environments,
        "difference": made.difference,
        "low": made.low,
        "high": made.high,
        "p": made.p_value,
        "p_holm": one.adjusted_p,
        "is_told_apart": one.is_told_apart,
        "correlation": made.correlation,
        "gain": made.gain,
    }
