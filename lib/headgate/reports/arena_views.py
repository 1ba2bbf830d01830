"""The arena to be looked at: its figure, one HTML page that needs nothing else, and Markdown for an artifact."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.reports.arena import ArenaBoard
from headgate.reports.compared import DRAWN, Compared, count, percent
from headgate.reports.svg import COLOURS, INK, blank_figure, draw_intervals, drawing, name_rows, short_name
from headgate.statistics import ELO_MEAN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CAPTION: Final = "Rating of each model on Elo's scale; lines are 95 % intervals, 1,000 is the mean"

_MATRIX: Final = 25
"""Models in the matrix of win shares; a wider one cannot be read."""

ARENA_DEFINITIONS: Final[Mapping[str, str]] = {
    "comparison": "Two models' answers to the same task before the judge, in both orders. Who is preferred in both "
    "orders wins; all else is a tie, which counts half a win for each.",
    "rating": "Strength by the model of Bradley and Terry on Elo's scale: 400 points are odds of 10 to 1, 1,000 is the "
    "mean of the models that comparisons connect. A weak prior keeps models that never lost finite.",
    "95 % interval": "By task: comparisons of one task are not independent of each other. Of one model at a time, and "
    "of its distance from the mean.",
    "rank": "1, and one more for each model that is better with p (Holm over every two models) of 5 % at most.",
    "group": "Two models that share a letter have not been told apart. That is no proof that they are equal.",
    "win share": "Mean over the comparisons: 1 for a win, one half for a tie. It depends on whom a model was compared "
    "with; the rating allows for that.",
    "order changed it": "Share of comparisons whose verdict changed when the answers changed places. Preferring "
    "whatever stands first (or second) twice is the judge's own bias, and counts as a tie.",
    "alpha": "Krippendorff's, over all judgements of a comparison: 1 when they are equal, 0 when they differ as much "
    "as those of different comparisons.",
}
"""Term -> what it means."""


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
    return {
        "judge": asdict(board.judge),
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


def arena_figure(board: ArenaBoard) -> Figure | None:
    """Return ratings with their intervals, a row per model; None without models."""
    shown = board.models[:DRAWN]
    if not shown:
        return None
    with drawing():
        figure = blank_figure(0.3 * len(shown) + 1.0)
        axes = figure.subplots()
        axes.axvline(ELO_MEAN, color=INK, linewidth=1, alpha=0.4)
        colours = [COLOURS[one.component % len(COLOURS)] for one in shown]
        draw_intervals(axes, [(n, one.low, one.rating, one.high, colours[n]) for n, one in enumerate(shown)])
        name_rows(axes, [short_name(one.model) for one in shown])
        axes.set_xlabel("rating")
    return figure


def arena_view(board: ArenaBoard, *, title: str = "Arena", period: str = "") -> Compared:
    """Return the arena as a page and as Markdown."""
    return Compared(
        title=title,
        period=period,
        tables=[
            ("Models", rating_rows(board)),
            ("Win share of the row against the column", share_rows(board) if len(board.models) <= _MATRIX else []),
            ("Judge", judge_rows(board)),
        ],
        problems=board.warnings,
        problems_title="Read this first",
        is_told_first=True,
        nothing="There are no comparisons with a verdict.",
        names=frozenset({"model", "judge", "group"}),
        definitions=ARENA_DEFINITIONS,
        figure_name="arena",
        caption=_CAPTION,
        draw=partial(arena_figure, board),
    )
