"""A report as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from headgate.reports import wording

_MAX_ROWS: Final = 2_000
"""Rows of one table at most; the tables themselves are in the report's data."""


def page_of(
    title: str,
    period: str,
    settings: Mapping[str, str],
    tables: Mapping[str, pl.DataFrame],
    figures: Mapping[str, tuple[str, str]],
) -> str:
    """Return the page; `figures` maps a name to its caption and its SVG element, which is trusted."""
    summary = tables["summary"]
    totals = {
        "samples": int(summary["samples"].sum()),
        "scored": int(summary["scored"].sum()),
        "models": summary["model"].n_unique(),
        "environments": summary["environment"].n_unique(),
        "provider_errors": int(tables["missing"]["provider_errors"].sum()),
        "tokens": int(summary["prompt_tokens"].sum()) + int(summary["completion_tokens"].sum()),
    }
    return template("report.html.j2").render(
        title=title,
        period=period,
        settings=settings,
        totals=totals,
        rows={name: table.head(_MAX_ROWS).to_dicts() for name, table in tables.items()},
        left_out={name: max(0, table.height - _MAX_ROWS) for name, table in tables.items()},
        figures={name: (caption, Markup(svg)) for name, (caption, svg) in figures.items()},  # noqa: S704 - drawn by us
        definitions=wording.DEFINITIONS,
    )


def template(name: str) -> Template:
    """Return a template of this room; what it shows is escaped, and what it is not given is an error."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("headgate.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for writer in (wording.score, wording.interval, wording.percent, wording.seconds, wording.count, wording.moment):
        environment.filters[writer.__name__] = writer
    return environment
