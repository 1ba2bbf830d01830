"""The figures of a report that run over time: samples finished, episodes in progress, the ready queue.

Each function returns a matplotlib `Figure` that no global state knows of, or None when there is nothing to draw.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import polars as pl

from headgate.reports.style import COLOURS, clipped, legend_above, quiet_grid
from headgate.reports.svg import blank_figure, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_SERIES: Final = 7
_MAX_MARKS: Final = 10
_STEPS_S: Final = (1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800)


def samples_figure(samples: pl.DataFrame) -> Figure | None:
    """Return the samples finished over time, stacked by environment; the rarest of many are shown together."""
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


def activity_figure(samples: pl.DataFrame, activity: pl.DataFrame | None = None) -> Figure | None:
    """Return episodes in progress over time, counted from the samples' own start and end.

    `activity`, when given, has columns `at` (seconds since the epoch), `busy`, `workers` and `queued`, one row per
    reading of the status: busy workers against all workers are shown then, and the ready queue below.
    """
    if samples.is_empty():
        return None
    width_s, start, buckets = _buckets(samples)
    with drawing():
        if activity is None or activity.is_empty():
            figure = blank_figure(2.6)
            top = bottom = figure.subplots()
            running = _mean_running(samples, start, width_s, buckets)
            top.stairs(running, range(buckets + 1), fill=True, color=COLOURS[0], alpha=0.35)
            top.stairs(running, range(buckets + 1), color=COLOURS[0], linewidth=1.2)
            top.set_ylabel("episodes in progress")
        else:
            figure = blank_figure(4.2)
            top, bottom = figure.subplots(2, 1, sharex=True)
            _draw_readings(top, bottom, activity.sort("at"), start, width_s)
        top.set_ylim(bottom=0)
        quiet_grid(top, "y")
        _time_axis(bottom, start, width_s, buckets)
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


def _draw_readings(top: Axes, bottom: Axes, activity: pl.DataFrame, start: float, width_s: int) -> None:
    at = ((activity["at"] - start) / width_s).to_list()
    top.fill_between(at, activity["busy"].to_list(), color=COLOURS[0], alpha=0.35, linewidth=0)
    top.plot(at, activity["busy"], color=COLOURS[0], linewidth=1.2, label="busy workers")
    top.plot(at, activity["workers"], color=COLOURS[5], linestyle="--", linewidth=1.2, label="workers")
    top.set_ylabel("workers")
    legend_above(top)
    bottom.plot(at, activity["queued"], color=COLOURS[2], linewidth=1.2)
    bottom.set_ylabel("tasks queued")
    bottom.set_ylim(bottom=0)


def _buckets(samples: pl.DataFrame) -> tuple[int, float, int]:
    """Return width, start and number of the time buckets: at most 60, and of a width that people use."""
    first = float(samples["started_at"].min() or 0.0)  # type: ignore[arg-type]
    last = float(samples["finished_at"].max() or 0.0)  # type: ignore[arg-type]
    span = max(1.0, last - first)
    width = next((step for step in _STEPS_S if span / step <= 59), int(span / 59) + 1)
    start = first // width * width
    return width, start, int((last - start) // width) + 1


def _mean_running(samples: pl.DataFrame, start: float, width: int, buckets: int) -> list[float]:
    """Return the mean number of episodes in progress in each bucket: busy seconds of it divided by its width."""
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
