"""The documentation as its tests read it: pages, headings, code blocks, commands."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from tests.house.tree import ROOT

DOCS = ROOT / "docs"
_FENCE = re.compile(
    r'(?ms)^(?P<indent> *)```(?P<language>[\w-]*)(?: title="(?P<title>[^"]*)")?[^\n]*\n(?P<code>.*?)^(?P=indent)```'
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code.

    Attributes:
        title: the name of the file that it shows, "" without one.
        section: the heading of the second level above it, "" before the first.
    """

    page: str
    line: int
    language: str
    code: str
    title: str = ""
    section: str = ""


@cache
def pages() -> tuple[Path, ...]:
    """Return every page of the documentation, and the pages at the root of the repository."""
    return (*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md")))


def headings(page: str) -> set[str]:
    """Return the headings of a page below docs/, without the marks of code."""
    text = _FENCE.sub("", (DOCS / page).read_text(encoding="utf-8"))
    rows = re.findall(r"^#{1,6} +(.+?)(?: +\{[^}]*\})?$", text, re.MULTILINE)
    return {row.replace("`", "").strip() for row in rows}


def blocks(*languages: str) -> list[Block]:
    """Return the fenced blocks of all pages, or those in one of `languages`."""
    return [block for block in _all_blocks() if block.language in languages or not languages]


@cache
def _all_blocks() -> tuple[Block, ...]:
    found = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        section, after = "", 0
        for match in _FENCE.finditer(text):
            section = next(reversed(re.findall(r"(?m)^## (.+)$", text[after : match.start()])), section)
            after = match.end()
            line = text.count("\n", 0, match.start()) + 2
            indent = len(match["indent"])
            code = "\n".join(row[indent:] for row in match["code"].splitlines())
            name = str(page.relative_to(ROOT))
            found.append(Block(name, line, match["language"], code, match["title"] or "", section))
    return tuple(found)


def commands(program: str) -> list[tuple[str, list[str]]]:
    """Return (where, words after `program`) for every command line of the pages that calls it."""
    found = []
    for block in blocks("bash", "sh", "shell", "console"):
        for line in block.code.replace("\\\n", " ").splitlines():
            words = _words(line.strip().removeprefix("$ ").removesuffix(" &"))
            piped = [list(group) for is_pipe, group in groupby(words, "|".__eq__) if not is_pipe]
            found += [(f"{block.page}:{block.line}", words[1:]) for words in piped if words[0] == program]
    for page in pages():
        text = _FENCE.sub("", page.read_text(encoding="utf-8"))
        inline = re.findall(rf"`((?:[A-Z_]+=\S+ )?{program} [^`]+)`", text)
        found += [(str(page.relative_to(ROOT)), _words(line)[1:]) for line in inline]
    return found


def _words(line: str) -> list[str]:
    """Return the words of a command line as a shell has them, without comment and without variables before it."""
    words = [word for word in shlex.split(line, comments=True) if not word.startswith("[")]  # [OPTIONS] of a usage
    while words and re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    return words
