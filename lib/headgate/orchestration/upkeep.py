"""What runs beside the sampling as flow runs: the report with its artifacts, and the compaction of the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from blocks import PublishedReport
from headgate.orchestration.artifacts import publish_link, publish_markdown, publish_table
from headgate.orchestration.inputs import SamplingOrder, report_store_for, settings_of, store_for
from headgate.orchestration.run_state import run_logger
from headgate.reports import Report, build_report
from headgate.storage import Problem, SampleStore

_HOUR_S: Final = 3_600.0
_PAGE: Final = "report.html"
_NOT_REPORTED: Final = ("conversation", "why")
"""Columns that can be large and are not in a report."""


async def run_report(
    *, hours: float, environments: tuple[str, ...], store: str, reports: str, title: str
) -> dict[str, Any]:
    """Report on the samples of the last hours; publish the page and its artifacts, and return where they are.

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
        build_report, rows, title=title, period=period, settings={"store": opened.url}, with_png=False
    )
    name = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%dT%H-%M-%SZ}"
    published = await published_in.write(name, {_PAGE: made.html, "report.md": made.markdown})
    await _publish(made, published, title)
    run_logger().info("report on %s samples: %s", f"{scan.frame.height:,}", published.places[_PAGE])
    return {"samples": scan.frame.height, "places": dict(published.places), "links": dict(published.links)}


async def _publish(report: Report, published: PublishedReport, title: str) -> None:
    await publish_table("report-scores", _shown(report.score_rows()), title)
    await publish_markdown("report", report.markdown, title)
    if link := published.links.get(_PAGE):
        await publish_link("report-page", link, "Open the report", f"{title}: one page with all figures.")
    else:
        await publish_markdown("report-page", _how_to_open(published.places[_PAGE]), f"{title}: where the page is.")


def _how_to_open(place: str) -> str:
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


async def run_compaction(*, store: str, rounds: int) -> dict[str, Any]:
    """Compact the sample store until nothing is left to merge, sweep it, and return what was done.

    Raises:
        StoreError: if the store cannot be read or written, or does not honour conditional puts.
    """
    opened = await store_for(store, settings_of(SamplingOrder()))
    try:
        merged, made = await _compacted(opened, rounds)
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
    return {"store": opened.url, **done}


async def _compacted(store: SampleStore, rounds: int) -> tuple[int, int]:
    merged = made = 0
    for _ in range(rounds):
        done = await store.compact(time.time())
        _tell(done.problems)
        if done.batch_id is None and done.was_first:
            break
        merged, made = merged + done.parts_before, made + done.parts_after
    return merged, made


def _tell(problems: Iterable[Problem]) -> None:
    for problem in problems:
        run_logger().warning("left out of the store: %s", problem)
