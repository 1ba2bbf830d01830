"""A report on samples: a self-contained page, Markdown for an artifact, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
from matplotlib.figure import Figure

from headgate.reports.figures import errors_figure, latency_figure, scores_figure
from headgate.reports.markdown import markdown_of
from headgate.reports.page import page_of
from headgate.reports.svg import inline_svg, png_of
from headgate.reports.tables import (
    checked_samples,
    environments_of,
    error_table,
    in_order,
    leaderboard_table,
    missing_table,
    models_of,
    plain_rows,
    summary_table,
)
from headgate.reports.timelines import activity_figure, samples_figure
from headgate.reports.wording import moment
from headgate.telemetry import safe_text

MAX_SCORE_ROWS: Final = 1_000
"""Rows of a table artifact at most: a UI renders all of them at once."""

FIGURES: Final[Mapping[str, str]] = {
    "scores": "Mean score and 95 % interval of each model by environment",
    "samples": "Samples finished over time by environment",
    "activity": "Episodes in progress over time",
    "latency": "Latency of scored episodes: median, 25–75 % and 5–95 %",
    "errors": "Share of each model's samples that ended in an error, by kind",
}
"""Name -> caption of every figure that a report can have."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was made of some samples.

    Attributes:
        html: one page that needs nothing else: no script, no network.
        markdown: GitHub-flavoured, at most 100 000 bytes.
        tables: `leaderboard`, `summary`, `missing`, `errors`.
        figures_svg: name -> SVG element, as it stands in the page.
        figures_png: name -> PNG on white.
    """

    html: str
    markdown: str
    tables: Mapping[str, pl.DataFrame]
    figures_svg: Mapping[str, str] = field(default_factory=dict)
    figures_png: Mapping[str, bytes] = field(default_factory=dict)

    def score_rows(self) -> list[dict[str, Any]]:
        """Return the summary as at most `MAX_SCORE_ROWS` rows of JSON values, for a table artifact."""
        return plain_rows(self.tables["summary"], MAX_SCORE_ROWS)


def build_report(
    samples: pl.DataFrame,
    *,
    title: str,
    period: str | None = None,
    settings: Mapping[str, object] | None = None,
    activity: pl.DataFrame | None = None,
    with_png: bool = True,
) -> Report:
    """Return the report on `samples`; the same input gives the same report.

    Args:
        samples: one row per sample, columns as the fields of `core.Sample`; without rows the report says so.
        title: of the page.
        period: what time the samples are from; by default from the first start to the last end.
        settings: shown in the page, secrets redacted.
        activity: readings of the workers and the queue, see `activity_figure`.
        with_png: whether to draw the figures as PNG too; it takes about as long as all the rest.

    Raises:
        InvalidInputError: if a column is missing.
    """
    rows = checked_samples(samples)
    summary = summary_table(rows)
    leaderboard = leaderboard_table(summary)
    models = models_of(leaderboard)
    tables = {
        "leaderboard": leaderboard,
        "summary": in_order(summary, models),
        "missing": in_order(missing_table(rows), models),
        "errors": error_table(rows),
    }
    drawn = _figures(rows, summary, models, activity)
    svgs = {name: inline_svg(figure, name, FIGURES[name]) for name, figure in drawn.items()}
    shown_title = safe_text(title, limit_chars=200)
    shown_period = safe_text(period, limit_chars=200) if period is not None else _period(rows)
    shown_settings = {safe_text(str(key)): safe_text(str(value)) for key, value in (settings or {}).items()}
    figures = {name: (FIGURES[name], svg) for name, svg in svgs.items()}
    return Report(
        html=page_of(shown_title, shown_period, shown_settings, tables, figures),
        markdown=markdown_of(shown_title, shown_period, tables),
        tables=tables,
        figures_svg=svgs,
        figures_png={name: png_of(figure) for name, figure in drawn.items()} if with_png else {},
    )


def _figures(
    samples: pl.DataFrame, summary: pl.DataFrame, models: list[str], activity: pl.DataFrame | None
) -> dict[str, Figure]:
    drawn = {
        "scores": scores_figure(summary, models, environments_of(summary)),
        "samples": samples_figure(samples),
        "activity": activity_figure(samples, activity),
        "latency": latency_figure(samples, models),
        "errors": errors_figure(samples, models),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _period(samples: pl.DataFrame) -> str:
    if samples.is_empty():
        return ""
    bounds = samples.select(pl.col("started_at").min(), pl.col("finished_at").max()).row(0)
    return f"{moment(bounds[0])} to {moment(bounds[1])}"
