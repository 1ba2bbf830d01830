"""What runs beside the sampling as flow runs: the report with its artifacts, and the compaction of the store."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from prefect.states import Completed

from blocks import PublishedReport, ReportStore
from headgate.orchestration.artifacts import publish_link, publish_markdown, publish_table
from headgate.orchestration.inputs import SamplingOrder, report_store_for, settings_of, store_for
from headgate.orchestration.run_state import run_logger
from headgate.orchestration.score_rows import MAX_ROWS
from headgate.reports import FIGURES, MissingRule, Report, build_report
from headgate.storage import CompactionPolicy, Problem, SampleStore

_HOUR_S: Final = 3_600.0
_PAGE: Final = "report.html"
_FIRST_FIGURES: Final = ("scores", "errors", "activity")

MAX_FIGURE_BYTES: Final = 100_000
"""Of the figures in one artifact: the API sends them whole whenever artifacts are listed."""

_NOT_REPORTED: Final = ("conversation", "why")
"""Columns that can be large and are not in a report."""


async def run_report(
    *, hours: float, environments: tuple[str, ...], store: str, reports: str, title: str, missing: MissingRule = "bound"
) -> Any:
    """Report on the samples of the last hours, publish the page and its artifacts, and return the final state.

    Raises:
        HeadgateError: if something that was given cannot be used, or the store cannot be read.
    """
    settings = settings_of(SamplingOrder(environments=environments))
    opened = await store_for(store, settings)
    published_in = await report_store_for(reports)
    now = time.time()
    try:
        scan = await opened.scan(environments=environments or None, since=now - hours * _HOUR_S)
    finally:
        opened.close()
    _tell(scan.problems)
    rows = scan.frame.drop(_NOT_REPORTED, strict=False)
    period = f"the last {hours:g} hours before {datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M} UTC"
    made = await asyncio.to_thread(
        build_report, rows, title=title, period=period, settings={"store": opened.url}, with_png=False, missing=missing
    )
    name = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%dT%H-%M-%SZ}"
    published = await published_in.write(name, {_PAGE: made.html, "report.md": made.markdown})
    await _publish(made, published, title)
    found = f"{scan.frame.height:,} samples" if scan.frame.height else f"no samples of {period} in {opened.url}"
    message = f"{found}: {published.places[_PAGE]}"
    run_logger().info("%s: %s", title, message)
    data = {"samples": scan.frame.height, "places": dict(published.places), "links": dict(published.links)}
    return Completed(message=message, data=data)


async def _publish(report: Report, published: PublishedReport, title: str) -> None:
    await publish_table("report-scores", _shown(report.score_rows()), title)
    await publish_markdown("report", report.markdown, title)
    if report.figures_svg:
        await publish_markdown("report-figures", figures_markdown(report.figures_svg), title)
    await _publish_page("report", published, title)


async def _publish_page(kind: str, published: PublishedReport, title: str) -> None:
    """Publish the way to the page `kind.html`: its link, or where it lies."""
    page, key = f"{kind}.html", f"{kind}-page"
    if link := published.links.get(page):
        await publish_link(key, link, f"Open the {kind}", f"{title}: one page with everything.")
    else:
        await publish_markdown(key, how_to_open(published.places[page]), f"{title}: where the page is.")


async def publish_board(
    kind: str,
    store: ReportStore,
    *,
    page: str,
    document: Mapping[str, Any],
    rows: list[dict[str, str]],
    markdown: str,
    figures: Mapping[str, str],
    title: str,
    sentence: str,
    moment: datetime,
) -> PublishedReport:
    """Write a table of models as `kind.html` and `kind.json`, publish it as artifacts, and return its places."""
    content = orjson.dumps(document, option=orjson.OPT_INDENT_2)
    name = f"{kind}-{moment:%Y-%m-%dT%H-%M-%SZ}"
    published = await store.write(name, {f"{kind}.html": page, f"{kind}.json": content})
    await publish_table(f"{kind}-models", rows[:MAX_ROWS], sentence)
    await publish_markdown(kind, markdown, sentence)
    if figures:
        await publish_markdown(f"{kind}-figure", figures_markdown(figures), sentence)
    await _publish_page(kind, published, title)
    return published


def figures_markdown(figures: Mapping[str, str]) -> str:
    """Return the figures as Markdown that carries them, as many as `MAX_FIGURE_BYTES` hold, the scores first."""
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
        parts.append(f"In the page of the report only: {'; '.join(left_out)}.")
    return "\n\n".join(parts) + "\n"


def _on_paper(svg: str) -> str:
    """Return a figure with a white ground: an image does not know the colours of its page, and draws its text black."""
    head, end, rest = svg.partition(">")
    return f'{head}{end}<rect width="100%" height="100%" fill="#ffffff"/>{rest}'


def how_to_open(place: str) -> str:
    """Return what a reader does with a page that has no address: browsers refuse file:// links on http pages."""
    if place.startswith("s3://"):
        how = "Download it, or set the public address of the Report Store block, and open it in a browser."
    else:
        how = f"On the machine of the worker, open it in a browser:\n\n```sh\nxdg-open {place}\n```"
    return f"The report with all figures is one page that needs nothing else:\n\n`{place}`\n\n{how}\n"


def _shown(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [{name: _cell(value) for name, value in row.items()} for row in rows]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


async def run_compaction(*, store: str, rounds: int) -> Any:
    """Compact the sample store until nothing is left to merge, sweep it, and return the final state.

    Raises:
        StoreError: if the store cannot be read or written, or does not honour conditional puts.
    """
    settings = settings_of(SamplingOrder())
    opened = await store_for(store, settings)
    try:
        merged, made = await _compacted(opened, rounds, CompactionPolicy(conversation_days=settings.conversation_days))
        swept = await opened.sweep(time.time())
    finally:
        opened.close()
    _tell(swept.problems)
    done = {
        "parts_merged": merged,
        "parts_made": made,
        "parts_deleted": swept.parts,
        "manifests_deleted": swept.manifests,
        "problems": len(swept.problems),
    }
    rows = [{"what": name.replace("_", " "), "count": f"{count:,}"} for name, count in done.items()]
    await publish_table("compaction", rows, f"Compaction of {opened.url}")
    message = f"{merged:,} parts merged into {made:,}, {swept.parts:,} deleted"
    return Completed(message=message, data={"store": opened.url, **done})


async def _compacted(store: SampleStore, rounds: int, policy: CompactionPolicy) -> tuple[int, int]:
    merged = made = 0
    for _ in range(rounds):
        done = await store.compact(time.time(), policy)
        _tell(done.problems)
        if done.batch_id is None and done.was_first:
            break
        merged, made = merged + done.parts_before, made + done.parts_after
    return merged, made


def _tell(problems: Iterable[Problem]) -> None:
    for problem in problems:
        run_logger().warning("left out of the store: %s", problem)
