"""Figures as files: SVG to embed in a page, and PNG."""

from __future__ import annotations

import io
import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

# Parses only matplotlib's own output, never a document from outside.
from xml.etree import ElementTree as ET

from headgate.core import ErrorKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN: Final = 10.0
"""Width of every figure in inches."""

INK: Final = "#262b33"
"""Colour of text and axes; in SVG it becomes `currentColor`, so that a figure is readable on light and dark pages."""

_FONT: Final = "DejaVu Sans"
_PAGE_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_DPI: Final = 144
_SVG: Final = "http://www.w3.org/2000/svg"
_HREF: Final = "{http://www.w3.org/1999/xlink}href"
_ELEMENTS: Final = frozenset({"svg", "g", "path", "text", "tspan", "defs", "clipPath", "use", "rect", "title"})
_URL: Final = re.compile(r"url\(#([^)]+)\)")
_SETTINGS: Final[Any] = {
    "svg.fonttype": "none",  # text stays text: searchable, small, in the page's font
    "svg.hashsalt": "headgate",  # ids depend on the drawing alone
    "text.parse_math": False,  # a `$` in a name is a dollar sign
    "font.family": _FONT,
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
}
_lock = threading.RLock()
"""Protects matplotlib's settings, which are global to the process."""


@contextmanager
def drawing() -> Iterator[None]:
    """Draw and save with the report's settings, one thread at a time; restores the process's settings afterwards."""
    import matplotlib as mpl  # noqa: PLC0415 - half a second, needed only to draw

    with _lock, mpl.rc_context(_SETTINGS):
        yield


def blank_figure(height_in: float) -> Figure:
    """Return a figure as wide as a page, outside pyplot's global state."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - as in `drawing`

    return Figure(figsize=(WIDTH_IN, height_in), layout="constrained")


def png_of(figure: Figure) -> bytes:
    """Return `figure` as a PNG on white."""
    with drawing():
        buffer = io.BytesIO()
        metadata = {"Software": None}
        figure.savefig(buffer, format="png", dpi=_DPI, facecolor="white", metadata=metadata)
        return buffer.getvalue()


def inline_svg(figure: Figure, name: str, title: str) -> str:
    """Return `figure` as an SVG element for a page: the same drawing gives the same text.

    `name` prefixes every id, so that the ids of several figures on a page do not collide; `title` is for screen
    readers. Style sheets, scripts, images and references to other documents are removed.
    """
    buffer = io.BytesIO()
    with drawing():
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    root = ET.fromstring(buffer.getvalue())  # noqa: S314 - see the import
    _clean(root, name)
    width, height = root.attrib.pop("width"), root.attrib.pop("height")
    root.attrib |= {
        "xmlns": _SVG,
        "role": "img",
        "aria-label": title,
        "data-size": f"{width.removesuffix('pt')} {height.removesuffix('pt')}",
        # Of matplotlib's style sheet, which would apply to the whole page.
        "stroke-linejoin": "round",
        "stroke-linecap": "butt",
    }
    text = ET.tostring(root, encoding="unicode")
    return text.replace(INK, "currentColor").replace(f"'{_FONT}'", _PAGE_FONT)


def _clean(element: ET.Element, name: str) -> None:
    element.tag = _local(element.tag)
    for key, value in list(element.attrib.items()):
        if key == "id":
            element.attrib[key] = f"{name}-{value}"
        elif key in {"href", _HREF}:
            del element.attrib[key]
            if value.startswith("#"):
                element.attrib["href"] = f"#{name}-{value[1:]}"
        elif key.startswith("on"):
            del element.attrib[key]
        else:
            element.attrib[key] = _URL.sub(rf"url(#{name}-\1)", value)
    for child in list(element):
        if not isinstance(child.tag, str) or _local(child.tag) not in _ELEMENTS:
            element.remove(child)
        else:
            _clean(child, name)


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C7A3F", "#8A8F98")
"""Okabe and Ito's palette, which colour-blind readers can distinguish; olive and grey replace its yellow and black,
which vanish on light or dark pages."""

_MORE: Final = ("#5B4B8A", "#3B6E75", "#3A36D8", "#7C7CF4", "#A0522D", "#9B4F7C")

ERROR_COLOURS: Final[Mapping[str, str]] = dict(zip((kind.value for kind in ErrorKind), (*COLOURS, *_MORE), strict=True))
"""A colour for every kind; the two kinds of budget share a hue, as do a wrong key and an exhausted quota."""


def short_name(key: str) -> str:
    """Return a model's key shortened for an axis: without `@main`, and with long revisions and names cut."""
    name, _, revision = key.partition("@")
    return clipped(name if revision in {"", "main"} else f"{name}@{revision[:8]}")


def clipped(text: str, limit: int = 34) -> str:
    """Return `text` in ASCII, whose glyphs every font has, with its middle cut if it is longer than `limit`."""
    shown = text.encode("ascii", "backslashreplace").decode()
    return shown if len(shown) <= limit else f"{shown[: limit // 2 - 1]}…{shown[-(limit // 2) :]}"


def quiet_grid(axes: Axes, axis: Literal["x", "y"]) -> None:
    """Draw faint lines behind the data."""
    axes.grid(axis=axis, color=INK, alpha=0.15, linewidth=0.6)
    axes.set_axisbelow(True)


def name_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Set up a row for each label, the first at the top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def draw_intervals(axes: Axes, rows: Sequence[tuple[int, float, float, float, str]]) -> None:
    """Draw a point with its interval for each row, low, middle, high and colour; behind them a quiet grid."""
    for row, low, middle, high, colour in rows:
        if math.isfinite(low) and math.isfinite(high):
            axes.hlines(row, low, high, color=colour, linewidth=2, alpha=0.6)
        axes.plot(middle, row, "o", color=colour, markersize=5)
    quiet_grid(axes, "x")


_LEGEND_CHARS: Final = 110
"""Characters that fit in a line above the axes at the legend's size."""


def legend_above(axes: Axes) -> None:
    """Put the legend above the axes, where it covers no data, in as many columns as fit."""
    labels = axes.get_legend_handles_labels()[1]
    room = _LEGEND_CHARS // (max(len(label) for label in labels) + 5)
    columns = max(1, min(len(labels), room))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, fontsize=8, handlelength=1.2, columnspacing=1.2)
