"""The flow `leaderboard`: which models are better than others, and how certainly, as artifacts and a page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from prefect.states import Completed

from blocks import PublishedReport
from headgate import reports
from headgate.core import utc_text
from headgate.orchestration.inputs import report_store_for
from headgate.orchestration.pages import places_of, publish_board
from headgate.orchestration.phases import in_phase
from headgate.orchestration.run_state import run_logger
from headgate.orchestration.upkeep import samples_of


async def run_leaderboard(
    *,
    environments: Sequence[str],
    hours: float | None,
    against: str,
    ks: Sequence[int],
    missing: reports.MissingRule,
    store: str,
    published_in: str,
    title: str,
) -> Any:
    """Compare the models of the stored samples, publish the results, and return the final state.

    The parameters are those of the flow `leaderboard`.

    Raises:
        HeadgateError: if an argument cannot be used, or the store cannot be read.
    """
    pages = await report_store_for(published_in)
    now = time.time()
    samples, _ = await samples_of(store, environments, hours, columns=reports.LEADERBOARD_COLUMNS)
    ranked = partial(reports.build_leaderboard, against=against, ks=tuple(dict.fromkeys(ks)), missing=missing)
    board = await in_phase("compare models", lambda: asyncio.to_thread(ranked, samples))
    reach = "all samples" if hours is None else f"samples of the last {hours:g} hours"
    period = f"{reach} before {utc_text(now)}"
    sentence = leaderboard_sentence(board)
    view = reports.leaderboard_view(board, title=title, period=period)
    board_of = partial(
        publish_board,
        "leaderboard",
        pages,
        view,
        document=reports.leaderboard_document(board),
        rows=reports.standing_rows(board),
        sentence=sentence,
        at=now,
    )
    published = await in_phase("publish", board_of, asset=pages.url, what="reports")
    run_logger().info("%s: %s", title, sentence)
    return Completed(message=sentence, data=_data(board, published))


def leaderboard_sentence(board: reports.Leaderboard) -> str:
    """Return the result of a leaderboard in one sentence."""
    if not board.standings:
        return "No scored samples to compare"
    first = board.standings[0]
    tied = [one.model for one in board.standings[1:] if set(one.groups) & set(first.groups)]
    apart = f"; {len(tied)} more indistinguishable from it" if tied else ""
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
        **places_of(published),
    }
