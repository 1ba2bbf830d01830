"""GitHub-flavoured Markdown in which no text of a model or a provider can become markup."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from headgate.telemetry import safe_text

MAX_BYTES: Final = 100_000
"""Of Markdown for an artifact: artifacts are rows of a database and are sent whole to the UI."""

_MOST_ROWS: Final = 200


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
