"""Tables to be looked at, with what the reader ought to know beside them: as one HTML page, and as safe Markdown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from headgate.reports.wording import template
from headgate.telemetry import safe_text

MAX_BYTES: Final = 100_000
"""Of Markdown for an artifact: artifacts are rows of a database and are sent whole to the UI."""

_MOST_ROWS: Final = 200

DRAWN: Final = 60
"""Models that a figure draws; the tables have them all."""

_PROBLEMS: Final = 20
"""Of these Markdown has as many at most; the page has ten times as many."""

Rows = Sequence[Mapping[str, str]]
"""A table: each row maps the names of the columns, in their order, to cells."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What a page and an artifact show.

    Attributes:
        title: its heading.
        period: a line below it.
        tables: by their headings; empty ones are left out.
        nothing: what is said without any table.
        names: columns whose cells are words and not numbers: nothing in them can become markup.
        definitions: what the words mean.
        notes: sentences below the first table.
        problems: sentences for the reader.
        problems_title: their heading.
        is_told_first: whether they stand before the tables.
    """

    title: str
    period: str
    tables: Sequence[tuple[str, Rows]]
    nothing: str
    names: frozenset[str]
    definitions: Mapping[str, str]
    notes: Sequence[str] = ()
    problems: Sequence[str] = ()
    problems_title: str = ""
    is_told_first: bool = False

    def page(self, figures: Mapping[str, str]) -> str:
        """Return one HTML page that needs nothing else; `figures` maps captions to SVG elements, which are trusted."""
        return template("compared.html.j2").render(
            title=safe_text(self.title, limit_chars=200),
            period=safe_text(self.period, limit_chars=200),
            tables=[(name, rows) for name, rows in self.tables if rows],
            figures=[(caption, Markup(svg)) for caption, svg in figures.items()],  # noqa: S704 - drawn by us
            notes=self.notes,
            problems=self.problems,
            problems_title=self.problems_title,
            is_told_first=self.is_told_first,
            nothing=self.nothing,
            names=self.names,
            definitions=self.definitions,
        )

    def markdown(self) -> str:
        """Return Markdown of at most 100 kB: with fewer rows per table where it would be longer."""
        return fitting(self._markdown)

    def _markdown(self, limit: int) -> str:
        body = [
            part
            for name, rows in self.tables
            if rows
            for part in (f"## {plain(name)}", named_table(rows, limit, names=self.names))
        ]
        body = [*body[:2], bulleted(self.notes), *body[2:]] if body else [self.nothing, bulleted(self.notes)]
        shown = min(limit, _PROBLEMS)
        more = [f"{len(self.problems) - shown:,} more of the kind"] if shown < len(self.problems) else []
        told = [f"## {self.problems_title}", bulleted([*self.problems[:shown], *more])] if self.problems else []
        body = [*told, *body] if self.is_told_first else [*body, *told]
        words = "\n".join(f"- **{term}**: {said}" for term, said in self.definitions.items())
        parts = [f"# {plain(self.title)}", plain(self.period), *body, "## What the words mean", words]
        return "\n\n".join(filter(None, parts)) + "\n"


def named_table(rows: Rows, limit: int, *, names: frozenset[str]) -> str:
    """Return a Markdown table of at least one row and at most `limit`, with a line about those that are left out."""
    cells = [[code(cell) if column in names else cell for column, cell in row.items()] for row in rows[:limit]]
    more = len(rows) - limit
    header = [code(column) if "@" in column else column for column in rows[0]]
    left_out = f"\n\n{more:,} more rows stand in the page." if more > 0 else ""
    return table(header, cells, names=names) + left_out


def code(text: str, *, limit_chars: int = 300) -> str:
    """Return `text` as a code span for a table cell: nothing in it is a link, an image, HTML or a column."""
    shown = safe_text(text, limit_chars=limit_chars).replace("`", "'").replace("|", "\\|").strip()
    return f"`{shown}`" if shown else ""


def plain(text: str, *, limit_chars: int = 300) -> str:
    """Return `text` for a heading or a sentence, every character of Markdown or HTML in it escaped."""
    shown = safe_text(text, limit_chars=limit_chars)
    entities = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{character}" if character in "\\`*_{}[]()#+-.!|~:" else character for character in entities)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, names: Collection[str]) -> str:
    """Return a table whose columns but `names` are right-aligned; the cells must be escaped already."""
    rule = ["---" if column in names else "--:" for column in header]
    lines = [header, rule, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def bulleted(sentences: Iterable[str]) -> str:
    """Return sentences as a list, nothing in them markup."""
    return "\n".join(f"- {plain(sentence, limit_chars=1_000)}" for sentence in sentences)


def fitting(made: Callable[[int], str]) -> str:
    """Return what `made` gives for as many rows per table, 200 at most, as fit into `MAX_BYTES` of UTF-8."""
    rows = _MOST_ROWS
    while True:
        text = made(rows)
        if len(text.encode()) <= MAX_BYTES or rows == 0:
            return text
        rows //= 2
