"""The flow `arena`: answers compared two at a time by a judge, the models' ratings as artifacts and a page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from prefect import task
from prefect.cache_policies import NO_CACHE

from blocks import PublishedReport
from blocks import SampleStore as SampleStoreBlock
from headgate import reports
from headgate.core import errors
from headgate.orchestration.artifacts import Outage, ProgressArtifact, publish_link, publish_markdown, publish_table
from headgate.orchestration.inputs import (
    SamplingOrder,
    loaded_block,
    report_store_for,
    roster_for,
    settings_of,
    store_for,
)
from headgate.orchestration.judged_artifacts import progress_sentence
from headgate.orchestration.judging import judge_for, rubric_block, with_judge
from headgate.orchestration.limit_choices import slots_for
from headgate.orchestration.run_logs import library_logs_in_run
from headgate.orchestration.run_state import (
    artifact_key,
    ended,
    heed_state,
    require_server_clock,
    run_logger,
    sole_error,
)
from headgate.orchestration.score_rows import MAX_ROWS
from headgate.orchestration.stop_request import StopRequest, stop_on_signals
from headgate.orchestration.upkeep import figures_markdown, how_to_open
from headgate.run import RunProgress
from headgate.run.arena import ARENA_FOLDER, ArenaRequest, ArenaResult, run_arena
from headgate.storage import SampleStore

_PAGE: Final = "arena.html"


@dataclass(frozen=True, slots=True)
class ArenaOrder:
    """What a flow run is asked to compare, and who judges.

    Attributes:
        sampling: environments, campaign, roster, store, limits, report store, settings.
        models: names or keys; all that have answered when empty.
        instances: see `ArenaRequest`.
        comparisons: likewise.
        judge: name of a ModelEndpoint block; the settings say when empty.
        judge_model: name of the judge, as its endpoint calls it.
        judgements: how often each order of two answers is judged; the setting when None.
        rubric: name of a JudgeRubric block; the setting, if any, when empty.
        title: heading of the page.
    """

    sampling: SamplingOrder
    models: Sequence[str] = ()
    instances: int | None = None
    comparisons: int | None = None
    judge: str = ""
    judge_model: str = ""
    judgements: int | None = None
    rubric: str = ""
    title: str = "Arena"


async def run_arena_order(order: ArenaOrder) -> Any:
    """Have a judge compare answers, publish the ratings, and return the final state.

    Raises:
        SamplesKeepFailingError: if it stopped by itself because the judge kept failing.
        HeadgateError: if something that was given cannot be used, or there is nothing to compare.
    """
    await require_server_clock()
    settings = settings_of(with_judge(order.sampling, order.judge_model, order.judgements))
    judge = await judge_for(order.judge, settings)
    request = ArenaRequest(tuple(order.models), order.instances, order.comparisons, await rubric_block(order.rubric))
    slots = await slots_for(order.sampling.limits)
    published_in = await report_store_for(order.sampling.reports)
    store = await store_for(order.sampling.store, settings)
    kept = await _comparison_store(order.sampling.store)
    stop = StopRequest()
    subject = f"arena-{settings.campaign}"
    progress = ProgressArtifact(artifact_key("progress", subject), Outage())

    async def note(newest: RunProgress) -> None:
        await progress.show(newest.share, progress_sentence(newest))
        await heed_state(stop)

    @task(name=subject, task_run_name=subject, cache_policy=NO_CACHE, persist_result=False)
    async def compared() -> ArenaResult:
        """Ask for the comparisons: the one task of the run, so that its graph shows when it worked."""
        return await run_arena(
            settings,
            request,
            judge=judge,
            roster=roster,
            store=store,
            comparisons=kept,
            stop=stop.event,
            on_progress=note,
            slots=slots,
        )

    with stop_on_signals(stop), library_logs_in_run():
        try:
            async with roster_for(order.sampling, settings) as roster:
                result = await compared()
        except ExceptionGroup as group:
            raise sole_error(group) from group
        finally:
            store.close()
            if kept is not None:
                kept.close()
        board = await asyncio.to_thread(
            reports.build_arena, result.comparisons, judge=result.judge, warnings=result.warnings
        )
        sentence = arena_sentence(board, result)
        published = await _published(board, published_in, order.title, sentence)
        run_logger().info("%s: %s", subject, sentence)
        if result.run is not None and result.run.stopped_early and stop.reason is None:
            raise errors.SamplesKeepFailingError(f"stopped early: {result.run.stopped_by}; {sentence}")
        return await ended(stop, sentence, _data(board, result, published))


def arena_sentence(board: reports.ArenaBoard, result: ArenaResult) -> str:
    """Return what an arena says in one sentence."""
    new = result.run.scored if result.run is not None else 0
    missing = f", {result.shortfall()}" if result.unjudged else ""
    head = f"{len(result.comparisons):,} of {result.possible:,} comparisons by {result.judge}, {new:,} new{missing}"
    if not board.models:
        return head
    first = board.models[0]
    tied = sum(bool(set(one.groups) & set(first.groups)) for one in board.models[1:])
    return f"{head}: {first.model} {first.rating:,.0f}" + (f"; {tied} more not told apart from it" if tied else "")


async def _comparison_store(block: str) -> SampleStore | None:
    """Return where the comparisons beside a block's samples are kept; None for what the settings say."""
    if not block:
        return None
    loaded: SampleStoreBlock = await loaded_block(SampleStoreBlock, block)
    return loaded.model_copy(update={"url": f"{loaded.url.rstrip('/')}/{ARENA_FOLDER}"}).open()


async def _published(board: reports.ArenaBoard, store: Any, title: str, sentence: str) -> PublishedReport:
    moment = datetime.fromtimestamp(time.time(), UTC)
    period = f"{sentence}. {moment:%Y-%m-%d %H:%M} UTC"
    page = await asyncio.to_thread(reports.arena_page, board, title=title, period=period)
    document = orjson.dumps(reports.arena_document(board), option=orjson.OPT_INDENT_2).decode()
    published: PublishedReport = await store.write(
        f"arena-{moment:%Y-%m-%dT%H-%M-%SZ}", {_PAGE: page, "arena.json": document}
    )
    await publish_table("arena-models", reports.rating_rows(board)[:MAX_ROWS], sentence)
    await publish_markdown("arena", reports.arena_markdown(board, title=title, period=period), sentence)
    if figures := await asyncio.to_thread(reports.arena_svg, board):
        await publish_markdown("arena-figure", figures_markdown(figures), sentence)
    if link := published.links.get(_PAGE):
        await publish_link("arena-page", link, "Open the arena", f"{title}: one page with everything.")
    else:
        await publish_markdown("arena-page", how_to_open(published.places[_PAGE]), f"{title}: where the page is.")
    return published


def _data(board: reports.ArenaBoard, result: ArenaResult, published: PublishedReport) -> dict[str, Any]:
    return {
        "models": {
            one.model: {"rank": one.rank, "groups": list(one.groups), "rating": round(one.rating, 1)}
            for one in board.models
        },
        "comparisons": len(result.comparisons),
        "possible": result.possible,
        "new": result.run.scored if result.run is not None else 0,
        "unjudged": result.unjudged,
        "why_unjudged": result.why_unjudged,
        "order_changed": board.judge.undecided,
        "warnings": list(board.warnings),
        "places": dict(published.places),
        "links": dict(published.links),
    }
