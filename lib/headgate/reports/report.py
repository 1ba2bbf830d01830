"""A report on samples: a self-contained page, Markdown for an artifact, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from markupsafe import Markup

from headgate.reports.compared import DEFINITIONS, Compared, count, interval, moment, percent, score, seconds, template
from headgate.reports.figures import activity_figure, errors_figure, latency_figure, samples_figure, scores_figure
from headgate.reports.leaderboard import Leaderboard, MissingRule, build_leaderboard
from headgate.reports.leaderboard_rows import leaderboard_notes, standing_rows
from headgate.reports.ranking import neighbour_rows
from headgate.reports.svg import inline_svg, png_of
from headgate.reports.tables import (
    checked_samples,
    error_table,
    in_order,
    leaderboard_table,
    missing_table,
    served_notes,
    summary_table,
)
from headgate.telemetry import safe_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES: Final = frozenset({"model", "next", "verdict", "environment", "group", "kind", "where", "last message"})
"""Columns of words and not of numbers."""

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

_MAX_ROWS: Final = 2_000
"""Rows of one table of the page at most; the tables themselves are in the report's data."""


def rows_of(tables: dict[str, pl.DataFrame], board: Leaderboard) -> dict[str, list[dict[str, str]]]:
    """Return the tables by their headings, numbers formatted."""
    made = {"Scores": ("summary", _scores), "Missing scores": ("missing", _missing), "Errors": ("errors", _error)}
    ranked = [{name: row[name] for name in row if name not in {"p", "tasks"}} for row in standing_rows(board)]
    ranked = [{name.replace("samples", "scored samples"): cell for name, cell in row.items()} for row in ranked]
    return {"Leaderboard": ranked, "Neighbours": neighbour_rows(board.neighbours)} | {
        heading: [row_of(row) for row in tables[name].iter_rows(named=True)] for heading, (name, row_of) in made.items()
    }


def _scores(row: dict[str, Any]) -> dict[str, str]:
    return {
        "model": row["model"],
        "environment": row["environment"],
        "samples": count(row["samples"]),
        "mean": score(row["mean"]),
        "95 % interval": interval(row["low"], row["high"]),
        "success": percent(row["success_rate"]),
        "errors": count(row["errors"]),
        "p50": seconds(row["latency_p50_s"]),
        "p95": seconds(row["latency_p95_s"]),
        "prompt tokens": count(row["prompt_tokens"]),
        "completion tokens": count(row["completion_tokens"]),
    }


def _missing(row: dict[str, Any]) -> dict[str, str]:
    return {
        "model": row["model"],
        "samples": count(row["samples"]),
        "missing": count(row["samples"] - row["scored"]),
        "provider errors": count(row["provider_errors"]),
        "share": percent(row["provider_share"]),
        "environment errors": count(row["environment_errors"]),
        "cancelled": count(row["cancelled"]),
        "mean": score(row["mean"]),
        "if missing were 0": score(row["mean_if_zero"]),
        "if missing were 1": score(row["mean_if_one"]),
    }


def _error(row: dict[str, Any]) -> dict[str, str]:
    return {
        "model": row["model"],
        "kind": row["error_kind"],
        "errors": count(row["errors"]),
        "where": row["environments"],
        "last message": row["last_message"],
        "last at": moment(row["last_at"]),
    }


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
        """Return the summary as at most `MAX_SCORE_ROWS` rows, fractions with 4 digits, for a table artifact."""
        rows = self.tables["summary"].head(MAX_SCORE_ROWS)
        return rows.with_columns(pl.selectors.float().round(4)).to_dicts()


def build_report(
    samples: pl.DataFrame,
    *,
    title: str,
    period: str | None = None,
    settings: Mapping[str, object] | None = None,
    with_png: bool = True,
    missing: MissingRule = "bound",
) -> Report:
    """Return the report on `samples`; the same input gives the same report.

    Args:
        samples: one row per sample, columns as the fields of `core.Sample`; without rows the report says so, and
            without `index`, which says what tasks models have in common, it gives no ranks.
        title: of the page.
        period: what time the samples are from; by default from the first start to the last end.
        settings: shown in the page, secrets redacted.
        with_png: whether to draw the figures as PNG too; it takes about as long as all the rest.
        missing: what samples without a score count as in the ranking, see `build_leaderboard`.

    Raises:
        InvalidInputError: if a column is missing.
    """
    rows = checked_samples(samples)
    summary = summary_table(rows)
    board = build_leaderboard(rows, missing=missing)
    leaderboard = leaderboard_table(board)
    models = leaderboard["model"].to_list()
    tables = {
        "leaderboard": leaderboard,
        "summary": in_order(summary, models),
        "missing": in_order(missing_table(rows), models),
        "errors": error_table(rows),
    }
    drawn = _figures(rows, summary, models)
    svgs = {name: inline_svg(figure, name, FIGURES[name]) for name, figure in drawn.items()}
    shown = Compared(
        title=safe_text(title, limit_chars=200),
        period=safe_text(period, limit_chars=200) if period is not None else _period(rows),
        tables=list(rows_of(tables, board).items()),
        notes=(*leaderboard_notes(board), *served_notes(samples)),
        nothing="There are no samples to report on.",
        names=NAMES,
        definitions=DEFINITIONS,
    )
    return Report(
        html=_page(shown, settings or {}, tables, svgs),
        markdown=shown.markdown(),
        tables=tables,
        figures_svg=svgs,
        figures_png={name: png_of(figure) for name, figure in drawn.items()} if with_png else {},
    )


def _page(
    shown: Compared, settings: Mapping[str, object], tables: Mapping[str, pl.DataFrame], svgs: Mapping[str, str]
) -> str:
    summary = tables["summary"]
    totals = {
        "samples": int(summary["samples"].sum()),
        "scored": int(summary["scored"].sum()),
        "models": summary["model"].n_unique(),
        "environments": summary["environment"].n_unique(),
        "provider_errors": int(tables["missing"]["provider_errors"].sum()),
        "tokens": int(summary["prompt_tokens"].sum()) + int(summary["completion_tokens"].sum()),
    }
    bars = tables["leaderboard"].select("low", "mean", "high").rows()
    return template("report.html.j2").render(
        title=shown.title,
        period=shown.period,
        settings={safe_text(str(key)): safe_text(str(value)) for key, value in settings.items()},
        totals=totals,
        rows={name: rows[:_MAX_ROWS] for name, rows in shown.tables},
        left_out={name: max(0, len(rows) - _MAX_ROWS) for name, rows in shown.tables},
        names=shown.names,
        notes=shown.notes,
        bars=[bar if None not in bar else None for bar in bars],
        figures={name: (FIGURES[name], Markup(svg)) for name, svg in svgs.items()},  # noqa: S704 - drawn by us
        definitions=shown.definitions,
    )


def _figures(samples: pl.DataFrame, summary: pl.DataFrame, models: list[str]) -> dict[str, Figure]:
    drawn = {
        "scores": scores_figure(summary, models, sorted(summary["environment"].unique())),
        "samples": samples_figure(samples),
        "activity": activity_figure(samples),
        "latency": latency_figure(samples, models),
        "errors": errors_figure(samples, models),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _period(samples: pl.DataFrame) -> str:
    if samples.is_empty():
        return ""
    bounds = samples.select(pl.col("started_at").min(), pl.col("finished_at").max()).row(0)
    return f"{moment(bounds[0])} to {moment(bounds[1])}"
