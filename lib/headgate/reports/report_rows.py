"""The tables of a report as rows of text: its page and its Markdown show the same."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from headgate.reports.leaderboard import Leaderboard
from headgate.reports.leaderboard_rows import standing_rows
from headgate.reports.wording import count, interval, moment, percent, score, seconds

NAMES: Final = frozenset({"model", "environment", "group", "kind", "where", "last message"})
"""Columns of words and not of numbers."""


def rows_of(tables: dict[str, pl.DataFrame], board: Leaderboard) -> dict[str, list[dict[str, str]]]:
    """Return the tables by their headings, numbers formatted."""
    made = {"Scores": ("summary", _scores), "Missing scores": ("missing", _missing), "Errors": ("errors", _error)}
    ranked = [{name: row[name] for name in row if name not in {"p", "tasks"}} for row in standing_rows(board)]
    ranked = [{name.replace("samples", "scored samples"): cell for name, cell in row.items()} for row in ranked]
    return {"Leaderboard": ranked} | {
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
