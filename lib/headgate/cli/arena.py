"""`headgate arena`: a judge compares models' answers two at a time, and the models are rated by it."""

from __future__ import annotations

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from headgate import orchestration, reports
from headgate.cli.judge import progress_bar, showing
from headgate.cli.options import Choices, names_in
from headgate.cli.output import AsJson, counted, print_json, print_rows, say, write_page
from headgate.cli.run import STOPPED_EARLY, Limits, stop_on_signals
from headgate.config import Settings
from headgate.core.errors import InvalidInputError
from headgate.run import models_at_hand
from headgate.run.arena import ArenaRequest, ArenaResult, run_arena
from headgate.telemetry import setup_logging

_TEXT: Final = frozenset({"model", "group", "judge"})


def arena(
    choices: Choices | None = None,
    *,
    model: Annotated[
        tuple[str, ...],
        Parameter(
            name=("--model", "-m"),
            negative="",
            help="Models to compare; comma separated, or repeated. Default: all that have answered.",
        ),
    ] = (),
    instances: Annotated[
        int | None, Parameter(help="Only the tasks 0 to n-1; missing answers are sampled first.")
    ] = None,
    comparisons: Annotated[
        int | None, Parameter(help="Most new comparisons, the most informative first; 0 only shows the table.")
    ] = None,
    judge_model: Annotated[str | None, Parameter(help="Name of the model that judges.")] = None,
    judge_url: Annotated[str | None, Parameter(help="Base URL of the judge's endpoint, up to /v1.")] = None,
    judge_parallel: Annotated[int | None, Parameter(help="Maximum number of the judge's requests in flight.")] = None,
    judgements: Annotated[int | None, Parameter(help="How often each order of two answers is judged.")] = None,
    rubric: Annotated[str | None, Parameter(help="YAML file of the rubric to judge by.")] = None,
    output: Annotated[
        Path | None, Parameter(name=("--output", "-o"), help="Also write a self-contained page to this file.")
    ] = None,
    title: Annotated[str, Parameter(help="Title of the page.")] = "Arena",
    limits: Limits = "",
    verbose: Annotated[
        int, Parameter(name=("--verbose", "-v"), count=True, negative="", help="More log lines; twice for all.")
    ] = 0,
    as_json: AsJson = False,
) -> int:
    """Have a judge compare stored answers of two models to the same task, and rate the models.

    The judge sees both answers in both orders. An answer preferred in both wins; anything else is a tie. Stored
    comparisons of the same judge are reused. `docs/how-to/arena.md` says how to read the table.

    Exit status 4 when the judge kept failing and it stopped early (`early_stop`).
    """
    loaded = (choices or Choices()).load(
        judge_model=judge_model,
        judge_url=judge_url,
        judge_parallel=judge_parallel,
        judgements=judgements,
        rubric=rubric,
    )
    for name, value, least in (("--instances", instances, 1), ("--comparisons", comparisons, 0)):
        if value is not None and value < least:
            raise InvalidInputError(f"{name} must be >= {least} (got {value})")
    is_live = sys.stdout.isatty() and not as_json and not verbose
    setup_logging(verbosity=0 if is_live else 1 + verbose)
    request = ArenaRequest(names_in(model), instances, comparisons)
    result = asyncio.run(_run(loaded.settings, request, limits, is_live=is_live))
    board = reports.build_arena(result.comparisons, judge=result.judge, warnings=result.warnings)
    if output is not None:
        write_page(output, reports.arena_page(board, title=title, period=told(result)))
    if as_json:
        print_json(arena_run_document(result) | reports.arena_document(board))
    else:
        _show(board, result, output)
    return STOPPED_EARLY if result.run is not None and result.run.stopped_early else 0


async def _run(settings: Settings, request: ArenaRequest, limits: str, *, is_live: bool) -> ArenaResult:
    slots = await orchestration.shared_slots(limits) if limits else None  # Prefect is imported by those who need it
    stop = asyncio.Event()
    stop_on_signals(stop, settings.drain_timeout_s)
    bar = progress_bar() if is_live else None
    async with models_at_hand(settings) as roster:
        with bar if bar is not None else nullcontext():
            on_progress = showing(bar) if bar is not None else None
            return await run_arena(settings, request, roster=roster, stop=stop, on_progress=on_progress, slots=slots)


def told(result: ArenaResult) -> str:
    """Return what the arena holds and what this run added, in one sentence."""
    taken = result.run.scored if result.run is not None else 0
    missing = f", {result.shortfall()}" if result.unjudged else ""
    return (
        f"{len(result.comparisons):,} of {result.possible:,} possible comparisons by {result.judge}, "
        f"{taken:,} of them new{missing}"
    )


def arena_run_document(result: ArenaResult) -> dict[str, Any]:
    """Return what a run did as `--json` prints it beside the ratings."""
    return {
        "comparisons": len(result.comparisons),
        "possible": result.possible,
        "new": result.run.scored if result.run is not None else 0,
        "unjudged": result.unjudged,
        "stopped_by": result.run.stopped_by if result.run is not None else "nothing was left to ask",
        "why_unjudged": result.why_unjudged,
        "stopped_early": result.run is not None and result.run.stopped_early,
    }


def _show(board: reports.ArenaBoard, result: ArenaResult, html: Path | None) -> None:
    print_rows(
        f"{counted(len(board.models), 'model')}, rated by {result.judge}", reports.rating_rows(board), names=_TEXT
    )
    print_rows("win share of the row against the column", reports.share_rows(board), names=_TEXT)
    print_rows("judge", reports.judge_rows(board), names=_TEXT)
    for warning in board.warnings:
        say(f"mind: {warning}", stderr=True)
    say(told(result))
    if html is not None:
        say(str(html.resolve()))
