"""The tables of a report, made from samples: who scored what where, what went wrong, what is missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import polars as pl

from headgate.core import ErrorKind, Sample, errors
from headgate.reports.costs import COST_COLUMNS
from headgate.reports.leaderboard import Leaderboard, bounds_table
from headgate.reports.statistics import distinct
from headgate.statistics import independent_mean
from headgate.telemetry import safe_text

PROVIDER_ERRORS: Final = (
    ErrorKind.RATE_LIMITED,
    ErrorKind.PROVIDER_FAILURE,
    ErrorKind.PROVIDER_TIMEOUT,
    ErrorKind.AUTH,
    ErrorKind.BAD_REQUEST,
    ErrorKind.CONNECTION,
    ErrorKind.ENGINE,
)
"""Kinds that the model's endpoint, or the way to it, is responsible for."""

_TYPES: Final[dict[str, Any]] = {
    **dict.fromkeys(("task_id", "model", "environment", "error_kind", "error", "trace_id"), pl.String),
    **dict.fromkeys(("index", "prompt_tokens", "completion_tokens", *COST_COLUMNS), pl.Int64),
    **dict.fromkeys(("score", "started_at", "finished_at", "latency_s"), pl.Float64),
    "success": pl.Boolean,
}
"""The columns that a report reads; the others, conversations above all, are left where they are."""

_ERROR_ROWS: Final = 200


SERVED: Final = ("served_model", "system_fingerprint")
"""Columns of a sample that say who answered."""

MOST_SERVED: Final = 5
"""Of a model in a sentence, the latest."""


def checked_samples(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row per task with the columns that a report reads, times in seconds since the epoch.

    Samples without an `index` have no task in common, so that models cannot be compared.
    """
    if samples.is_empty():
        return pl.DataFrame(schema=_TYPES)
    if "index" not in samples.columns:
        samples = samples.with_row_index("index")
    samples = samples.with_columns(
        pl.lit(None, dtype=pl.Int64).alias(name) for name in COST_COLUMNS if name not in samples.columns
    )
    missing = [name for name in _TYPES if name not in samples.columns]
    if missing:
        known = ", ".join(field.name for field in dataclasses.fields(Sample))
        raise errors.InvalidInputError(
            f"the samples lack the columns {', '.join(missing)}", next_step=f"A sample has the columns {known}."
        )
    typed = samples.select(_column(name, samples.schema[name]) for name in _TYPES)
    return distinct(typed.with_columns(pl.col("score").fill_nan(None)))


def served_notes(samples: pl.DataFrame) -> tuple[str, ...]:
    """Return a sentence for each model whose endpoint has named several served models or fingerprints, and when."""
    if samples.is_empty() or not set(SERVED) <= set(samples.columns):
        return ()
    by = pl.concat_str(pl.col(SERVED).cast(pl.String), separator=" ", ignore_nulls=True).alias("by")
    named = samples.select("model", _column("finished_at", samples.schema["finished_at"]), by).filter(
        pl.col("by") != ""
    )
    spans = named.group_by("model", "by").agg(pl.col("finished_at").min(), pl.len()).sort("model", "finished_at", "by")
    told: dict[str, list[str]] = {}
    for model, name, since, number in spans.iter_rows():
        when = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%d %H:%M UTC")
        told.setdefault(model, []).append(f"{safe_text(name, limit_chars=100)} since {when} (samples: {number:,})")
    return tuple(
        f"The endpoint of {model} changed; answered by {', '.join(names[-MOST_SERVED:])}."
        for model, names in told.items()
        if len(names) > 1
    )


def summary_table(samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row per model and environment: counts, mean score with interval, latency, tokens.

    Latency is that of the scored samples: an endpoint that times out would otherwise look like a slow model.
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

    `left_out` counts the environments that the mean leaves out; `rank_could_change` is of missing scores.
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
    """Return one row per model: how many of its samples have no score, why, and what that could hide.

    `mean` is that of the leaderboard; `mean_if_zero` and `mean_if_one` are what it had been, had every missing score
    been 0, or 1: the mean that no error would have hidden lies between them. Cancelled samples count among the missing.
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
    """Return the rows of `table` with its models in the order of `models`, otherwise as they were."""
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
