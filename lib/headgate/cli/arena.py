"""`headgate arena`: a judge compares models' answers two at a time, and the models are rated by it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from headgate import reports
from headgate import run as runs
from headgate.cli.judge import judged_live
from headgate.cli.options import JudgeChoices, Limits, PageFile, Verbose, names_in
from headgate.cli.output import CHECK_FAILED, AsJson, counted, print_json, print_rows, say, write_page
from headgate.cli.run import logs_are_hidden
from headgate.core.errors import InvalidInputError
from headgate.net import event_loop

_TEXT: Final = frozenset({"model", "group", "judge"})


def arena(
    choices: JudgeChoices | None = None,
    *,
    model: Annotated[
        tuple[str, ...],
        Parameter(
            name=("--model", "-m"),
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
    request = runs.arena.ArenaRequest(names_in(model), instances, comparisons)
    is_live = logs_are_hidden(verbose, as_json=as_json)
    result = event_loop.run(judged_live(partial(runs.arena.run_arena, settings, request), settings, limits, is_live))
    board = reports.build_arena(result.comparisons, judge=result.judge, warnings=result.warnings)
    if output is not None:
        write_page(output, reports.arena_view(board, title=title, period=result.sentence()).page())
    if as_json:
        print_json(arena_run_document(result) | reports.arena_document(board))
    else:
        _show(board, result, output)
    return CHECK_FAILED if result.run is not None and result.run.stopped_early else 0


def arena_run_document(result: runs.arena.ArenaResult) -> dict[str, Any]:
    """Return a run's outcome as `--json` prints it beside the ratings."""
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
        say(f"warning: {warning}", stderr=True)
    say(result.sentence())
    if html is not None:
        say(str(html.resolve()))
