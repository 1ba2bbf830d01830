"""A hook of MkDocs: the page of the changelog is CHANGELOG.md, whose links start at the root of the repository."""

from __future__ import annotations

from pathlib import Path

from mkdocs.structure.pages import Page

CHANGELOG = Path(__file__).parent.parent / "CHANGELOG.md"


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Return the text of a page, with links from docs/ where it is the changelog."""
    if page.file.src_uri != "changelog.md":
        return markdown
    return CHANGELOG.read_text(encoding="utf-8").replace("](docs/", "](")
