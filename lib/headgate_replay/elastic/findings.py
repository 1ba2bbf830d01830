"""The computation and publication of the flow `elastic-report`: the cost of several scaling policies for one load."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import orjson

from headgate.orchestration import Findings, markdown_table
from headgate_replay.elastic.comparison import COLUMNS, DEFINITIONS, Comparison
from headgate_replay.elastic.contenders import OURS
from headgate_replay.elastic.order import ReplayOrder
from headgate_replay.elastic.outcome import asked_course
from headgate_replay.elastic.page import replay_figures, replay_page

_WORKERS: Final = "-workers.svg"
_PANELS: Final = 3
"""Number of policies whose workers over time are drawn in an artifact."""

_FINER: Final = re.compile(r"(\d\.\d\d)\d+")
"""Coordinates finer than a hundredth of a point; without shortening they are half of a figure's size."""


def replay_steps(order: ReplayOrder, tell: Callable[[str], None]) -> Iterator[Comparison]:
    """Yield a comparison for each start time; `tell` is called before each replay.

    Raises:
        HeadgateError: if the order cannot be used; nothing was replayed then.
    """
    order.check()
    load = order.load()
    tell(f"{load.name}: {len(load.calls)} requests, work for {load.work_s:.0f} worker-seconds")
    yield from order.comparisons(load, order.sites(load), tell)


def replay_findings(made: Sequence[Comparison]) -> Findings:
    """Return the findings of one or more comparisons of one load, for a flow run to publish."""
    load, sentence = made[0].load, _sentence(made)
    policies = {
        f"{each.site.start_s:g} s": {
            measures.policy: {"cost": round(measures.cost, 4), "p99_s": round(measures.p99_s, 4)}
            for measures in each.measures
        }
        for each in made
    }
    return Findings(
        kind="elastic",
        sentence=sentence,
        data={"load": load.name, "requests": len(load.calls), "policies": policies},
        page=replay_page(made),
        files={"replay.json": orjson.dumps([each.document() for each in made], option=orjson.OPT_INDENT_2)},
        table="policies",
        rows=[row for each in made for row in _rows(each)],
        markdown=lambda way: _markdown(made, way),
        figures={
            f"{name} {each.site.start_s:g} s": (f"{load.name}, {each.site.start_text}", {caption: svg})
            for each in made
            for name, caption, svg in _figures(each)
        },
    )


def _figures(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    """Yield name, caption and figure, each small enough for an artifact; the page has the complete figures."""
    first = replace(comparison, outcomes=comparison.outcomes[:_PANELS])
    drawn = replay_figures(comparison)
    drawn |= {name: figure for name, figure in replay_figures(first).items() if name.endswith(_WORKERS)}
    for name, (caption, svg) in drawn.items():
        yield name.removesuffix(".svg"), f"{caption} ({comparison.site.start_text})", _FINER.sub(r"\1", svg)


def _sentence(made: Sequence[Comparison]) -> str:
    load, parts = made[0].load, []
    for each in made:
        row = next((row for row in each.measures if row.policy == OURS), each.measures[0])
        waits = f"p99 waiting {row.p99_s:.2f} s ({each.site.start_text})"
        parts.append(f"{row.policy} {row.cost:.2f}x the work, {waits}")
    return f"{load.name}, {len(load.calls):,} requests: {'; '.join(parts)}"


def _markdown(made: Sequence[Comparison], way: str) -> str:
    parts = ["# Elastic policies replayed", f"{_sentence(made)}.", way]
    for each in made:
        said = f"{each.says} {_highest(each)}"
        parts += [f"## {each.load.name}, {each.site.start_text}", said, markdown_table(_rows(each)), each.limits]
    parts += ["## Policies", _list(f"**{one.policy}**: {one.says}" for one in made[0].outcomes)]
    parts += ["## Words", _list(f"**{term}**: {meaning}" for term, meaning in DEFINITIONS.items())]
    if made[0].load.notes:
        parts += ["## The load", _list(made[0].load.notes)]
    return "\n\n".join(parts) + "\n"


def _highest(comparison: Comparison) -> str:
    highest = max(asked for _, asked in asked_course(comparison.load))
    is_short = highest > comparison.site.workers
    more = ", more than there are: no policy can keep waiting short" if is_short else ""
    return f"At its peak the load fills {highest:.1f} workers{more}."


def _rows(comparison: Comparison) -> list[dict[str, str]]:
    heads = (COLUMNS[0], "start", *COLUMNS[1:])
    start = f"{comparison.site.start_s:g} s"
    return [dict(zip(heads, (row[0], start, *row[1:]), strict=True)) for row in comparison.rows]


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
