"""The benchmark report as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def bench_page(artifacts: Sequence[Mapping[str, Any]]) -> str:
    """Return the page about `artifacts`: all bars, ratios and figures, and the machine they were measured on."""
    sections = [
        dict(artifact) | {"svgs": [(title, Markup(svg)) for title, svg in bench_figures([artifact]).values()]}  # noqa: S704 - drawn by us
        for artifact in artifacts
    ]
    bars = [bar for artifact in artifacts for bar in artifact["bars"]]
    page = templates().get_template("bench.html.j2")
    return page.render(sections=sections, bars=len(bars), met=sum(bar["met"] for bar in bars))


def bench_figures(artifacts: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return the figures of `artifacts` by file name, each as its title and an SVG document."""
    from headgate_bench.charts import chart_svg  # noqa: PLC0415 - matplotlib takes a second to import

    return {
        # The scenario's name is its anchor; a number makes the ids of its figures distinct.
        f"{artifact['scenario']}-{number}.svg": (chart["title"], chart_svg(chart, f"{artifact['scenario']}-{number}"))
        for artifact in artifacts
        for number, chart in enumerate(artifact["charts"])
    }


def number(value: object) -> str:
    """Return a figure with four significant digits in plain notation; texts are unchanged."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    if value == 0 or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def percent(value: float | None) -> str:
    """Return a share as a percentage, or a dash for None."""
    return "–" if value is None else f"{100 * value:.1f}"


def moment(seconds: float) -> str:
    """Return a time in seconds since the epoch as UTC text."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


@cache
def templates() -> Environment:
    """Return the templates of pages, with filters that write numbers and times."""
    environment = Environment(
        loader=PackageLoader("headgate_bench"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"number": number, "moment": moment, "percent": percent}
    return environment
