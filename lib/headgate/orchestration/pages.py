"""Reports of flow runs: their files in a report store, and their tables, figures and pages as artifacts."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from blocks import PublishedReport, ReportStore
from headgate.orchestration.artifacts import Rows, publish, publish_link
from headgate.reports import FIGURES, Compared

_FIRST_FIGURES: Final = ("scores", "errors", "activity")

MAX_ROWS: Final = 1_000
"""Rows of one table artifact: the API sends all of them whenever artifacts are listed."""

MAX_FIGURE_BYTES: Final = 100_000
"""Size of the figures in one artifact: the API sends them whole whenever artifacts are listed."""


async def write_report(
    store: ReportStore, files: Mapping[str, str | bytes], kind: str = "", at: float | None = None
) -> PublishedReport:
    """Write the files of a report under its kind and the time (`at`, default now), and return where they are."""
    name = f"{datetime.fromtimestamp(time.time() if at is None else at, UTC):%Y-%m-%dT%H-%M-%SZ}"
    return await store.write(f"{kind}-{name}" if kind else name, files)


async def publish_page(kind: str, page: str, published: PublishedReport, title: str) -> None:
    """Publish how to reach the page of a report: its link, or its path."""
    if link := published.links.get(page):
        await publish_link(f"{kind}-page", link, f"Open the {kind}", f"{title}: one page with everything.")
    else:
        await publish(f"{kind}-page", how_to_open(published.places[page]), f"{title}: where the page is.")


async def publish_board(
    kind: str,
    store: ReportStore,
    view: Compared,
    *,
    document: Mapping[str, Any],
    rows: Rows,
    sentence: str,
    at: float | None = None,
) -> PublishedReport:
    """Write a comparison of models as `kind.html` and `kind.json`, publish it as artifacts, and return its places."""
    page, figures = await asyncio.to_thread(lambda: (view.page(), view.figures()))
    content = orjson.dumps(document, option=orjson.OPT_INDENT_2)
    published = await write_report(store, {f"{kind}.html": page, f"{kind}.json": content}, kind, at)
    await publish(f"{kind}-models", rows[:MAX_ROWS], sentence)
    await publish(kind, view.markdown(), sentence)
    if figures:
        await publish(f"{kind}-figure", figures_markdown(figures), sentence)
    await publish_page(kind, f"{kind}.html", published, view.title)
    return published


def places_of(published: PublishedReport | None) -> dict[str, Any]:
    """Return where a report is, in the form that flows return; empty if none was written."""
    return {"places": dict(published.places), "links": dict(published.links)} if published else {}


def way_to_page(page: str, published: PublishedReport) -> str:
    """Return in Markdown how to reach the page of a report."""
    link = published.links.get(page)
    return f"[All figures on one page]({link})" if link else how_to_open(published.places[page])


def figures_markdown(figures: Mapping[str, str]) -> str:
    """Return figures embedded in Markdown, scores first, as many as fit into `MAX_FIGURE_BYTES`."""
    parts, left_out, size = [], [], 0
    for name in sorted(figures, key=lambda name: (_FIRST_FIGURES.index(name) if name in _FIRST_FIGURES else 9, name)):
        image = base64.b64encode(_on_paper(figures[name]).encode()).decode()
        caption = FIGURES.get(name, name)
        if size + len(image) > MAX_FIGURE_BYTES:
            left_out.append(caption)
            continue
        size += len(image)
        parts.append(f"![{caption}](data:image/svg+xml;base64,{image})\n\n{caption}")
    if left_out:
        parts.append(f"Only in the page of the report: {'; '.join(left_out)}.")
    return "\n\n".join(parts) + "\n"


def _on_paper(svg: str) -> str:
    """Return a figure with a white background: an image cannot see its page's colours, and its text is black."""
    head, end, rest = svg.partition(">")
    return f'{head}{end}<rect width="100%" height="100%" fill="#ffffff"/>{rest}'


def how_to_open(place: str) -> str:
    """Return how to open a page that has no web address: browsers refuse file:// links on http pages."""
    if place.startswith("s3://"):
        how = "Download it, or set the public address of the Report Store block, and open it in a browser."
    else:
        how = f"On the machine of the worker, open it in a browser:\n\n```sh\nxdg-open {place}\n```"
    return f"The report with all figures is one self-contained page:\n\n`{place}`\n\n{how}\n"
