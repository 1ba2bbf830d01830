"""What users read says things in the words of the field, and names other systems by their names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, pages
from tests.house.tree import ROOT, lines_matching, tracked_files

PRIVATE = r"\b([Mm]end(s|ed|ing)?|come along|[Tt]he seed.s|[Ss]eed 00[0-9]|Chutes|[Mm]iners?|[Hh]otkeys?)\b"
"""Words of this project alone, and of other systems for what has a name here."""

LEGACY = (
    "docs/adr",
    "docs/reference/affine.md",
    "lib/headgate/cli/renamed.py",
    "lib/headgate/storage/__init__.pyi",
    "lib/headgate/storage/exchange",
    "lib/headgate/telemetry/monitor.py",
    "lib/headgate/telemetry/views.py",
)
"""History, and the formats, routes and former options in which such words are names that other programs know."""


def test_no_page_says_a_private_word() -> None:
    """The pages of the reference hold the help of every command, every setting and every event."""
    assert DOCS / "reference" / "cli.md" in pages()
    assert lines_matching(PRIVATE, [page for page in pages() if not _is_legacy(page)]) == []


def test_no_message_of_the_library_says_a_private_word() -> None:
    sources = [path for path in tracked_files() if path.relative_to(ROOT).parts[0] in {"lib", "flows", "blocks"}]
    assert lines_matching(PRIVATE, [path for path in sources if not _is_legacy(path)]) == []


@pytest.mark.parametrize("text", ["due to Chutes errors", "the seed's rule", "Seed 004", "fix or mend it", "a hotkey"])
def test_the_pattern_finds_what_it_looks_for(text: str) -> None:
    assert re.search(PRIVATE, text)


def _is_legacy(path: Path) -> bool:
    return any(path.is_relative_to(ROOT / name) for name in LEGACY)
