"""A leaderboard to be looked at: its figure, one HTML page that needs nothing else, and Markdown for an artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headgate.reports.compared import DRAWN, Compared
from headgate.reports.footnotes import footnotes
from headgate.reports.leaderboard import Leaderboard, Standing
from headgate.reports.leaderboard_rows import cell_rows, standing_rows, versus_rows
from headgate.reports.style import COLOURS, quiet_grid, short_name
from headgate.reports.svg import INK, blank_figure, drawing, inline_svg
from headgate.reports.wording import RANKING
from headgate.telemetry import safe_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CAPTION: Final = (
    "Mean score of each model, and its difference from {against} on the same tasks; lines are 95 % intervals"
)

DEFINITIONS: Final[Mapping[str, str]] = {
    "task": "What has the same environment and index: the same instance for every model, campaign and pass over the "
    "data. Samples of one task are not independent of each other.",
    **RANKING,
    "95 % interval": "By task: cluster-robust where tasks repeat (design effect: how many times the variance of as "
    "many independent samples), Wilson's or Student's where each task has one sample. Of one model at a time.",
    "p (Holm)": "How often chance alone would show such a difference, corrected for the number of comparisons: all "
    "models against a chosen reference, every two models against the best, which these samples chose.",
    "correlation, gain": "Of the two models' means of a task, and how many times as many tasks a comparison without "
    "pairing would need for an interval as narrow.",
    "pass@k": "Share of tasks that at least one of k samples would solve, unbiased, over the tasks with k samples or "
    "more; the interval is by task.",
}
"""Term -> what it means."""


def leaderboard_figure(board: Leaderboard) -> Figure | None:
    """Return means beside the differences from the reference, a row per model; None without models."""
    shown = board.standings[:DRAWN]
    if not shown:
        return None
    with drawing():
        figure = blank_figure(0.3 * len(shown) + 1.1)
        left, right = figure.subplots(1, 2, sharey=True)
        _draw_means(left, shown)
        _draw_differences(right, shown)
        left.set_yticks(range(len(shown)), [short_name(one.model) for one in shown])
        left.set_ylim(len(shown) - 0.5, -0.5)
        left.set_xlabel("mean score")
        right.set_xlabel(f"difference from {short_name(board.against)}")
    return figure


def leaderboard_svg(board: Leaderboard) -> dict[str, str]:
    """Return the figure under its caption, as an SVG element; nothing without models."""
    figure = leaderboard_figure(board)
    caption = _CAPTION.format(against=safe_text(board.against, limit_chars=80))
    return {} if figure is None else {caption: inline_svg(figure, "leaderboard", caption)}


def leaderboard_page(board: Leaderboard, *, title: str = "Leaderboard", period: str = "") -> str:
    """Return the page; the same leaderboard gives the same page."""
    return _shown(board, title, period).page(leaderboard_svg(board))


def leaderboard_markdown(board: Leaderboard, *, title: str = "Leaderboard", period: str = "") -> str:
    """Return the leaderboard as Markdown, at most 100 kB: with fewer rows per table where it would be longer."""
    return _shown(board, title, period).markdown()


def _shown(board: Leaderboard, title: str, period: str) -> Compared:
    return Compared(
        title=title,
        period=period,
        tables=[
            ("Models", standing_rows(board) if board.standings else []),
            (f"Differences from the reference, {safe_text(board.against, limit_chars=80)}", versus_rows(board)),
            ("Environments", cell_rows(board)),
        ],
        notes=footnotes(board),
        problems=board.problems(),
        problems_title="What could not be told",
        nothing="There are no scored samples to compare.",
        names=frozenset({"model", "environment", "method", "group"}),
        definitions=DEFINITIONS,
    )


def _draw_means(axes: Axes, shown: Sequence[Standing]) -> None:
    for row, one in enumerate(shown):
        axes.hlines(row, one.mean.low, one.mean.high, color=COLOURS[0], linewidth=2, alpha=0.55)
        axes.plot(one.mean.mean, row, "o", color=COLOURS[0], markersize=5)
    axes.set_xlim(-0.02, 1.02)
    axes.tick_params(axis="y", length=0)
    quiet_grid(axes, "x")


def _draw_differences(axes: Axes, shown: Sequence[Standing]) -> None:
    axes.axvline(0, color=INK, linewidth=1, alpha=0.6)
    for row, one in enumerate(shown):
        if one.versus is None or one.versus.difference is None:
            continue
        made = one.versus.difference
        colour = COLOURS[5] if one.versus.is_told_apart else COLOURS[7]
        axes.hlines(row, made.low, made.high, color=colour, linewidth=2, alpha=0.7)
        axes.plot(made.difference, row, "o", color=colour, markersize=5)
    axes.set_title("orange: told apart; grey: not", loc="right")
    axes.tick_params(axis="y", length=0)
    quiet_grid(axes, "x")
