"""The artifacts of replayed policies: a table, a report, figures, and the way to the page with everything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from blocks import PublishedReport
from headgate.elastic.replay import OURS, Comparison, Measures, asked_course
from headgate.orchestration.artifact_keys import artifact_key
from headgate.orchestration.artifacts import publish_link, publish_markdown, publish_table
from headgate.orchestration.upkeep import figures_markdown, how_to_open
from headgate.reports import replay_figures

_PAGE: Final = "report.html"
_WORKERS: Final = "-workers.svg"
_PANELS: Final = 3
"""Policies whose workers over time are drawn in an artifact."""

_FINER: Final = re.compile(r"(\d\.\d\d)\d+")
"""Coordinates finer than a hundredth of a point, of which figures otherwise consist by half."""

_WORDS: Final = (
    "Cost: worker-seconds awake (starting, draining and going to sleep included) by what the work takes on workers "
    "that are always full; 1 cannot be beaten. Waiting: from arrival until the request was given to the worker that "
    "answered it. Operations: workers that were started, drained, or turned back while they drained."
)


async def publish_comparisons(made: Sequence[Comparison], published: PublishedReport) -> None:
    """Publish the table, the report, the figures of each start time, and where the page is."""
    sentence = replay_sentence(made)
    await publish_table("elastic-policies", policy_rows(made), sentence)
    link = published.links.get(_PAGE)
    where = f"[All figures on one page]({link})" if link else how_to_open(published.places[_PAGE])
    await publish_markdown("elastic-report", replay_markdown(made, where), sentence)
    for each in made:
        said = f"{each.load.name}, {each.site.start_s:g} s to start"
        for name, figure in _figures(each).items():
            key = artifact_key(name, f"{each.site.start_s:g} s")
            await publish_markdown(key, figures_markdown(figure), said)
    if link:
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


def policy_rows(made: Sequence[Comparison]) -> list[dict[str, str]]:
    """Return the table: a row for each policy and start time."""
    return [_row(f"{each.site.start_s:g} s", measures) for each in made for measures in each.measures]


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
        parts += [f"## {each.load.name}, {each.site.start_s:g} s to start", _site_sentence(each), _table(each)]
        bounds = "; ".join(f"{bound.cost:.2f}x if nobody waits over {bound.wait_s:g} s" for bound in each.bounds)
        parts.append(f"No policy can cost less than {bounds}.")
    parts += ["## Policies", _list([f"**{one.policy}**: {one.says}" for one in made[0].outcomes])]
    parts += ["## Words", _WORDS]
    if made[0].load.notes:
        parts += ["## The load", _list(list(made[0].load.notes))]
    return "\n\n".join(parts) + "\n"


def _site_sentence(comparison: Comparison) -> str:
    load, site = comparison.load, comparison.site
    highest = max(asked for _, asked in asked_course(load))
    said = (
        f"{len(load.calls):,} requests in {load.window_s / 60:.0f} min, work for {load.work_s:,.0f} worker-seconds; "
        f"{site.workers} workers of {load.slots} slots, {site.start_s:g} s to start, {site.awake} awake at first. "
        f"At its highest the load fills {highest:.1f} workers"
    )
    return f"{said}{', more than there are: no policy can keep waiting short' if highest > site.workers else ''}."


def _row(start: str, measures: Measures) -> dict[str, str]:
    return {
        "policy": measures.policy,
        "start": start,
        "cost": f"{measures.cost:.2f}x",
        "wait p50": f"{measures.p50_s:.2f} s",
        "wait p95": f"{measures.p95_s:.2f} s",
        "wait p99": f"{measures.p99_s:.2f} s",
        "operations": str(measures.operations),
        "most workers": str(measures.peak),
        "lost": str(measures.dropped + measures.doubled),
    }


def _table(comparison: Comparison) -> str:
    rows = [_row(f"{comparison.site.start_s:g} s", measures) for measures in comparison.measures]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
