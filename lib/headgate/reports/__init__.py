"""What a campaign found, to be read: reports with figures and tables, and the live view of a running one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.reports.live import live_view, status_line, status_lines
from headgate.reports.statistics import Estimate, combined, distinct, estimate, estimate_of

if TYPE_CHECKING:
    from headgate.reports.report import FIGURES, MAX_SCORE_ROWS, Report, build_report
    from headgate.reports.wording import DEFINITIONS

__all__ = [
    "DEFINITIONS",
    "FIGURES",
    "MAX_SCORE_ROWS",
    "Estimate",
    "Report",
    "build_report",
    "combined",
    "distinct",
    "estimate",
    "estimate_of",
    "live_view",
    "status_line",
    "status_lines",
]


def __getattr__(name: str) -> Any:
    # matplotlib takes a second to import: the live view and the statistics do without it.
    if name in {"FIGURES", "MAX_SCORE_ROWS", "Report", "build_report"}:
        from headgate.reports import report  # noqa: PLC0415

        return getattr(report, name)
    if name == "DEFINITIONS":
        from headgate.reports import wording  # noqa: PLC0415

        return wording.DEFINITIONS
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
