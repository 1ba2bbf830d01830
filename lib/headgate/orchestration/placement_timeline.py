"""The figure of a placed run: who held what when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headgate.orchestration.placement_tenures import Tenure, TenureEnd
from headgate.reports import COLOURS, INK, blank_figure, clipped, drawing, inline_svg, legend_above, quiet_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTION: Final = "Who held what: a line for each placement group; a cross is where work was stopped for other work"

_ROW_IN: Final = 0.34
_MOST_PLACES: Final = 40
"""Beyond, only the places that were held longest are drawn: a figure in an artifact is read, not scrolled."""


def timeline_svg(tenures: Sequence[Tenure]) -> str | None:
    """Return the figure as SVG, None when nothing was held."""
    return inline_svg(timeline_figure(tenures), "tenures", CAPTION) if tenures else None


def timeline_figure(tenures: Sequence[Tenure]) -> Figure:
    """Return the figure."""
    places = _places(tenures)
    began = min(tenure.started_at for tenure in tenures)
    with drawing():
        figure = blank_figure(1.1 + _ROW_IN * len(places))
        axes = figure.subplots()
        for number, role in enumerate(_roles(tenures)):
            stays = [t for t in tenures if t.role == role and t.place in places]
            axes.barh(
                [places.index(t.place) for t in stays],
                [t.held_s for t in stays],
                0.72,
                [t.started_at - began for t in stays],
                color=COLOURS[number % len(COLOURS)],
                edgecolor="white",
                linewidth=0.6,
                label=clipped(role),
            )
        _draw_stops(axes, [t for t in tenures if t.place in places], places, began)
        axes.set_yticks(range(len(places)), [clipped(place) for place in places])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel("seconds since the first place was held")
        quiet_grid(axes, "x")
        legend_above(axes)
    return figure


def _draw_stops(axes: Axes, tenures: Sequence[Tenure], places: Sequence[str], began: float) -> None:
    stopped = [t for t in tenures if t.end is TenureEnd.PREEMPTED]
    if stopped:
        at = [t.ended_at - began for t in stopped]
        rows = [places.index(t.place) for t in stopped]
        axes.plot(at, rows, "x", color=INK, markersize=6, markeredgewidth=1.4, label="preempted", linestyle="none")


def _roles(tenures: Sequence[Tenure]) -> list[str]:
    """Return the roles, the highest priority first: colours stay with ranks."""
    highest: dict[str, float] = {}
    for tenure in tenures:
        highest[tenure.role] = max(tenure.priority, highest.get(tenure.role, tenure.priority))
    return sorted(highest, key=lambda role: (-highest[role], role))


def _places(tenures: Sequence[Tenure]) -> list[str]:
    held: dict[str, float] = {}
    for tenure in tenures:
        held[tenure.place] = held.get(tenure.place, 0.0) + tenure.held_s
    longest = sorted(held, key=lambda place: -held[place])[:_MOST_PLACES]
    return sorted(longest)
