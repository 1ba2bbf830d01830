"""The arena as rows of text for every reader of it, and as a document for programs."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from headgate.reports.arena import ArenaBoard
from headgate.reports.wording import count, percent


def rating_rows(board: ArenaBoard) -> list[dict[str, str]]:
    """Return one row per model, best first."""
    has_several = len({one.component for one in board.models}) > 1
    rows = []
    for one in board.models:
        row = {
            "rank": str(one.rank),
            "model": one.model,
            "group": " ".join(one.groups),
            "rating": f"{one.rating:,.0f}",
            "95 % interval": interval(one.low, one.high),
            "win share": percent(one.win_share),
            "comparisons": count(one.comparisons),
            "tasks": count(one.tasks),
        }
        rows.append(row | ({"connected": str(one.component + 1)} if has_several else {}))
    return rows


def share_rows(board: ArenaBoard) -> list[dict[str, str]]:
    """Return the matrix of win shares: a row per model, a column per other one."""
    names = [one.model for one in board.models]
    return [{"model": name} | {other: _share(board, name, other) for other in names} for name in names]


def judge_rows(board: ArenaBoard) -> list[dict[str, str]]:
    """Return how the judge behaved, as one row; none without comparisons."""
    record = board.judge
    if not record.orders:
        return []
    made = record.agreement
    alpha = "–" if made is None or made.alpha is None else f"{made.alpha:.2f}"
    limits = "–" if made is None or made.low is None or made.high is None else f"{made.low:.2f} to {made.high:.2f}"
    return [
        {
            "judge": record.name,
            "both orders": count(record.orders),
            "order changed it": percent(record.undecided / record.orders),
            "first preferred twice": percent(record.first_twice / record.orders),
            "second preferred twice": percent(record.second_twice / record.orders),
            "tie in both": percent(record.ties / record.orders),
            "alpha": alpha,
            "95 % interval": limits,
        }
    ]


def arena_document(board: ArenaBoard) -> dict[str, Any]:
    """Return the arena as JSON values; an interval without an end is null."""
    record = board.judge
    return {
        "judge": {
            "name": record.name,
            "orders": record.orders,
            "undecided": record.undecided,
            "first_twice": record.first_twice,
            "second_twice": record.second_twice,
            "ties": record.ties,
            "agreement": None if record.agreement is None else asdict(record.agreement),
        },
        "environments": list(board.environments),
        "tasks": board.tasks,
        "models": [
            asdict(one) | {"groups": list(one.groups), "low": _finite(one.low), "high": _finite(one.high)}
            for one in board.models
        ],
        "shares": [
            {"model": model, "against": other, "comparisons": number, "win_share": share}
            for (model, other), (number, share) in sorted(board.shares.items())
        ],
        "warnings": list(board.warnings),
    }


def interval(low: float, high: float) -> str:
    """Return the interval of a rating; a dash where nothing is known."""
    return f"{low:,.0f} to {high:,.0f}" if math.isfinite(low) and math.isfinite(high) else "–"


def _share(board: ArenaBoard, model: str, other: str) -> str:
    if model == other:
        return ""
    made = board.shares.get((model, other))
    return "–" if made is None else f"{percent(made[1])} of {made[0]:,}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
