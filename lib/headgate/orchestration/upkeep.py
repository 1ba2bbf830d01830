"""Flow runs beside the sampling: the report with its artifacts, and the compaction of the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final

import polars as pl
from prefect.states import Completed

from blocks import PublishedReport
from headgate.core import utc_text
from headgate.orchestration.artifacts import publish
from headgate.orchestration.inputs import SamplingOrder, report_store_for, settings_of, store_for
from headgate.orchestration.pages import figures_markdown, places_of, publish_page, write_report
from headgate.orchestration.phases import in_phase
from headgate.orchestration.run_state import run_logger, tell_problems
from headgate.reports import MissingRule, Report, build_report
from headgate.storage import CompactionPolicy, SampleStore

_HOUR_S: Final = 3_600.0
_PAGE: Final = "report.html"

_NOT_REPORTED: Final = ("conversation", "why")
"""Columns that can be large and that a report does not use."""


async def samples_of(
    store: str, environments: Sequence[str], hours: float | None, **wanted: Any
) -> tuple[pl.DataFrame, str]:
    """Return the samples of the last hours, or all, and the address of the store; log what the scan left out.

    Raises:
        HeadgateError: if there is no such block, or the store cannot be read.
    """
    opened = await store_for(store, settings_of(SamplingOrder(environments=tuple(environments))))
    since = None if hours is None else time.time() - hours * _HOUR_S
    with closing(opened):
        reading = partial(opened.scan, environments=environments or None, since=since, **wanted)
        scan = await in_phase("read samples", reading)
    tell_problems(scan.problems)
    return scan.frame, opened.url


async def run_report(
    *, hours: float, environments: tuple[str, ...], store: str, reports: str, title: str, missing: MissingRule = "bound"
) -> Any:
    """Report on the samples of the last hours, publish the page and its artifacts, and return the final state.

    Raises:
        HeadgateError: if an argument cannot be used, or the store cannot be read.
    """
    published_in = await report_store_for(reports)
    now = time.time()
    samples, url = await samples_of(store, environments, hours)
    rows = samples.drop(_NOT_REPORTED, strict=False)
    period = f"the last {hours:g} hours before {utc_text(now)}"
    building = partial(
        build_report, title=title, period=period, settings={"store": url}, with_png=False, missing=missing
    )
    made = await in_phase("build report", lambda: asyncio.to_thread(building, rows))

    async def publishing() -> PublishedReport:
        written = await write_report(published_in, {_PAGE: made.html, "report.md": made.markdown}, at=now)
        await _publish(made, written, title)
        return written

    published = await in_phase("publish", publishing, asset=published_in.url, what="reports")
    found = f"{samples.height:,} samples" if samples.height else f"no samples of {period} in {url}"
    message = f"{found}: {published.places[_PAGE]}"
    run_logger().info("%s: %s", title, message)
    return Completed(message=message, data={"samples": samples.height, **places_of(published)})


async def _publish(report: Report, published: PublishedReport, title: str) -> None:
    scores = [{name: _cell(value) for name, value in row.items()} for row in report.score_rows()]
    await publish("report-scores", scores, title)
    await publish("report", report.markdown, title)
    if report.figures_svg:
        await publish("report-figures", figures_markdown(report.figures_svg), title)
    await publish_page("report", _PAGE, published, title)


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
    policy = CompactionPolicy(conversation_days=settings.conversation_days)
    with closing(opened):
        merged, made = await in_phase("compact", lambda: _compacted(opened, rounds, policy))
        swept = await in_phase("sweep", lambda: opened.sweep(time.time()))
    tell_problems(swept.problems)
    done = {
        "parts_merged": merged,
        "parts_made": made,
        "parts_deleted": swept.parts,
        "manifests_deleted": swept.manifests,
        "problems": len(swept.problems),
    }
    rows = [{"what": name.replace("_", " "), "count": f"{count:,}"} for name, count in done.items()]
    await publish("compaction", rows, f"Compaction of {opened.url}")
    message = f"{merged:,} parts merged into {made:,}, {swept.parts:,} deleted"
    return Completed(message=message, data={"store": opened.url, **done})


async def _compacted(store: SampleStore, rounds: int, policy: CompactionPolicy) -> tuple[int, int]:
    merged = made = 0
    for _ in range(rounds):
        done = await store.compact(time.time(), policy)
        tell_problems(done.problems)
        if done.batch_id is None and done.was_first:
            break
        merged, made = merged + done.parts_before, made + done.parts_after
    return merged, made
