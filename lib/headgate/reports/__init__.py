"""What a campaign found, to be read: reports with figures and tables, and the live view of a running one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headgate.reports.arena import ArenaBoard, ArenaComparison, build_arena
from headgate.reports.arena_rows import arena_document, judge_rows, rating_rows, share_rows
from headgate.reports.footnotes import footnotes
from headgate.reports.leaderboard import COLUMNS as LEADERBOARD_COLUMNS
from headgate.reports.leaderboard import Leaderboard, build_leaderboard
from headgate.reports.leaderboard_rows import cell_rows, leaderboard_document, standing_rows, versus_rows
from headgate.reports.live import live_view, status_line, status_lines
from headgate.reports.score_table import ScoreTable
from headgate.reports.statistics import Estimate, combined, distinct, estimate, estimate_of
from headgate.reports.wording import percent

if TYPE_CHECKING:
    from headgate.reports.arena_views import arena_markdown, arena_page, arena_svg
    from headgate.reports.elastic_replay import replay_figures, replay_page
    from headgate.reports.leaderboard_views import leaderboard_markdown, leaderboard_page, leaderboard_svg
    from headgate.reports.report import FIGURES, MAX_SCORE_ROWS, Report, build_report
    from headgate.reports.style import COLOURS, clipped, legend_above, quiet_grid
    from headgate.reports.svg import INK, blank_figure, drawing, inline_svg
    from headgate.reports.wording import DEFINITIONS

__all__ = [
    "COLOURS",
    "DEFINITIONS",
    "FIGURES",
    "INK",
    "LEADERBOARD_COLUMNS",
    "MAX_SCORE_ROWS",
    "ArenaBoard",
    "ArenaComparison",
    "Estimate",
    "Leaderboard",
    "Report",
    "ScoreTable",
    "arena_document",
    "arena_markdown",
    "arena_page",
    "arena_svg",
    "blank_figure",
    "build_arena",
    "build_leaderboard",
    "build_report",
    "cell_rows",
    "clipped",
    "combined",
    "distinct",
    "drawing",
    "estimate",
    "estimate_of",
    "footnotes",
    "inline_svg",
    "judge_rows",
    "leaderboard_document",
    "leaderboard_markdown",
    "leaderboard_page",
    "leaderboard_svg",
    "legend_above",
    "live_view",
    "percent",
    "quiet_grid",
    "rating_rows",
    "replay_figures",
    "replay_page",
    "share_rows",
    "standing_rows",
    "status_line",
    "status_lines",
    "versus_rows",
]


# matplotlib takes a second to import: the live view and the statistics do without it.
_LATER = {
    "report": ("FIGURES", "MAX_SCORE_ROWS", "Report", "build_report"),
    "elastic_replay": ("replay_figures", "replay_page"),
    "arena_views": ("arena_markdown", "arena_page", "arena_svg"),
    "leaderboard_views": ("leaderboard_markdown", "leaderboard_page", "leaderboard_svg"),
    "style": ("COLOURS", "clipped", "legend_above", "quiet_grid"),
    "svg": ("INK", "blank_figure", "drawing", "inline_svg"),
    "wording": ("DEFINITIONS",),
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(f"headgate.reports.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
