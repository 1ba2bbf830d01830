"""The flow `elastic-report`: a load replayed under several scaling policies, and what each of them cost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import orjson

from blocks import PublishedReport, ReportStore
from headgate.orchestration.artifacts import markdown_table, publish, publish_link
from headgate.orchestration.inputs import report_store_for
from headgate.orchestration.pages import figures_markdown, places_of, way_to_page, write_report
from headgate.orchestration.run_state import artifact_key, ended, heeding, run_logger
from headgate.orchestration.stop_request import StopRequest, stop_on_signals
from headgate.replay.elastic import (
    COLUMNS,
    DEFINITIONS,
    OURS,
    Comparison,
    Load,
    ReplayOrder,
    Site,
    asked_course,
    replay_figures,
    replay_page,
)

_WORKERS: Final = "-workers.svg"
_PANELS: Final = 3
"""Policies whose workers over time are drawn in an artifact."""

_FINER: Final = re.compile(r"(\d\.\d\d)\d+")
"""Coordinates finer than a hundredth of a point, of which figures otherwise consist by half."""

_PAGE: Final = "report.html"


class _StoppedError(Exception):
    """The run was asked to stop between two replays."""


async def run_elastic_report(order: ReplayOrder, reports: str) -> Any:
    """Replay a load under each policy, publish what came of it, and return the state in which the flow run ends.

    The replays use the processor in a thread of their own. A run that is stopped ends after the replay at work, and
    publishes the start times that are whole.

    Raises:
        HeadgateError: something that was given cannot be used; nothing was replayed then.
    """
    order.check()
    store = await report_store_for(reports)
    load = await asyncio.to_thread(order.load)
    run_logger().info("%s: %s requests, work for %s worker-seconds", load.name, len(load.calls), round(load.work_s))
    stop = StopRequest()
    with stop_on_signals(stop):
        async with heeding(stop):
            made = await asyncio.to_thread(_replayed, order, load, stop)
        published = await _published(made, store) if made else None
        if published is not None:
            await publish_comparisons(made, published)
        sentence = replay_sentence(made)
        run_logger().info("%s", sentence)
        return await ended(stop, sentence, _data(load, made, published))


def _replayed(order: ReplayOrder, load: Load, stop: StopRequest) -> list[Comparison]:
    """Return a comparison for each start time; those that are whole when the run is asked to stop."""
    logger = run_logger()
    made: list[Comparison] = []

    def tell(site: Site, what: str) -> None:
        if stop.reason is not None:
            raise _StoppedError
        logger.info("%g s to start: %s", site.start_s, what)

    with suppress(_StoppedError):
        for each in order.comparisons(load, order.sites(load), tell):
            made.append(each)  # noqa: PERF402 - what was made before a stop is kept
    return made


async def _published(made: Sequence[Comparison], reports: ReportStore) -> PublishedReport:
    page = await asyncio.to_thread(replay_page, made)
    document = orjson.dumps([each.document() for each in made], option=orjson.OPT_INDENT_2).decode()
    return await write_report(reports, {_PAGE: page, "replay.json": document}, "elastic")


def _data(load: Load, made: Sequence[Comparison], published: PublishedReport | None) -> dict[str, Any]:
    policies = {
        f"{each.site.start_s:g} s": {
            measures.policy: {"cost": round(measures.cost, 4), "p99_s": round(measures.p99_s, 4)}
            for measures in each.measures
        }
        for each in made
    }
    return {"load": load.name, "requests": len(load.calls), "policies": policies, **places_of(published)}


async def publish_comparisons(made: Sequence[Comparison], published: PublishedReport) -> None:
    """Publish the table, the report, the figures of each start time, and where the page is."""
    sentence = replay_sentence(made)
    await publish("elastic-policies", [row for each in made for row in _rows(each)], sentence)
    await publish("elastic-report", replay_markdown(made, way_to_page(_PAGE, published)), sentence)
    for each in made:
        said = f"{each.load.name}, {each.site.start_s:g} s to start"
        for name, figure in _figures(each).items():
            key = artifact_key(name, f"{each.site.start_s:g} s")
            await publish(key, figures_markdown(figure), said)
    if link := published.links.get(_PAGE):
        await publish_link("elastic-page", link, "Open the report", "All policies and figures on one page.")


def _figures(comparison: Comparison) -> dict[str, dict[str, str]]:
    """Return key -> caption -> figure, each small enough for an artifact; the page has all of it."""
    first = replace(comparison, outcomes=comparison.outcomes[:_PANELS])
    drawn = replay_figures(comparison)
    drawn |= {name: figure for name, figure in replay_figures(first).items() if name.endswith(_WORKERS)}
    start = f"{comparison.site.start_s:g} s to start"
    return {
        name.removesuffix(".svg"): {f"{caption} ({start})": _FINER.sub(r"\1", svg)}
        for name, (caption, svg) in drawn.items()
    }


def replay_sentence(made: Sequence[Comparison]) -> str:
    """Return what came of the replays in one sentence."""
    if not made:
        return "Nothing was replayed to its end"
    load = made[0].load
    parts = []
    for each in made:
        measures = next((row for row in each.measures if row.policy == OURS), each.measures[0])
        start = f"{each.site.start_s:g} s to start"
        parts.append(f"{measures.policy} {measures.cost:.2f}x the work, p99 waiting {measures.p99_s:.2f} s ({start})")
    return f"{load.name}, {len(load.calls):,} requests: {'; '.join(parts)}"


def replay_markdown(made: Sequence[Comparison], where: str) -> str:
    """Return the report; `where` says in Markdown where the page with all figures is."""
    parts = ["# Elastic policies replayed", f"{replay_sentence(made)}.", where]
    for each in made:
        said = f"{each.says} {_highest(each)}"
        parts += [
            f"## {each.load.name}, {each.site.start_s:g} s to start",
            said,
            markdown_table(_rows(each)),
            each.limits,
        ]
    parts += ["## Policies", _list(f"**{one.policy}**: {one.says}" for one in made[0].outcomes)]
    parts += ["## Words", _list(f"**{term}**: {meaning}" for term, meaning in DEFINITIONS.items())]
    if made[0].load.notes:
        parts += ["## The load", _list(made[0].load.notes)]
    return "\n\n".join(parts) + "\n"


def _highest(comparison: Comparison) -> str:
    highest = max(asked for _, asked in asked_course(comparison.load))
    is_short = highest > comparison.site.workers
    more = ", more than there are: no policy can keep waiting short" if is_short else ""
    return f"At its highest the load fills {highest:.1f} workers{more}."


def _rows(comparison: Comparison) -> list[dict[str, str]]:
    heads = (COLUMNS[0], "start", *COLUMNS[1:])
    start = f"{comparison.site.start_s:g} s"
    return [dict(zip(heads, (row[0], start, *row[1:]), strict=True)) for row in comparison.rows]


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
