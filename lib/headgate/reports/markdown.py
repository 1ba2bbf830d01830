"""A report as Markdown for an artifact: what fits, and a sentence about what does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from headgate.reports.gfm import code, fitting, plain, table
from headgate.reports.wording import DEFINITIONS, count, interval, moment, percent, score, seconds


def markdown_of(title: str, period: str, tables: Mapping[str, pl.DataFrame]) -> str:
    """Return the report, at most 100 kB: with fewer rows per table where it would be longer."""
    return fitting(lambda rows: _document(title, period, tables, rows))


def _document(title: str, period: str, tables: Mapping[str, pl.DataFrame], rows: int) -> str:
    head = [f"# {plain(title)}", plain(period)]
    if tables["summary"].is_empty():
        return "\n\n".join([*filter(None, head), "There are no samples to report on."]) + "\n"
    sections = [
        *head,
        "## Leaderboard",
        _leaderboard(tables["leaderboard"], rows),
        "## Scores",
        _scores(tables["summary"], rows),
        "## Missing scores",
        _missing(tables["missing"], rows),
        "## Errors",
        _errors(tables["errors"], rows),
        "## What the figures mean",
        "\n".join(f"- **{term}**: {meaning}" for term, meaning in DEFINITIONS.items()),
    ]
    return "\n\n".join(sections) + "\n"


def _leaderboard(board: pl.DataFrame, rows: int) -> str:
    cells = [
        [
            str(row["rank"]),
            code(row["model"]),
            score(row["mean"]),
            interval(row["low"], row["high"]),
            str(row["environments"]),
            count(row["scored"]),
        ]
        for row in _head(board, rows)
    ]
    header = ["#", "model", "mean", "95 % interval", "environments", "scored samples"]
    return table(header, cells, numbers_from=2) + _left_out(board, rows)


def _scores(summary: pl.DataFrame, rows: int) -> str:
    cells = [
        [
            code(row["model"]),
            code(row["environment"]),
            count(row["samples"]),
            score(row["mean"]),
            interval(row["low"], row["high"]),
            percent(row["success_rate"]),
            count(row["errors"]),
            seconds(row["latency_p50_s"]),
            seconds(row["latency_p95_s"]),
            count(row["prompt_tokens"] + row["completion_tokens"]),
        ]
        for row in _head(summary, rows)
    ]
    header = ["model", "environment", "samples", "mean", "95 % interval", "success", "errors", "p50", "p95", "tokens"]
    return table(header, cells, numbers_from=2) + _left_out(summary, rows)


def _missing(missing: pl.DataFrame, rows: int) -> str:
    cells = [
        [
            code(row["model"]),
            count(row["samples"]),
            count(row["samples"] - row["scored"]),
            percent(row["provider_share"]),
            score(row["mean"]),
            score(row["mean_if_zero"]),
            score(row["mean_if_one"]),
        ]
        for row in _head(missing, rows)
    ]
    header = [
        "model",
        "samples",
        "missing",
        "provider errors",
        "mean of all scored",
        "if missing were 0",
        "if missing were 1",
    ]
    return table(header, cells) + _left_out(missing, rows)


def _errors(errors: pl.DataFrame, rows: int) -> str:
    if errors.is_empty():
        return "No sample ended in an error."
    cells = [
        [
            code(row["model"]),
            code(row["error_kind"]),
            count(row["errors"]),
            code(row["environments"], limit_chars=120),
            code(row["last_message"], limit_chars=160),
            moment(row["last_at"]),
        ]
        for row in _head(errors, rows)
    ]
    header = ["model", "kind", "errors", "where", "last message", "last at"]
    return table(header, cells, numbers_from=len(header)) + _left_out(errors, rows)


def _head(frame: pl.DataFrame, rows: int) -> list[dict[str, Any]]:
    return frame.head(rows).to_dicts()


def _left_out(frame: pl.DataFrame, rows: int) -> str:
    more = frame.height - rows
    return f"\n\n{more:,} more rows stand in the HTML report." if more > 0 else ""
