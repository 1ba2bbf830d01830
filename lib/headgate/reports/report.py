"""A report about samples: a self-contained page, Markdown for an artifact, tables and figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from markupsafe import Markup

from headgate.core import ErrorKind, Sample, errors, utc_text
from headgate.reports.compared import DEFINITIONS, Compared, count, interval, percent, score, seconds, template
from headgate.reports.costs import COST_COLUMNS
from headgate.reports.figures import activity_figure, errors_figure, latency_figure, samples_figure, scores_figure
from headgate.reports.leaderboard import SERVED, Leaderboard, MissingRule, bounds_table, build_leaderboard
from headgate.reports.leaderboard_tables import leaderboard_notes, standing_rows
from headgate.reports.ranking import neighbour_rows
from headgate.reports.statistics import distinct
from headgate.reports.svg import inline_svg, png_of
from headgate.statistics import independent_mean
from headgate.telemetry import safe_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROVIDER_ERRORS: Final = (
    ErrorKind.RATE_LIMITED,
    ErrorKind.PROVIDER_FAILURE,
    ErrorKind.PROVIDER_TIMEOUT,
    ErrorKind.AUTH,
    ErrorKind.QUOTA,
    ErrorKind.BAD_REQUEST,
    ErrorKind.CONNECTION,
    ErrorKind.ENGINE,
)
"""Kinds of errors caused by the model's endpoint or the connection to it."""

_TYPES: Final[dict[str, Any]] = {
    **dict.fromkeys(("task_id", "model", "environment", "error_kind", "error", "trace_id", *SERVED), pl.String),
    **dict.fromkeys(("index", "prompt_tokens", "completion_tokens", *COST_COLUMNS), pl.Int64),
    **dict.fromkeys(("score", "started_at", "finished_at", "latency_s"), pl.Float64),
    "success": pl.Boolean,
}
"""The columns that a report reads; it does not load others, above all conversations."""

_ERROR_ROWS: Final = 200


def checked_samples(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row per task with the columns that a report reads, times in seconds since the epoch.

    Samples without an `index` have no common tasks, so models cannot be compared.
    """
    if samples.is_empty():
        return pl.DataFrame(schema=_TYPES)
    if "index" not in samples.columns:
        samples = samples.with_row_index("index")
    samples = samples.with_columns(
        pl.lit(None, dtype=_TYPES[name]).alias(name) for name in (*COST_COLUMNS, *SERVED) if name not in samples.columns
    )
    missing = [name for name in _TYPES if name not in samples.columns]
    if missing:
        known = ", ".join(field.name for field in dataclasses.fields(Sample))
        raise errors.InvalidInputError(
            f"the samples lack the columns {', '.join(missing)}", next_step=f"A sample has the columns {known}."
        )
    typed = samples.select(_column(name, samples.schema[name]) for name in _TYPES)
    return distinct(typed.with_columns(pl.col("score").fill_nan(None)))


def summary_table(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row per model and environment: counts, mean score with interval, latency, tokens.

    Latency covers only scored samples: otherwise an endpoint that times out would look like a slow model.
    """
    is_scored = pl.col("score").is_not_null()
    rows = (
        samples.group_by("model", "environment")
        .agg(
            pl.len().alias("samples"),
            is_scored.sum().alias("scored"),
            pl.col("score").mean().alias("mean"),
            pl.col("score").var().fill_null(0.0).alias("variance"),
            pl.col("score").drop_nulls().is_in([0.0, 1.0]).all().alias("is_binary"),
            (pl.col("success") & is_scored).sum().alias("successes"),
            pl.col("error_kind").is_not_null().sum().alias("errors"),
            pl.col("latency_s").filter(is_scored).quantile(0.5, "linear").alias("latency_p50_s"),
            pl.col("latency_s").filter(is_scored).quantile(0.95, "linear").alias("latency_p95_s"),
            pl.col("prompt_tokens").sum(),
            pl.col("completion_tokens").sum(),
        )
        .sort("model", "environment")
    )
    estimates = [
        independent_mean(row["scored"], row["mean"], row["variance"], is_binary=row["is_binary"])
        if row["scored"]
        else None
        for row in rows.iter_rows(named=True)
    ]
    return rows.select(
        "model",
        "environment",
        "samples",
        "scored",
        "mean",
        pl.Series("low", [part.low if part else None for part in estimates], dtype=pl.Float64),
        pl.Series("high", [part.high if part else None for part in estimates], dtype=pl.Float64),
        pl.Series("method", [part.method if part else None for part in estimates], dtype=pl.String),
        (pl.col("successes") / pl.when(pl.col("scored") > 0).then(pl.col("scored"))).alias("success_rate"),
        "errors",
        "latency_p50_s",
        "latency_p95_s",
        "prompt_tokens",
        "completion_tokens",
    )


def leaderboard_table(board: Leaderboard) -> pl.DataFrame:
    """Return one row per model, best first, as `build_leaderboard` ranks them; models without any score come last.

    `left_out` counts the environments that the mean leaves out; `rank_could_change` is due to missing scores.
    """
    schema = {
        "rank": pl.Int64,
        "model": pl.String,
        "environments": pl.Int64,
        "left_out": pl.Int64,
        "mean": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "samples": pl.Int64,
        "scored": pl.Int64,
        "missing_share": pl.Float64,
        "rank_could_change": pl.Boolean,
        "cost_micro": pl.Int64,
        "cost_per_point": pl.Float64,
    }
    of = len(board.environments)
    rows: list[tuple[Any, ...]] = [
        (one.rank, one.model, one.environments, of - one.environments, one.mean.mean, one.mean.low, one.mean.high,
         one.missing.samples, one.missing.scored, one.missing.share, one.could_move,
         *((None, None) if one.cost is None else (one.cost.micro, one.cost.per_point)))
        for one in board.standings
    ]  # fmt: skip
    rows += [
        (None, model, 0, of, None, None, None, lost, 0, 1.0, False, None, None)
        for model, lost in board.unscored.items()
    ]
    return pl.DataFrame(rows, schema=schema, orient="row")


def error_table(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row per model and error kind: how often, where, and the last message; most frequent first."""
    rows = (
        samples.filter(pl.col("error_kind").is_not_null())
        .sort("finished_at", "task_id")
        .group_by("model", "error_kind", maintain_order=True)
        .agg(
            pl.len().alias("errors"),
            _where().alias("environments"),
            pl.col("finished_at").last().alias("last_at"),
            pl.col("error").last().alias("last_message"),
        )
        .sort(["errors", "model", "error_kind"], descending=[True, False, False])
        .head(_ERROR_ROWS)
    )
    messages = [safe_text(message or "", limit_chars=300) for message in rows["last_message"]]
    return rows.with_columns(pl.Series("last_message", messages, dtype=pl.String))


def missing_table(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row per model: how many of its samples have no score, why, and how that could affect the mean.

    `mean` is that of the leaderboard; `mean_if_zero` and `mean_if_one` are the mean if every missing score were 0 or 1:
    the mean without errors lies between them. Cancelled samples count as missing.
    """
    kinds = {
        "provider_errors": pl.col("error_kind").is_in([kind.value for kind in PROVIDER_ERRORS]),
        "environment_errors": pl.col("error_kind") == ErrorKind.ENVIRONMENT.value,
        "cancelled": pl.col("error_kind") == ErrorKind.CANCELLED.value,
    }
    counts = samples.group_by("model").agg(
        is_kind.fill_null(value=False).sum().alias(name) for name, is_kind in kinds.items()
    )
    told = bounds_table(samples).join(counts, on="model").sort("model")
    share = (pl.col("provider_errors") / pl.col("samples")).alias("provider_share")
    means = ("mean", "mean_if_zero", "mean_if_one")
    return told.select(
        "model", "samples", "scored", "provider_errors", share, "environment_errors", "cancelled", *means
    )


def in_order(table: pl.DataFrame, models: Sequence[str]) -> pl.DataFrame:
    """Return the rows of `table` sorted by the order of `models`, otherwise unchanged."""
    rank = pl.col("model").replace_strict(list(models), range(len(models)), return_dtype=pl.Int64)
    return table if table.is_empty() else table.sort(rank, maintain_order=True)


def _where() -> pl.Expr:
    number = pl.col("environment").n_unique()
    return pl.when(number == 1).then(pl.col("environment").first()).otherwise(pl.format("{} environments", number))


def _column(name: str, given: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if given.is_temporal():
        column = column.dt.epoch("us") / 1_000_000
    return column.cast(_TYPES[name])


NAMES: Final = frozenset({"model", "next", "verdict", "environment", "group", "kind", "where", "last message"})
"""Columns of words instead of numbers."""

MAX_SCORE_ROWS: Final = 1_000
"""Maximum rows of a table artifact: the UI renders all of them at once."""

FIGURES: Final[Mapping[str, str]] = {
    "scores": "Mean score and 95 % interval of each model by environment",
    "samples": "Samples finished over time by environment",
    "activity": "Episodes in progress over time",
    "latency": "Latency of scored episodes: median, 25–75 % and 5–95 %",
    "errors": "Share of each model's samples that ended in an error, by kind",
}
"""Name -> caption of every figure that a report can have."""

_MAX_ROWS: Final = 2_000
"""Maximum rows of one table on the page; the report's data has the complete tables."""


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
        "last at": utc_text(row["last_at"]),
    }


@dataclass(frozen=True, slots=True)
class Report:
    """A report in all its forms.

    Attributes:
        html: one self-contained page: no script, no network.
        markdown: GitHub-flavoured, at most 100 000 bytes.
        tables: `leaderboard`, `summary`, `missing`, `errors`.
        figures_svg: name -> SVG element, as in the page.
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
    """Return the report about `samples`; the same input gives the same report.

    Args:
        samples: one row per sample, columns as the fields of `core.Sample`; without rows the report says so, and
            without `index`, which identifies common tasks, it has no ranks.
        title: title of the page.
        period: time span of the samples; by default from the first start to the last end.
        settings: shown on the page, secrets redacted.
        with_png: whether to draw the figures as PNG as well, which takes about as long as everything else.
        missing: how samples without a score count in the ranking; see `build_leaderboard`.

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
        notes=leaderboard_notes(board),
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
    return f"{utc_text(bounds[0])} to {utc_text(bounds[1])}"
