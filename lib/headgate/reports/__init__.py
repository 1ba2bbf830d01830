"""What a campaign found, to be read: reports with figures and tables, and the live view of a running one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.reports.arena import ArenaBoard, ArenaComparison, build_arena
from headgate.reports.arena_rows import arena_document, judge_rows, rating_rows, share_rows
from headgate.reports.leaderboard import COLUMNS as LEADERBOARD_COLUMNS
from headgate.reports.leaderboard import Leaderboard, build_leaderboard
from headgate.reports.leaderboard_rows import cell_rows, leaderboard_document, standing_rows, versus_rows
from headgate.reports.live import live_view, status_line, status_lines
from headgate.reports.score_table import score_table
from headgate.reports.statistics import Estimate, combined, distinct, estimate, estimate_of

if TYPE_CHECKING:
    from headgate.reports.arena_views import arena_markdown, arena_page, arena_svg
    from headgate.reports.elastic_replay import replay_figures, replay_page
    from headgate.reports.leaderboard_views import leaderboard_markdown, leaderboard_page, leaderboard_svg
    from headgate.reports.report import FIGURES, MAX_SCORE_ROWS, Report, build_report
    from headgate.reports.style import COLOURS, WIDTH_IN, clipped, legend_above, quiet_grid
    from headgate.reports.svg import INK, drawing, inline_svg
    from headgate.reports.wording import DEFINITIONS

__all__ = [
    "COLOURS",
    "DEFINITIONS",
    "FIGURES",
    "INK",
    "LEADERBOARD_COLUMNS",
    "MAX_SCORE_ROWS",
    "WIDTH_IN",
    "ArenaBoard",
    "ArenaComparison",
    "Estimate",
    "Leaderboard",
    "Report",
    "arena_document",
    "arena_markdown",
    "arena_page",
    "arena_svg",
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
    "inline_svg",
    "judge_rows",
    "leaderboard_document",
    "leaderboard_markdown",
    "leaderboard_page",
    "leaderboard_svg",
    "legend_above",
    "live_view",
    "quiet_grid",
    "rating_rows",
    "replay_figures",
    "replay_page",
    "score_table",
    "share_rows",
    "standing_rows",
    "status_line",
    "status_lines",
    "versus_rows",
]


def __getattr__(name: str) -> Any:
    # matplotlib takes a second to import: the live view and the statistics do without it.
    if name in {"FIGURES", "MAX_SCORE_ROWS", "Report", "build_report"}:
        from headgate.reports import report  # noqa: PLC0415

        return getattr(report, name)
    if name in {"replay_figures", "replay_page"}:
        from headgate.reports import elastic_replay  # noqa: PLC0415

        return getattr(elastic_replay, name)
    if name in {"arena_markdown", "arena_page", "arena_svg"}:
        from headgate.reports import arena_views  # noqa: PLC0415

        return getattr(arena_views, name)
    if name in {"leaderboard_markdown", "leaderboard_page", "leaderboard_svg"}:
        from headgate.reports import leaderboard_views  # noqa: PLC0415

        return getattr(leaderboard_views, name)
    if name in {"COLOURS", "WIDTH_IN", "clipped", "legend_above", "quiet_grid"}:
        from headgate.reports import style  # noqa: PLC0415

        return getattr(style, name)
    if name in {"INK", "drawing", "inline_svg"}:
        from headgate.reports import svg  # noqa: PLC0415

        return getattr(svg, name)
    if name == "DEFINITIONS":
        from headgate.reports import wording  # noqa: PLC0415

        return wording.DEFINITIONS
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
