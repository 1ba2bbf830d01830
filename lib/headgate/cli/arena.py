"""`headgate arena`: a judge compares models' answers two at a time, and the models are rated by it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from headgate import reports
from headgate import run as runs
from headgate.cli.judge import progress_shown
from headgate.cli.options import JudgeChoices, PageFile, Verbose, names_in
from headgate.cli.output import AsJson, counted, print_json, print_rows, say, write_page
from headgate.cli.run import STOPPED_EARLY, Limits, at_hand
from headgate.config import Settings
from headgate.core.errors import InvalidInputError
from headgate.net import event_loop
from headgate.telemetry import setup_logging

_TEXT: Final = frozenset({"model", "group", "judge"})


def arena(
    choices: JudgeChoices | None = None,
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
    output: PageFile = None,
    title: Annotated[str, Parameter(help="Title of the page.")] = "Arena",
    limits: Limits = "",
    verbose: Verbose = 0,
    as_json: AsJson = False,
) -> int:
    """Have a judge compare stored answers of two models to the same task, and rate the models.

    The judge sees both answers in both orders. An answer preferred in both wins; anything else is a tie. Stored
    comparisons of the same judge are reused. `docs/how-to/judge.md` says how to read the table.

    Exit status 4 when the judge kept failing and it stopped early (`early_stop`).
    """
    settings = (choices or JudgeChoices()).load().settings
    for name, value, least in (("--instances", instances, 1), ("--comparisons", comparisons, 0)):
        if value is not None and value < least:
            raise InvalidInputError(f"{name} must be >= {least} (got {value})")
    is_live = sys.stdout.isatty() and not as_json and not verbose
    setup_logging(verbosity=0 if is_live else 1 + verbose)
    request = runs.arena.ArenaRequest(names_in(model), instances, comparisons)
    result = event_loop.run(_run(settings, request, limits, is_live=is_live))
    board = reports.build_arena(result.comparisons, judge=result.judge, warnings=result.warnings)
    if output is not None:
        write_page(output, reports.arena_view(board, title=title, period=told(result)).page())
    if as_json:
        print_json(arena_run_document(result) | reports.arena_document(board))
    else:
        _show(board, result, output)
    return STOPPED_EARLY if result.run is not None and result.run.stopped_early else 0


async def _run(
    settings: Settings, request: runs.arena.ArenaRequest, limits: str, *, is_live: bool
) -> runs.arena.ArenaResult:
    async with at_hand(settings, limits) as given:
        with progress_shown(is_live=is_live) as show:
            return await runs.arena.run_arena(settings, request, on_progress=show, **given)


def told(result: runs.arena.ArenaResult) -> str:
    """Return what the arena holds and what this run added, in one sentence."""
    taken = result.run.scored if result.run is not None else 0
    missing = f", {result.shortfall()}" if result.unjudged else ""
    return (
        f"{len(result.comparisons):,} of {result.possible:,} possible comparisons by {result.judge}, "
        f"{taken:,} of them new{missing}"
    )


def arena_run_document(result: runs.arena.ArenaResult) -> dict[str, Any]:
    """Return what a run did as `--json` prints it beside the ratings."""
    return {
        **result.counts(),
        "stopped_by": result.run.stopped_by if result.run is not None else "nothing was left to ask",
        "stopped_early": result.run is not None and result.run.stopped_early,
    }


def _show(board: reports.ArenaBoard, result: runs.arena.ArenaResult, html: Path | None) -> None:
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
