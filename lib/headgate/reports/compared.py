"""Pages and Markdown that compare models: named tables, what the reader ought to know, and what the words mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from markupsafe import Markup

from headgate.reports.gfm import code, table
from headgate.reports.page import template
from headgate.telemetry import safe_text

DRAWN: Final = 60
"""Models that a figure draws; the tables have them all."""

Rows = Sequence[Mapping[str, str]]
"""A table: each row maps the names of the columns, in their order, to cells."""


def compared_page(
    title: str,
    period: str,
    tables: Sequence[tuple[str, Rows]],
    figures: Mapping[str, str],
    problems: Sequence[str],
    definitions: Mapping[str, str],
    *,
    problems_title: str,
    is_told_first: bool,
    nothing: str,
    names: frozenset[str],
) -> str:
    """Return one HTML page that needs nothing else.

    Args:
        title: its heading.
        period: a line below it.
        tables: by their headings; empty ones are left out.
        figures: caption -> SVG element, which is trusted.
        problems: sentences for the reader, under `problems_title`.
        definitions: what the words mean.
        problems_title: see above.
        is_told_first: whether they stand before the tables.
        nothing: what the page says without any table.
        names: columns whose cells are words and not numbers.
    """
    return template("compared.html.j2").render(
        title=safe_text(title, limit_chars=200),
        period=safe_text(period, limit_chars=200),
        tables=[(name, rows) for name, rows in tables if rows],
        figures=[(caption, Markup(svg)) for caption, svg in figures.items()],  # noqa: S704 - drawn by us
        problems=problems,
        definitions=definitions,
        problems_title=problems_title,
        is_told_first=is_told_first,
        nothing=nothing,
        names=names,
    )


def named_table(rows: Rows, limit: int, *, names: frozenset[str], numbers_from: int) -> str:
    """Return a Markdown table of at most `limit` rows, with a line about those that are left out.

    Args:
        rows: at least one.
        limit: see above.
        names: columns whose cells are names: nothing in them can become markup.
        numbers_from: number of the first column that is right-aligned.
    """
    cells = [[code(cell) if column in names else cell for column, cell in row.items()] for row in rows[:limit]]
    more = len(rows) - limit
    header = [code(column) if "@" in column else column for column in rows[0]]
    left_out = f"\n\n{more:,} more rows stand in the page." if more > 0 else ""
    return table(header, cells, numbers_from=numbers_from) + left_out


def meanings(definitions: Mapping[str, str]) -> str:
    """Return what the words mean as a Markdown section."""
    return "## What the words mean\n\n" + "\n".join(f"- **{term}**: {said}" for term, said in definitions.items())
