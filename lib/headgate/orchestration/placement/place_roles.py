"""The flow `place-roles`: a small real training whose roles share a Ray cluster by priority."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from blocks import RayCluster, loaded_block
from headgate.core.errors import HeadgateError
from headgate.core.tasks import beside
from headgate.orchestration.artifacts import markdown_table, publish
from headgate.orchestration.pages import figures_markdown
from headgate.orchestration.placement.pool_leases import PoolLeases, open_pool_leases
from headgate.orchestration.placement.rounds import Learned, PlacedTraining, PlacingOrder, RoleStoppedError
from headgate.orchestration.placement.runner import PlacementTaskRunner
from headgate.orchestration.placement.tenures import Stop, Tenure, TenureEnd, preemption_rows, role_rows, roles_of
from headgate.orchestration.run_state import artifact_key, ended, heeding, library_logs_in_run, run_logger
from headgate.orchestration.stop_request import StopRequest, stop_on_signals
from headgate.placement import take_signals_back
from headgate.reports import COLOURS, INK, blank_figure, clipped, drawing, inline_svg, legend_above, quiet_grid

CAPTION: Final = "Occupancy: a line for each placement group; a cross is where work was stopped for other work"

_ROW_IN: Final = 0.34
_MOST_PLACES: Final = 40
"""Of more places, only those held longest are drawn: a figure in an artifact must be legible without scrolling."""

_NONE: Final = "Nothing was stopped for other work."
_COST: Final = (
    "The ledger counts all work of a stay as lost. A role resumes from its last checkpoint, so a stop costs one step "
    "(a batch of episodes or a gradient step) and a new start."
)


async def run_placing(order: PlacingOrder) -> Any:
    """Train a policy with roles placed by priority, and return the final state of the flow run.

    Raises:
        HeadgateError: if an argument cannot be used, or the cluster cannot be reached; also whatever a role raised.
            Everything is given back in every case, and the next run of the same name continues.
    """
    order.place.played()
    block = RayCluster() if not order.cluster else await loaded_block(RayCluster, order.cluster)
    stop = StopRequest()
    with stop_on_signals(stop), library_logs_in_run():
        leases = await asyncio.to_thread(open_pool_leases, block, order.own_pool())
        take_signals_back()
        run_logger().info("%s", leases.says)
        runner = PlacementTaskRunner(pool=order.pool, leasing=lambda: leases)
        placed = PlacedTraining(order, runner)
        stops: list[Stop] = []
        try:
            async with _running(runner, leases, stop, stops):
                await placed.run()
        except RoleStoppedError:
            run_logger().info("The roles were stopped, and their places given back")
        finally:
            await publish_placing(order.name, placed.learned, runner.tenures, stops)
        learned, message = placed.learned, training_sentence(placed.learned, runner.tenures)
        run_logger().info("%s: %s", order.name, message)
        figures = {
            "rounds": len(learned.rounds),
            "episodes": learned.episodes,
            "mean_reward_before": learned.before,
            "mean_reward_after": learned.after,
            "preemptions": _stops(runner.tenures),
        }
        return await ended(stop, message, figures)


@asynccontextmanager
async def _running(
    runner: PlacementTaskRunner, leases: PoolLeases, stop: StopRequest, stops: list[Stop]
) -> AsyncIterator[None]:
    """Keep a runner open; a stop request cancels whatever it holds, and nothing is held afterwards."""

    async def cancelled() -> None:
        await stop.event.wait()
        runner.cancel_all()

    runner.__enter__()
    try:
        async with beside(cancelled()), heeding(stop):
            yield
    finally:
        runner.cancel_all()
        await asyncio.to_thread(runner.join)
        with suppress(HeadgateError):  # without the ledger the costs are unknown; how the run ends does not change
            stops += await asyncio.to_thread(leases.stops)
        await asyncio.to_thread(runner.__exit__, None, None, None)
        await asyncio.to_thread(leases.close)
        take_signals_back()


async def publish_placing(name: str, learned: Learned, tenures: Sequence[Tenure], stops: Sequence[Stop]) -> None:
    """Publish everything about a training, whether it finished or not."""
    sentence = training_sentence(learned, tenures)
    await publish(artifact_key("placement-roles", name), role_rows(tenures), sentence)
    cut = preemption_rows(tenures, stops)
    await publish(artifact_key("placement-preemptions", name), cut, sentence if cut else _NONE)
    await publish(artifact_key("placement", name), placing_markdown(name, learned, tenures, stops), sentence)
    figure = timeline_svg(tenures)
    if figure is not None:
        await publish(artifact_key("placement-timeline", name), figures_markdown({CAPTION: figure}), sentence)


def _stops(tenures: Sequence[Tenure]) -> int:
    return sum(tenure.end is TenureEnd.PREEMPTED for tenure in tenures)


def training_sentence(learned: Learned, tenures: Sequence[Tenure]) -> str:
    """Return the result of a training in one sentence."""
    parts = [f"{len(learned.rounds)} rounds of {learned.episodes:,} episodes", f"{_stops(tenures)} preemptions"]
    if learned.before is not None and learned.after is not None:
        parts.append(f"mean reward {learned.before:.3f} before, {learned.after:.3f} after")
    return ", ".join(parts)


def placing_markdown(name: str, learned: Learned, tenures: Sequence[Tenure], stops: Sequence[Stop] = ()) -> str:
    """Return the report as Markdown."""
    rounds = [
        {
            "round": str(figures["version"]),
            "batches": str(figures["batches"]),
            "mean reward of its rollouts": f"{figures['mean_reward']:.3f}",
        }
        for figures in learned.rounds
    ]
    sections = [
        f"# Training {name}",
        f"{training_sentence(learned, tenures)}.",
        "## Learning",
        markdown_table(rounds, "No round was completed."),
        "## Roles",
        markdown_table(role_rows(tenures), "Nothing was placed."),
        "## Preemptions",
        markdown_table(preemption_rows(tenures, stops), _NONE),
        _COST,
    ]
    return "\n\n".join(sections) + "\n"


def timeline_svg(tenures: Sequence[Tenure]) -> str | None:
    """Return the figure as SVG, or None if nothing was held."""
    if not tenures:
        return None
    held: dict[str, float] = {}
    for tenure in tenures:
        held[tenure.place] = held.get(tenure.place, 0.0) + tenure.held_s
    places = sorted(sorted(held, key=lambda place: -held[place])[:_MOST_PLACES])
    drawn = [tenure for tenure in tenures if tenure.place in places]
    began = min(tenure.started_at for tenure in tenures)
    with drawing():
        figure = blank_figure(1.1 + _ROW_IN * len(places))
        axes = figure.subplots()
        for number, role in enumerate(roles_of(tenures)):
            stays = [t for t in drawn if t.role == role]
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
        if stopped := [t for t in drawn if t.end is TenureEnd.PREEMPTED]:
            at, rows = [t.ended_at - began for t in stopped], [places.index(t.place) for t in stopped]
            axes.plot(at, rows, "x", color=INK, markersize=6, markeredgewidth=1.4, label="preempted", linestyle="none")
        axes.set_yticks(range(len(places)), [clipped(place) for place in places])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel("seconds since the first place was held")
        quiet_grid(axes, "x")
        legend_above(axes)
    return inline_svg(figure, "tenures", CAPTION)
