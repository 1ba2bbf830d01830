"""A small table of mean scores for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from rich.table import Table
from rich.text import Text

from headgate.telemetry import printable

_MOST_COLUMNS = 6
"""Of scores: more do not fit beside each other in a terminal, and become rows."""


def score_table(samples: pl.DataFrame, environments: Sequence[str] = ()) -> Table:
    """Return the mean score and the count of scored samples of each model in each environment.

    Models are rows and environments columns, or the other way round where there are many environments.

    Args:
        samples: `model`, `environment` and `score`, one row per sample; those without a score do not count.
        environments: in this order, also those without a sample; those of the samples when empty.
    """
    means = (
        samples.filter(pl.col("score").is_not_null())
        .group_by("model", "environment")
        .agg(pl.col("score").mean(), pl.len().alias("samples"))
    )
    cells = {
        (model, environment): f"{mean:.2f} ({count})"
        for model, environment, mean, count in means.select("model", "environment", "score", "samples").iter_rows()
    }
    models = sorted({model for model, _ in cells})
    shown = list(environments) or sorted({environment for _, environment in cells})
    if len(shown) > max(_MOST_COLUMNS, len(models)):
        return _table("environment", models, [(e, [cells.get((m, e), "") for m in models]) for e in shown])
    return _table("model", shown, [(m, [cells.get((m, e), "") for e in shown]) for m in models])


def _table(corner: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> Table:
    table = Table(title="Mean score (scored samples)", title_justify="left")
    table.add_column(corner)
    for column in columns:
        table.add_column(Text(printable(column)), justify="right")
    for name, row in rows:
        table.add_row(Text(printable(name)), *row)
    return table
