"""How every figure looks: colours, names on axes, grid, legend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from headgate.core import ErrorKind
from headgate.reports.svg import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C7A3F", "#8A8F98")
"""Okabe and Ito's palette, told apart by colour-blind readers; its yellow and black are replaced by an olive and a
grey, since they vanish on light or dark pages."""

ERROR_COLOURS: Final[Mapping[str, str]] = dict(
    zip((kind.value for kind in ErrorKind), (*COLOURS, "#5B4B8A", "#3B6E75", "#3A36D8", "#7C7CF4"), strict=True)
)
"""A colour for every kind; the two kinds of budget are two shades of one."""


def short_name(key: str) -> str:
    """Return a model's key short enough for an axis: `@main` is left out, a long revision and a long name are cut."""
    name, _, revision = key.partition("@")
    return clipped(name if revision in {"", "main"} else f"{name}@{revision[:8]}")


def clipped(text: str, limit: int = 34) -> str:
    """Return `text` in ASCII, whose glyphs every font has, its middle left out where it is longer than `limit`."""
    shown = text.encode("ascii", "backslashreplace").decode()
    return shown if len(shown) <= limit else f"{shown[: limit // 2 - 1]}…{shown[-(limit // 2) :]}"


def quiet_grid(axes: Axes, axis: Literal["x", "y"]) -> None:
    """Draw faint lines behind the data."""
    axes.grid(axis=axis, color=INK, alpha=0.15, linewidth=0.6)
    axes.set_axisbelow(True)


_LEGEND_CHARS: Final = 110
"""Characters that fit beside each other above the axes at the legend's size."""


def legend_above(axes: Axes) -> None:
    """Put the legend above the axes, where it covers no data, in as many columns as its labels leave room for."""
    labels = axes.get_legend_handles_labels()[1]
    room = _LEGEND_CHARS // (max(len(label) for label in labels) + 5)
    columns = max(1, min(len(labels), room))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, fontsize=8, handlelength=1.2, columnspacing=1.2)
