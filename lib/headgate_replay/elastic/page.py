"""Presents a replay of elastic policies: figures, and one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from headgate.reports import COLOURS, INK, blank_figure, drawing, inline_svg, legend_above, quiet_grid, template
from headgate_replay.elastic.comparison import COLUMNS, DEFINITIONS, Comparison
from headgate_replay.elastic.outcome import asked_course, awake_course, wait_course

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANELS: Final = 6
"""Maximum number of policies whose workers are drawn over time; the table has all policies."""

_COSTS: Final = (1, 1.25, 1.5, 2, 3, 4, 6, 8, 16, 32)
"""Ticks of the logarithmic cost axis."""

_SHORTEST_S: Final = 0.01
"""Shorter waits are drawn at this value: a logarithmic axis has no 0."""


def replay_figures(comparison: Comparison, name: str = "elastic") -> dict[str, tuple[str, str]]:
    """Return caption and SVG element of each figure by file name; `name` prefixes file names and ids."""
    drawn = {
        "workers": ("Workers awake, compared with what the load needed", workers_figure(comparison)),
        "waits": (
            "How long requests waited: the share of them that waited at most so long",
            waits_figure(comparison),
        ),
        "cost": ("What each policy cost, and how long one request in a hundred waited", cost_figure(comparison)),
    }
    return {
        f"{name}-{kind}.svg": (caption, inline_svg(figure, f"{name}-{kind}", f"{caption}: {comparison.load.name}"))
        for kind, (caption, figure) in drawn.items()
    }


def replay_page(comparisons: Sequence[Comparison], title: str = "Elastic policies replayed") -> str:
    """Return a page about comparisons: tables, figures and assumptions."""
    sections = [
        {
            "name": f"{each.load.name}, {each.site.start_text}",
            "says": each.says,
            "first": COLUMNS[0],
            "rows": [
                dict(zip(COLUMNS, row, strict=True)) | {"what it does": outcome.says}
                for row, outcome in zip(each.rows, each.outcomes, strict=True)
            ],
            "bounds": [
                {
                    "waiting": f"{bound.wait_s:g} s",
                    "cost if no request waits longer": f"{bound.cost:.2f}x",
                    "cost if one in a hundred does, with free starts": f"{bound.p99_cost:.2f}x",
                }
                for bound in each.bounds
            ],
            "notes": each.load.notes,
            "figures": [
                (caption, Markup(svg))  # noqa: S704 - drawn by us
                for caption, svg in replay_figures(each, f"elastic-{number}").values()
            ],
        }
        for number, each in enumerate(comparisons)
    ]
    page = template("elastic.html.j2", "headgate_replay")
    return page.render(title=title, sections=sections, definitions=DEFINITIONS)


def workers_figure(comparison: Comparison) -> Figure:
    """Return a panel per policy: workers awake, over the workers that the calls would fill without waiting."""
    outcomes = comparison.outcomes[:_PANELS]
    asked = asked_course(comparison.load)
    with drawing():
        figure = blank_figure(1.25 * len(outcomes) + 0.7)
        panels = figure.subplots(len(outcomes), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for number, (axes, outcome) in enumerate(zip(panels, outcomes, strict=True)):
            awake = awake_course(comparison.load, outcome)
            axes.fill_between([x for x, _ in asked], [y for _, y in asked], color=INK, alpha=0.18, linewidth=0)
            axes.plot([x for x, _ in awake], [y for _, y in awake], color=_colour(number), linewidth=1.3)
            axes.set_title(outcome.policy, loc="left")
            quiet_grid(axes, "y")
        panels[0].set_ylim(bottom=0)  # of all panels; it would fix the top before the last ones are drawn
        panels[-1].set_xlabel("minutes")
        panels[len(panels) // 2].set_ylabel("workers")
    return figure


def waits_figure(comparison: Comparison) -> Figure:
    """Return waiting by share of the requests, with a line per policy."""
    with drawing():
        figure = blank_figure(3.4)
        axes = figure.subplots()
        for number, outcome in enumerate(comparison.outcomes):
            course = wait_course(comparison.load, outcome)
            # Most shares are near 100 %: the axis is scaled by the distance from it.
            xs = [100 / (100 - share) for share, _ in course]
            ys = [max(_SHORTEST_S, wait_s) for _, wait_s in course]
            axes.plot(xs, ys, _marker(number), color=_colour(number), markersize=3, label=outcome.policy)
            axes.plot(xs, ys, color=_colour(number), linewidth=1.2)
        axes.set_xscale("log")
        ticks = (2, 10, 20, 100, 1_000)
        axes.set_xticks(ticks, [f"{100 - 100 / tick:g} %" for tick in ticks])
        axes.xaxis.set_minor_formatter("")
        axes.set_xlabel("share of the requests")
        axes.set_ylabel("waited at most (s)")
        _seconds(axes)
        quiet_grid(axes, "y")
        legend_above(axes)
    return figure


def cost_figure(comparison: Comparison) -> Figure:
    """Return cost against p99 waiting: a point per policy, a line per frontier, and the bounds."""
    with drawing():
        figure = blank_figure(4.2)
        axes = figure.subplots()
        names = [measures.policy for measures in comparison.measures]
        for number, measures in enumerate(comparison.measures):
            at = (measures.cost, max(_SHORTEST_S, measures.p99_s))
            axes.plot(*at, _marker(number), color=_colour(number), markersize=6, label=measures.policy)
        for line in comparison.frontiers:
            number = names.index(line.policy) if line.policy in names else len(names)
            xs = [point.measures.cost for point in line.best]
            ys = [max(_SHORTEST_S, point.measures.p99_s) for point in line.best]
            axes.plot(xs, ys, color=_colour(number), linewidth=1.1, alpha=0.8)
        bounds = [(bound.cost, max(_SHORTEST_S, bound.wait_s)) for bound in comparison.bounds]
        axes.plot([x for x, _ in bounds], [y for _, y in bounds], color=INK, linestyle=(0, (4, 3)), label="bound")
        axes.set_xscale("log")
        limits = axes.get_xlim()
        axes.set_xticks(_COSTS, [f"{cost:g}" for cost in _COSTS])
        axes.set_xlim(limits)
        axes.xaxis.set_minor_formatter("")
        axes.set_xlabel("cost (worker-seconds by the work)")
        axes.set_ylabel("p99 waiting (s)")
        _seconds(axes)
        quiet_grid(axes, "y")
        legend_above(axes)
    return figure


def _seconds(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter("")
    axes.set_ylim(bottom=_SHORTEST_S * 0.8)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _marker(number: int) -> str:
    return "os^D"[number // len(COLOURS) % 4]
