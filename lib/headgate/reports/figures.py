"""The figures of a report that do not run over time: scores, latency, errors.

Each function returns a matplotlib `Figure` that no global state knows of, or None when there is nothing to draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headgate.core import ErrorKind
from headgate.reports.style import COLOURS, ERROR_COLOURS, clipped, legend_above, quiet_grid, short_name
from headgate.reports.svg import blank_figure, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DOT_PLOT_MODELS: Final = 24
"""With more models, or more environments than fit two rows of panels, a heat map is easier to read."""
_MAX_ROWS: Final = 80
_WRITTEN_COLUMNS: Final = 16
"""More columns than these leave no room to write the mean into the cell; a colour bar explains it then."""

_PANELS_PER_ROW: Final = 4


def scores_figure(summary: pl.DataFrame, models: Sequence[str], environments: Sequence[str]) -> Figure | None:
    """Return mean scores with 95 % intervals, a panel per environment; a heat map of the means when there are many."""
    shown = [model for model in models if model in set(_scored(summary)["model"])][:_MAX_ROWS]
    if not shown:
        return None
    with drawing():
        if len(shown) > _DOT_PLOT_MODELS or len(environments) > 2 * _PANELS_PER_ROW:
            return _heat_map(summary, shown, environments)
        return _dot_plot(summary, shown, environments)


def _dot_plot(summary: pl.DataFrame, models: Sequence[str], environments: Sequence[str]) -> Figure:
    columns = min(_PANELS_PER_ROW, len(environments))
    rows = -(-len(environments) // columns)
    figure = blank_figure(rows * (0.28 * len(models) + 0.75))
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    place = {model: row for row, model in enumerate(models)}
    for number, (axes, environment) in enumerate(zip_longest(panels.flat, environments)):
        if environment is None:
            axes.set_visible(False)
            continue
        part = _scored(summary).filter(pl.col("environment") == environment, pl.col("model").is_in(models))
        rows_at = [place[model] for model in part["model"]]
        colour = COLOURS[number % len(COLOURS)]
        axes.hlines(rows_at, part["low"], part["high"], color=colour, linewidth=2, alpha=0.55)
        axes.plot(part["mean"], rows_at, "o", color=colour, markersize=5)
        axes.set_title(clipped(environment, 28), loc="left")
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(-0.02, 1.02)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
        quiet_grid(axes, "x")
    first = panels[0][0]
    first.set_yticks(range(len(models)), [short_name(model) for model in models])
    first.set_ylim(len(models) - 0.5, -0.5)
    for axes in panels[-1]:
        axes.set_xlabel("mean score")
    return figure


def _heat_map(summary: pl.DataFrame, models: Sequence[str], environments: Sequence[str]) -> Figure:
    figure = blank_figure(0.21 * len(models) + 1.3)
    axes = figure.subplots()
    means = {(row["model"], row["environment"]): row["mean"] for row in _scored(summary).iter_rows(named=True)}
    grid = [[means.get((model, environment), float("nan")) for environment in environments] for model in models]
    mesh = axes.pcolormesh(grid, cmap="cividis", vmin=0, vmax=1, edgecolors="none")
    columns = [clipped(environment, 28) for environment in environments]
    axes.set_xticks([column + 0.5 for column in range(len(columns))], columns, rotation=30, ha="left")
    axes.xaxis.tick_top()
    axes.set_yticks([row + 0.5 for row in range(len(models))], [short_name(model) for model in models])
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if len(environments) <= _WRITTEN_COLUMNS:
        _write_means(axes, grid)
    else:
        bar = figure.colorbar(mesh, ax=axes, label="mean score", fraction=0.03, pad=0.01)
        if bar.solids is not None:
            bar.solids.set_rasterized(False)  # an image otherwise, and the SVG is to embed none
    return figure


def _write_means(axes: Axes, grid: Sequence[Sequence[float]]) -> None:
    for row, means in enumerate(grid):
        for column, mean in enumerate(means):
            if not math.isnan(mean):  # a pair without a score
                ink = "#ffffff" if mean < 0.55 else "#101010"
                axes.text(column + 0.5, row + 0.5, f"{mean:.2f}", ha="center", va="center", color=ink, fontsize=8)


def latency_figure(samples: pl.DataFrame, models: Sequence[str]) -> Figure | None:
    """Return how long scored episodes took, by environment and by model: 5–95 %, 25–75 % and the median."""
    scored = samples.filter(pl.col("score").is_not_null(), pl.col("latency_s") > 0)
    if scored.is_empty():
        return None
    by_environment = _quantiles(scored, "environment")
    by_model = _quantiles(scored, "model")
    order = [model for model in models if model in by_model][:_MAX_ROWS]
    environments = sorted(by_environment)[:_MAX_ROWS]
    rows = max(len(environments), len(order))
    with drawing():
        figure = blank_figure(0.26 * rows + 0.95)
        left, right = figure.subplots(1, 2, sharex=True)
        _quantile_bars(left, [(clipped(name), by_environment[name]) for name in environments], rows, COLOURS[0])
        _quantile_bars(right, [(short_name(model), by_model[model]) for model in order], rows, COLOURS[2])
        left.set_title("by environment", loc="left")
        right.set_title("by model", loc="left")
        _seconds_axis(left, scored)
    return figure


def errors_figure(samples: pl.DataFrame, models: Sequence[str]) -> Figure | None:
    """Return the share of each model's samples that ended in an error, by kind."""
    counts = samples.group_by("model", "error_kind").len()
    totals = dict(counts.group_by("model").agg(pl.col("len").sum()).iter_rows())
    by_kind = {(model, kind): count for model, kind, count in counts.iter_rows() if kind is not None}
    failing = {model for model, _ in by_kind}
    shown = [model for model in models if model in failing][:_MAX_ROWS]
    if not shown:
        return None
    with drawing():
        figure = blank_figure(0.28 * len(shown) + 1.2)
        axes = figure.subplots()
        left = [0.0] * len(shown)
        for kind in _kinds(by_kind):
            shares = [100 * by_kind.get((model, kind), 0) / totals[model] for model in shown]
            axes.barh(
                range(len(shown)), shares, 0.62, left, color=ERROR_COLOURS.get(kind, COLOURS[-1]), label=clipped(kind)
            )
            left = [start + share for start, share in zip(left, shares, strict=True)]
        axes.set_yticks(range(len(shown)), [short_name(model) for model in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlabel("% of the model's samples")
        quiet_grid(axes, "x")
        legend_above(axes)
    return figure


def _scored(summary: pl.DataFrame) -> pl.DataFrame:
    return summary.filter(pl.col("mean").is_not_null())


_QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)


def _quantiles(scored: pl.DataFrame, by: str) -> dict[str, tuple[float, ...]]:
    parts = [pl.col("latency_s").quantile(q, "linear").alias(str(q)) for q in _QUANTILES]
    return {row[0]: row[1:] for row in scored.group_by(by).agg(parts).iter_rows()}


def _quantile_bars(axes: Axes, named: Sequence[tuple[str, tuple[float, ...]]], rows: int, colour: str) -> None:
    values = [quantiles for _, quantiles in named]
    places = range(len(values))
    axes.hlines(places, [v[0] for v in values], [v[4] for v in values], color=colour, linewidth=1.5, alpha=0.7)
    axes.hlines(places, [v[1] for v in values], [v[3] for v in values], color=colour, linewidth=6, alpha=0.45)
    axes.plot([v[2] for v in values], places, "o", color=colour, markersize=5)
    axes.set_yticks(places, [name for name, _ in named])
    axes.set_ylim(rows - 0.5, -0.5)
    quiet_grid(axes, "x")
    axes.set_xlabel("seconds (log scale)")


def _seconds_axis(axes: Axes, scored: pl.DataFrame) -> None:
    low, high = _quantiles(scored.with_columns(all=pl.lit("all")), "all")["all"][::4]
    axes.set_xscale("log")
    ticks = [tick for tick in _log_ticks() if low / 3 <= tick <= high * 3]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)


def _log_ticks() -> Iterator[float]:
    for exponent in range(-4, 5):
        for digit in (1, 2, 5):
            yield digit * 10.0**exponent


def _kinds(by_kind: Mapping[tuple[str, str], Any]) -> list[str]:
    found = {kind for _, kind in by_kind}
    known = [kind.value for kind in ErrorKind if kind.value in found]
    return known + sorted(found.difference(known))
