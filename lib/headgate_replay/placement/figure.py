"""The figure of `headgate placement simulate`: which jobs held which GPUs under each policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.placement.amounts import MILLI
from headgate.reports import COLOURS, blank_figure, clipped, drawing, inline_svg, legend_above, quiet_grid
from headgate_replay.placement.comparison import Comparison
from headgate_replay.placement.engine import Attempt, Outcome
from headgate_replay.placement.jobs import Cluster, Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def held_by_kind(trace: Trace, cluster: Cluster, outcome: Outcome, edges_s: Sequence[float]) -> dict[str, list[float]]:
    """Return the mean number of GPUs that each kind of job held between adjacent edges."""
    name = cluster.counted
    kinds = sorted({job.kind for job in trace.jobs})
    held = {kind: [0.0] * (len(edges_s) - 1) for kind in kinds}
    start, width = edges_s[0], edges_s[1] - edges_s[0]
    for attempt in outcome.attempts:
        job = trace.jobs[attempt.job]
        units = job.size.get(name) / MILLI
        row = held[job.kind]
        first = max(0, int((attempt.began_s - start) // width))
        last = min(len(row) - 1, int((attempt.ended_s - start) // width))
        for place in range(first, last + 1):
            left, right = start + place * width, start + (place + 1) * width
            row[place] += units * max(0.0, min(attempt.ended_s, right) - max(attempt.began_s, left)) / width
    return held


class Block(NamedTuple):
    """A stay, one of its nodes, and the range that it takes on the GPUs of that node."""

    stay: Attempt
    node: int
    low: float
    high: float


def blocks(trace: Trace, cluster: Cluster, outcome: Outcome, from_s: float, to_s: float) -> list[Block]:
    """Return the stays that overlap an interval, laid out on the GPUs of their nodes without overlap."""
    name = cluster.counted
    free = [[(0.0, node.total.get(name) / MILLI)] for node in cluster.nodes]
    taken: list[tuple[float, int, list[tuple[float, float]]]] = []
    found: list[Block] = []
    stays = [each for each in outcome.attempts if each.nodes and each.held_s < to_s and each.ended_s > from_s]
    for stay in sorted(stays, key=lambda each: each.held_s):
        for ended, node, parts in [each for each in taken if each[0] <= stay.held_s]:
            free[node] = _joined(free[node] + parts)
            taken.remove((ended, node, parts))
        for node, bundle in zip(stay.nodes, trace.jobs[stay.job].bundles, strict=False):
            parts = _cut(free[node], bundle.get(name) / MILLI)
            taken.append((stay.ended_s, node, parts))
            found += [Block(stay, node, low, high) for low, high in parts]
    return found


def _cut(free: list[tuple[float, float]], wanted: float) -> list[tuple[float, float]]:
    """Take `wanted` from the free ranges of a node: one range if it is large enough, otherwise several."""
    whole = next((place for place in free if place[1] - place[0] >= wanted - 1e-9), None)
    parts: list[tuple[float, float]] = []
    for low, high in [whole] if whole else list(free):
        if wanted <= 1e-9:
            break
        end = min(high, low + wanted)
        wanted -= end - low
        parts.append((low, end))
        free.remove((low, high))
        if end < high - 1e-9:
            free.append((end, high))
            free.sort()
    return parts


def _joined(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for low, high in sorted(places):
        if joined and low <= joined[-1][1] + 1e-9:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined


_BINS: Final = 400
_MAX_BLOCKS: Final = 400
_PANEL_IN: Final = 1.5
_NODE_IN: Final = 1.1
_UNITS: Final = (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0))


def timeline_svg(comparison: Comparison) -> str:
    """Return an SVG: the first policy's GPUs at the time of most stops, and below it each policy's use by kind."""
    nodes, policies = len(comparison.cluster.nodes), len(comparison.outcomes)
    heights = [_NODE_IN * min(nodes, 8), *[_PANEL_IN] * policies]
    with drawing():
        figure = blank_figure(sum(heights) + 0.8)
        panels = figure.subplots(1 + policies, 1, height_ratios=heights, squeeze=False)[:, 0]
        highest: dict[str, float] = {}
        for job in comparison.trace.jobs:
            highest[job.kind] = max(job.priority, highest.get(job.kind, job.priority))
        order = sorted(highest, key=lambda kind: (-highest[kind], kind))
        colours = {kind: COLOURS[number % len(COLOURS)] for number, kind in enumerate(order)}
        _draw_blocks(panels[0], comparison, comparison.outcomes[0], colours)
        for panel, outcome in zip(panels[1:], comparison.outcomes, strict=True):
            _draw_use(panel, comparison, outcome, colours)
        panels[-1].set_xlabel(f"time ({_unit(_span(comparison))[0]})")
    return inline_svg(figure, "placement", f"Which jobs held which GPUs: {comparison.trace.name}")


def _draw_use(axes: Axes, comparison: Comparison, outcome: Outcome, colours: dict[str, str]) -> None:
    span = _span(comparison)
    edges = [span * number / _BINS for number in range(_BINS + 1)]
    held = held_by_kind(comparison.trace, comparison.cluster, outcome, edges)
    seconds = _unit(span)[1]
    at = [edge / seconds for edge in edges]
    bottom = [0.0] * _BINS
    for kind, colour in colours.items():
        top = [low + more for low, more in zip(bottom, held[kind], strict=True)]
        axes.stairs(top, at, baseline=bottom, fill=True, color=colour, linewidth=0)
        bottom = top
    stops = [each.ended_s for each in outcome.attempts if not each.is_last and each.ended_s <= span]
    ticks = sorted({int(at_s / span * _BINS) for at_s in stops})
    height = comparison.cluster.total.get(comparison.cluster.counted) / MILLI
    axes.plot([at[tick] for tick in ticks], [height * 1.04] * len(ticks), "|", color="#D55E00", markersize=4, alpha=0.5)
    axes.set_ylim(0, height * 1.1)
    axes.set_xlim(0, at[-1])
    axes.set_ylabel(comparison.cluster.counted)
    axes.set_title(f"{outcome.policy}: {len(stops)} stops", loc="left")
    axes.tick_params(labelsize=7)
    quiet_grid(axes, "y")


def _draw_blocks(axes: Axes, comparison: Comparison, outcome: Outcome, colours: dict[str, str]) -> None:
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - matplotlib is imported by who draws

    first, last = _busiest(comparison, outcome)
    name, seconds = _unit(last - first)
    resource = comparison.cluster.counted
    heights = [node.total.get(resource) / MILLI for node in comparison.cluster.nodes]
    base = [sum(heights[:number]) + number * 0.6 for number in range(len(heights))]
    drawn: set[str] = set()
    for stay, node, low, high in blocks(comparison.trace, comparison.cluster, outcome, first, last):
        job = comparison.trace.jobs[stay.job]
        began, ended = max(stay.held_s, first), min(stay.ended_s, last)
        axes.add_patch(
            Rectangle(
                ((began - first) / seconds, base[node] + low),
                (ended - began) / seconds,
                high - low,
                facecolor=colours[job.kind],
                edgecolor="white" if stay.is_last else "#D55E00",
                linewidth=0.3 if stay.is_last else 0.9,
                alpha=0.85,
                label=None if job.kind in drawn else clipped(job.kind),
            )
        )
        drawn.add(job.kind)
    axes.set_xlim(0, (last - first) / seconds)
    axes.set_ylim(0, base[-1] + heights[-1])
    axes.set_yticks(
        [low + height / 2 for low, height in zip(base, heights, strict=True)],
        [clipped(node.node_id, 14) for node in comparison.cluster.nodes],
    )
    at, whole = _unit(_span(comparison))
    axes.set_xlabel(f"{name} from {first / whole:.3g} {at}; stopped work has an orange edge")
    axes.set_title(f"{outcome.policy}: every {resource} at the time of most stops", loc="left", pad=18)
    if drawn:
        legend_above(axes)


def _busiest(comparison: Comparison, outcome: Outcome) -> tuple[float, float]:
    """Return the interval of at most `_MAX_BLOCKS` stays with the most stops."""
    stays = sorted((each for each in outcome.attempts if each.nodes), key=lambda each: each.began_s)
    if len(stays) <= _MAX_BLOCKS:
        return 0.0, _span(comparison)
    stops = [0]
    for each in stays:
        stops.append(stops[-1] + (not each.is_last))
    place = max(range(len(stays) - _MAX_BLOCKS + 1), key=lambda at: stops[at + _MAX_BLOCKS] - stops[at])
    return stays[place].began_s, max(stays[place].began_s + 1.0, stays[place + _MAX_BLOCKS - 1].began_s)


def _span(comparison: Comparison) -> float:
    ends = (each.ended_s for outcome in comparison.outcomes[:1] for each in outcome.attempts)
    return max(ends, default=1.0) or 1.0


def _unit(span_s: float) -> tuple[str, float]:
    return next((unit for unit in _UNITS if span_s >= 2 * unit[1]), _UNITS[-1])
