"""Charts of an artifact as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate.reports import COLOURS, INK, blank_figure, clipped, drawing, inline_svg, legend_above, quiet_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

_HEIGHT_IN: Final = 3.2
_MANY_NAMES: Final = 12
_DASHES: Final = ("-", (0, (6, 3)), (0, (2, 2)), (0, (6, 2, 2, 2)))
"""Dashes of lines without markers, so that overlapping lines are both visible."""


def chart_svg(chart: Mapping[str, Any], name: str) -> str:
    """Return a chart of an artifact as an SVG element; `name` prefixes its ids."""
    with drawing():
        figure = blank_figure(_height_in(chart))
        axes = figure.subplots()
        if chart["kind"] == "lines":
            _lines(axes, chart["series"])
        else:
            _bars(axes, chart["series"])
        if chart["level"] is not None:
            axes.axhline(chart["level"], color=INK, linewidth=1, linestyle=(0, (4, 3)), label="bar")
        if "x" in chart["log"]:
            axes.set_xscale("log")
            _in_plain_numbers(axes.xaxis)
        if "y" in chart["log"]:
            axes.set_yscale("log")
            _in_plain_numbers(axes.yaxis)
        elif axes.get_ylim()[0] > 0:
            axes.set_ylim(bottom=0)
        axes.set_xlabel(chart["x"])
        axes.set_ylabel(chart["y"])
        quiet_grid(axes, "y")
        if len(axes.get_legend_handles_labels()[0]) > 1:
            legend_above(axes)
    return inline_svg(figure, name, chart["title"])


def _in_plain_numbers(axis: Axis) -> None:
    """Write powers of ten as plain numbers: as formulas their markup would show."""
    axis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axis.set_minor_formatter("")


def _names(series: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for points in series.values() for name, _ in points))


def _height_in(chart: Mapping[str, Any]) -> float:
    """Return a height that leaves room for steeply rotated names."""
    is_crowded = chart["kind"] == "bars" and len(_names(chart["series"])) > _MANY_NAMES
    return _HEIGHT_IN + (1.4 if is_crowded else 0.0)


def _lines(axes: Axes, series: Mapping[str, Any]) -> None:
    for number, (label, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        marker = "o" if len(points) <= 12 else None
        dashes = "-" if marker else _DASHES[number % len(_DASHES)]
        xs, ys = [x for x, _ in points], [y for _, y in points]
        axes.plot(xs, ys, color=colour, linestyle=dashes, marker=marker, markersize=4, label=label)


def _bars(axes: Axes, series: Mapping[str, Any]) -> None:
    names = _names(series)
    width = 0.8 / max(1, len(series))
    for number, (label, points) in enumerate(series.items()):
        shift = (number - (len(series) - 1) / 2) * width
        places = [names.index(name) + shift for name, _ in points]
        axes.bar(places, [value for _, value in points], width, color=COLOURS[number % len(COLOURS)], label=label)
    if len(names) > _MANY_NAMES:
        axes.set_xticks(range(len(names)), [clipped(name, 36) for name in names], rotation=60, ha="right", fontsize=8)
        for tick in axes.get_xticklabels():
            tick.set_rotation_mode("anchor")
    else:
        axes.set_xticks(range(len(names)), [clipped(name, 22) for name in names], rotation=20 if len(names) > 5 else 0)
