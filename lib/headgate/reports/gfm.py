"""GitHub-flavoured Markdown in which no text of a model or a provider can become markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headgate.telemetry import safe_text


def code(text: str, *, limit_chars: int = 300) -> str:
    """Return `text` as a code span for a table cell: nothing in it is a link, an image, HTML or a column."""
    shown = safe_text(text, limit_chars=limit_chars).replace("`", "'").replace("|", "\\|").strip()
    return f"`{shown}`" if shown else ""


def plain(text: str, *, limit_chars: int = 300) -> str:
    """Return `text` for a heading or a sentence, every character of Markdown or HTML in it escaped."""
    shown = safe_text(text, limit_chars=limit_chars)
    entities = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{character}" if character in "\\`*_{}[]()#+-.!|~:" else character for character in entities)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers_from: int = 1) -> str:
    """Return a table whose columns from `numbers_from` on are right-aligned; the cells must be escaped already."""
    rule = ["---" if column < numbers_from else "--:" for column in range(len(header))]
    lines = [header, rule, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
