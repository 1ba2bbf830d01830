"""The flow `leaderboard`: who is better than whom, and how surely, as artifacts and a page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from prefect.states import Completed

from blocks import PublishedReport
from headgate import reports
from headgate.orchestration.artifacts import publish_link, publish_markdown, publish_table
from headgate.orchestration.inputs import SamplingOrder, report_store_for, settings_of, store_for
from headgate.orchestration.run_state import run_logger
from headgate.orchestration.score_rows import MAX_ROWS
from headgate.orchestration.upkeep import figures_markdown, how_to_open

_HOUR_S: Final = 3_600.0
_PAGE: Final = "leaderboard.html"


@dataclass(frozen=True, slots=True)
class LeaderboardOrder:
    """What a flow run is asked to compare.

    Attributes:
        environments: all that have samples when empty.
        hours: how far it reaches back; everything when None.
        against: the reference, by key or name; the best by mean when empty.
        ks: of pass@k.
        missing: what samples without a score count as.
        store: name of a SampleStore block.
        reports: name of a ReportStore block.
        title: heading of the page.
    """

    environments: Sequence[str] = ()
    hours: float | None = None
    against: str = ""
    ks: Sequence[int] = ()
    missing: reports.MissingRule = "bound"
    store: str = ""
    reports: str = ""
    title: str = "Leaderboard"


async def run_leaderboard(order: LeaderboardOrder) -> Any:
    """Compare the models of the stored samples, publish what was found, and return the final state.

    Raises:
        HeadgateError: if something that was given cannot be used, or the store cannot be read.
    """
    opened = await store_for(order.store, settings_of(SamplingOrder()))
    published_in = await report_store_for(order.reports)
    now = time.time()
    try:
        scan = await opened.scan(
            environments=order.environments or None,
            since=None if order.hours is None else now - order.hours * _HOUR_S,
            columns=reports.LEADERBOARD_COLUMNS,
        )
    finally:
        opened.close()
    for problem in scan.problems:
        run_logger().warning("left out of the store: %s", problem)
    ks = tuple(dict.fromkeys(order.ks))
    board = await asyncio.to_thread(
        reports.build_leaderboard, scan.frame, against=order.against, ks=ks, missing=order.missing
    )
    moment = datetime.fromtimestamp(now, UTC)
    reach = "all samples" if order.hours is None else f"samples of the last {order.hours:g} hours"
    period = f"{reach} before {moment:%Y-%m-%d %H:%M} UTC"
    page = await asyncio.to_thread(reports.leaderboard_page, board, title=order.title, period=period)
    document = orjson.dumps(reports.leaderboard_document(board), option=orjson.OPT_INDENT_2).decode()
    published = await published_in.write(
        f"leaderboard-{moment:%Y-%m-%dT%H-%M-%SZ}", {_PAGE: page, "leaderboard.json": document}
    )
    sentence = leaderboard_sentence(board)
    await _publish(board, published, order.title, period, sentence)
    run_logger().info("%s: %s", order.title, sentence)
    return Completed(message=sentence, data=_data(board, published))


async def _publish(
    board: reports.Leaderboard, published: PublishedReport, title: str, period: str, sentence: str
) -> None:
    await publish_table("leaderboard-models", reports.standing_rows(board)[:MAX_ROWS], sentence)
    await publish_markdown("leaderboard", reports.leaderboard_markdown(board, title=title, period=period), sentence)
    if figures := await asyncio.to_thread(reports.leaderboard_svg, board):
        await publish_markdown("leaderboard-figure", figures_markdown(figures), sentence)
    if link := published.links.get(_PAGE):
        await publish_link("leaderboard-page", link, "Open the leaderboard", f"{title}: one page with everything.")
    else:
        await publish_markdown("leaderboard-page", how_to_open(published.places[_PAGE]), f"{title}: where the page is.")


def leaderboard_sentence(board: reports.Leaderboard) -> str:
    """Return what a leaderboard says in one sentence."""
    if not board.standings:
        return "No scored samples to compare"
    first = board.standings[0]
    tied = [one.model for one in board.standings[1:] if set(one.groups) & set(first.groups)]
    apart = f"; {len(tied)} more not told apart from it" if tied else ""
    apart += "; missing scores could change who is first" if first.could_move else ""
    scored = sum(one.samples for one in board.standings)
    return f"{len(board.standings)} models on {scored:,} scored samples: {first.model} {first.mean.mean:.3f}{apart}"


def _data(board: reports.Leaderboard, published: PublishedReport) -> dict[str, Any]:
    models = {
        one.model: {
            "rank": one.rank,
            "groups": list(one.groups),
            "mean": round(one.mean.mean, 6),
            "missing_share": round(one.missing.share, 6),
            "rank_could_change": one.could_move,
        }
        for one in board.standings
    }
    return {
        "models": models,
        "notes": list(reports.leaderboard_notes(board)),
        "problems": len(board.problems()),
        "places": dict(published.places),
        "links": dict(published.links),
    }
