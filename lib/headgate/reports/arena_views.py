"""The arena to be looked at: its figure, one HTML page that needs nothing else, and Markdown for an artifact."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from headgate.reports.arena import ArenaBoard
from headgate.reports.arena_rows import judge_rows, rating_rows, share_rows
from headgate.reports.gfm import code, plain, table
from headgate.reports.style import COLOURS, WIDTH_IN, quiet_grid, short_name
from headgate.reports.svg import INK, drawing, inline_svg
from headgate.statistics import ELO_MEAN
from headgate.telemetry import safe_text

_CAPTION: Final = "Rating of each model on Elo's scale; lines are 95 % intervals, 1,000 is the mean"
_DRAWN: Final = 60
"""Models that are drawn; the tables have them all."""

_MATRIX: Final = 25
"""Models in the matrix of win shares; a wider one cannot be read."""

_MARKDOWN_BYTES: Final = 100_000

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


def arena_figure(board: ArenaBoard) -> Figure | None:
    """Return ratings with their intervals, a row per model; None without models."""
    shown = board.models[:_DRAWN]
    if not shown:
        return None
    with drawing():
        figure = Figure(figsize=(WIDTH_IN, 0.3 * len(shown) + 1.0), layout="constrained")
        axes = figure.subplots()
        axes.axvline(ELO_MEAN, color=INK, linewidth=1, alpha=0.4)
        for row, one in enumerate(shown):
            colour = COLOURS[one.component % len(COLOURS)]
            if math.isfinite(one.low) and math.isfinite(one.high):
                axes.hlines(row, one.low, one.high, color=colour, linewidth=2, alpha=0.55)
            axes.plot(one.rating, row, "o", color=colour, markersize=5)
        axes.set_yticks(range(len(shown)), [short_name(one.model) for one in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlabel("rating")
        axes.tick_params(axis="y", length=0)
        quiet_grid(axes, "x")
    return figure


def arena_svg(board: ArenaBoard) -> dict[str, str]:
    """Return the figure under its caption, as an SVG element; nothing without models."""
    figure = arena_figure(board)
    return {} if figure is None else {_CAPTION: inline_svg(figure, "arena", _CAPTION)}


def arena_page(board: ArenaBoard, *, title: str = "Arena", period: str = "") -> str:
    """Return the page; the same arena gives the same page."""
    page = Environment(
        loader=PackageLoader("headgate.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    ).get_template("arena.html.j2")
    return page.render(
        title=safe_text(title, limit_chars=200),
        period=safe_text(period, limit_chars=200),
        tables=[(name, rows) for name, rows in _tables(board) if rows],
        figures=[(caption, Markup(svg)) for caption, svg in arena_svg(board).items()],  # noqa: S704 - drawn by us
        problems=board.warnings,
        definitions=ARENA_DEFINITIONS,
    )


def arena_markdown(board: ArenaBoard, *, title: str = "Arena", period: str = "") -> str:
    """Return the arena as Markdown, at most 100 kB: with fewer rows per table where it would be longer."""
    rows = 200
    while True:
        text = _markdown(board, title, period, rows)
        if len(text.encode()) <= _MARKDOWN_BYTES or rows == 0:
            return text
        rows //= 2


def _tables(board: ArenaBoard) -> list[tuple[str, list[dict[str, str]]]]:
    shares = share_rows(board) if len(board.models) <= _MATRIX else []
    return [
        ("Models", rating_rows(board)),
        ("Win share of the row against the column", shares),
        ("Judge", judge_rows(board)),
    ]


def _markdown(board: ArenaBoard, title: str, period: str, limit: int) -> str:
    parts = [f"# {plain(title)}", *([plain(period)] if period else [])]
    if not board.models:
        parts.append("There are no comparisons with a verdict.")
    for name, rows in _tables(board):
        if rows:
            parts += [f"## {name}", _table(rows, limit)]
    if board.warnings:
        parts += ["## Read this first", "\n".join(f"- {plain(each)}" for each in board.warnings)]
    parts += ["## What the words mean", "\n".join(f"- **{term}**: {said}" for term, said in ARENA_DEFINITIONS.items())]
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[Mapping[str, str]], limit: int) -> str:
    cells = [[code(cell) if name in {"model", "judge"} else cell for name, cell in row.items()] for row in rows[:limit]]
    more = len(rows) - limit
    header = [code(name) if "@" in name else name for name in rows[0]]
    left_out = f"\n\n{more:,} more rows stand in the page." if more > 0 else ""
    return table(header, cells, numbers_from=1) + left_out
