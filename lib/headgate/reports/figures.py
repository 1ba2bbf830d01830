"""The figures of a report that do not run over time: scores, latency, errors.

Each function returns a matplotlib `Figure` outside pyplot's global state, or None when there is nothing to draw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headgate.core import ErrorKind
from headgate.reports.svg import (
    COLOURS,
    ERROR_COLOURS,
    blank_figure,
    clipped,
    drawing,
    legend_above,
    name_rows,
    quiet_grid,
    short_name,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DOT_PLOT_MODELS: Final = 24
"""With more models, or more environments than fit two rows of panels, a heat map is easier to read."""
_MAX_ROWS: Final = 80
_WRITTEN_COLUMNS: Final = 16
"""With more columns there is no room to write the mean into the cell, so a colour bar explains it."""

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
    name_rows(panels[0][0], [short_name(model) for model in models])
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
            bar.solids.set_rasterized(False)  # otherwise an image, which the SVG must not embed
    return figure


def _write_means(axes: Axes, grid: Sequence[Sequence[float]]) -> None:
    for row, means in enumerate(grid):
        for column, mean in enumerate(means):
            if not math.isnan(mean):  # a pair without a score
                ink = "#ffffff" if mean < 0.55 else "#101010"
                axes.text(column + 0.5, row + 0.5, f"{mean:.2f}", ha="center", va="center", color=ink, fontsize=8)


def latency_figure(samples: pl.DataFrame, models: Sequence[str]) -> Figure | None:
    """Return durations of scored episodes by environment and by model: 5–95 %, 25–75 % and the median."""
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
        name_rows(axes, [short_name(model) for model in shown])
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
    steps = (digit * 10.0**exponent for exponent in range(-4, 5) for digit in (1, 2, 5))
    ticks = [tick for tick in steps if low / 3 <= tick <= high * 3]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)


def _kinds(by_kind: Mapping[tuple[str, str], Any]) -> list[str]:
    found = {kind for _, kind in by_kind}
    known = [kind.value for kind in ErrorKind if kind.value in found]
    return known + sorted(found.difference(known))


_MAX_SERIES: Final = 7
_MAX_MARKS: Final = 10
_STEPS_S: Final = (1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800)


def samples_figure(samples: pl.DataFrame) -> Figure | None:
    """Return the samples finished over time, stacked by environment; the rarest of many are combined."""
    if samples.is_empty():
        return None
    width_s, start, buckets = _buckets(samples)
    with drawing():
        figure = blank_figure(2.9)
        axes = figure.subplots()
        bottom = [0.0] * buckets
        places = [index + 0.5 for index in range(buckets)]
        for number, (label, heights) in enumerate(_counts(samples, start, width_s, buckets).items()):
            axes.bar(places, heights, 0.9, bottom, color=COLOURS[number % len(COLOURS)], label=clipped(label))
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
        _time_axis(axes, start, width_s, buckets)
        axes.set_ylabel(f"samples per {_span(width_s)}")
        legend_above(axes)
    return figure


def activity_figure(samples: pl.DataFrame) -> Figure | None:
    """Return episodes in progress over time, counted from the samples' own start and end."""
    if samples.is_empty():
        return None
    width_s, start, buckets = _buckets(samples)
    running = _mean_running(samples, start, width_s, buckets)
    with drawing():
        figure = blank_figure(2.6)
        axes = figure.subplots()
        axes.stairs(running, range(buckets + 1), fill=True, color=COLOURS[0], alpha=0.35)
        axes.stairs(running, range(buckets + 1), color=COLOURS[0], linewidth=1.2)
        axes.set_ylabel("episodes in progress")
        axes.set_ylim(bottom=0)
        _time_axis(axes, start, width_s, buckets)
    return figure


def _counts(samples: pl.DataFrame, start: float, width_s: int, buckets: int) -> dict[str, list[float]]:
    counts = (
        samples.select("environment", bucket=((pl.col("finished_at") - start) // width_s).cast(pl.Int64))
        .group_by("environment", "bucket")
        .len()
    )
    totals = counts.group_by("environment").agg(pl.col("len").sum())
    names = totals.sort(["len", "environment"], descending=[True, False])["environment"].to_list()
    alone = names if len(names) <= _MAX_SERIES + 1 else names[:_MAX_SERIES]
    heights = {name: [0.0] * buckets for name in (*alone, *(("other",) if len(alone) < len(names) else ()))}
    for environment, bucket, count in counts.iter_rows():
        heights[environment if environment in alone else "other"][bucket] += count
    return heights


def _buckets(samples: pl.DataFrame) -> tuple[int, float, int]:
    """Return width, start and number of the time buckets: at most 60, of a common width."""
    first = float(samples["started_at"].min() or 0.0)  # type: ignore[arg-type]
    last = float(samples["finished_at"].max() or 0.0)  # type: ignore[arg-type]
    span = max(1.0, last - first)
    width = next((step for step in _STEPS_S if span / step <= 59), int(span / 59) + 1)
    start = first // width * width
    return width, start, int((last - start) // width) + 1


def _mean_running(samples: pl.DataFrame, start: float, width: int, buckets: int) -> list[float]:
    """Return the mean number of episodes in progress in each bucket: its busy seconds divided by its width."""
    busy = [0.0] * buckets
    for begun, ended in samples.select("started_at", "finished_at").iter_rows():
        first, last = int((begun - start) // width), int((ended - start) // width)
        for bucket in range(max(0, first), min(buckets - 1, last) + 1):
            left, right = start + bucket * width, start + (bucket + 1) * width
            busy[bucket] += max(0.0, min(ended, right) - max(begun, left))
    return [seconds / width for seconds in busy]


def _span(width: int) -> str:
    for unit, seconds in (("d", 86_400), ("h", 3600), ("min", 60)):
        if width >= seconds and width % seconds == 0:
            count = width // seconds
            return unit if count == 1 else f"{count} {unit}"
    return "s" if width == 1 else f"{width} s"


def _time_axis(axes: Axes, start: float, width: int, buckets: int) -> None:
    step = next(
        (step for step in _STEPS_S if step % width == 0 and step * _MAX_MARKS >= buckets * width),
        width * (buckets // _MAX_MARKS + 1),
    )
    first = -(-start // step) * step
    times = [first + number * step for number in range(int((start + buckets * width - first) // step) + 1)] or [start]
    labels = [_clock(at, step, is_first=number == 0) for number, at in enumerate(times)]
    axes.set_xticks([(at - start) / width for at in times], labels)
    axes.set_xlim(0, buckets)
    axes.set_xlabel("time (UTC)")
    quiet_grid(axes, "y")


def _clock(seconds: float, width: int, *, is_first: bool) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    time = "%H:%M:%S" if width < 60 else "%H:%M"
    if width >= 86_400:
        return moment.strftime("%d %b")
    return moment.strftime(f"%d %b {time}" if is_first or moment.hour + moment.minute == 0 else time)
