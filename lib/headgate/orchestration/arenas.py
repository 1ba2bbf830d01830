"""The flow `arena`: a judge compares answers in pairs; the models' ratings become artifacts and a page."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

from blocks import PublishedReport, ReportStore, loaded_block
from blocks import SampleStore as SampleStoreBlock
from headgate import reports
from headgate.config import Settings
from headgate.core import utc_text
from headgate.orchestration.campaign_task import concluded, run_in_phases
from headgate.orchestration.inputs import (
    SamplingOrder,
    judge_for,
    report_store_for,
    rubric_block,
    settings_of,
    with_judge,
)
from headgate.orchestration.pages import places_of, publish_board
from headgate.orchestration.phases import in_phase
from headgate.orchestration.run_state import require_server_clock
from headgate.orchestration.sampling_run import campaign_artifacts
from headgate.run.arena import ARENA_FOLDER, ArenaRequest, ArenaResult, run_arena
from headgate.storage import SampleStore


async def run_arena_order(
    sampling: SamplingOrder,
    *,
    models: Sequence[str],
    instances: int | None,
    comparisons: int | None,
    judge: str,
    judge_model: str,
    judgements: int | None,
    rubric: str,
    title: str,
) -> Any:
    """Have a judge compare answers, publish the ratings, and return the final state.

    The parameters are those of the flow `arena`; `sampling` has those that all flows share.

    Raises:
        SamplesKeepFailingError: if the run stopped early because the judge kept failing.
        HeadgateError: if an argument cannot be used, or there is nothing to compare.
    """
    await require_server_clock()
    settings = settings_of(with_judge(sampling, judge_model, judgements))
    judging = await judge_for(judge, settings)
    request = ArenaRequest(tuple(models), instances, comparisons, await rubric_block(rubric))
    published_in = await report_store_for(sampling.reports)
    subject = f"arena-{settings.campaign}"
    artifacts = campaign_artifacts(subject)

    async def arena(settings: Settings, **given: Any) -> ArenaResult:
        kept = await _comparison_store(sampling.store)
        with contextlib.closing(kept) if kept is not None else contextlib.nullcontext():
            return await run_arena(
                settings, request, judge=judging, comparisons=kept, on_status=artifacts.note, **given
            )

    with artifacts.heeded():
        has_roster = instances is not None
        result = await run_in_phases(
            arena, sampling, settings, artifacts, name=subject, is_traced=False, has_roster=has_roster
        )
        board = await asyncio.to_thread(
            reports.build_arena, result.comparisons, judge=result.judge, warnings=result.warnings
        )
        sentence = arena_sentence(board, result)
        if result.run is not None:
            await artifacts.finish(result.run.status, sentence)
        published = await in_phase("publish", lambda: _published(board, published_in, title, sentence))
        run = result.run
        failing = f"stopped early: {run.stopped_by}" if run is not None and run.stopped_early else ""
        return await concluded(artifacts, sentence, _data(board, result, published), failing=failing)


def arena_sentence(board: reports.ArenaBoard, result: ArenaResult) -> str:
    """Return the result of an arena in one sentence."""
    head = result.sentence()
    if not board.models:
        return head
    first = board.models[0]
    tied = sum(bool(set(one.groups) & set(first.groups)) for one in board.models[1:])
    return f"{head}: {first.model} {first.rating:,.0f}" + (f"; {tied} more indistinguishable from it" if tied else "")


async def _comparison_store(block: str) -> SampleStore | None:
    """Return the store for comparisons, beside the block's samples; None to use what the settings say."""
    if not block:
        return None
    loaded = await loaded_block(SampleStoreBlock, block)
    return loaded.model_copy(update={"url": f"{loaded.url.rstrip('/')}/{ARENA_FOLDER}"}).open()


async def _published(board: reports.ArenaBoard, pages: ReportStore, title: str, sentence: str) -> PublishedReport:
    view = reports.arena_view(board, title=title, period=f"{sentence}. {utc_text(time.time())}")
    return await publish_board(
        "arena",
        pages,
        view,
        document=reports.arena_document(board),
        rows=reports.rating_rows(board),
        sentence=sentence,
    )


def _data(board: reports.ArenaBoard, result: ArenaResult, published: PublishedReport) -> dict[str, Any]:
    return {
        "models": {
            one.model: {"rank": one.rank, "groups": list(one.groups), "rating": round(one.rating, 1)}
            for one in board.models
        },
        **result.counts(),
        "order_changed": board.judge.undecided,
        "warnings": list(board.warnings),
        **places_of(published),
    }
