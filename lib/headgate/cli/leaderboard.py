"""`headgate leaderboard`: which model is better than which, and with what certainty."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from headgate import reports
from headgate.cli.options import MissingChoice, PageFile, ScoreChoices
from headgate.cli.output import CHECK_FAILED, AsJson, console, counted, print_json, print_rows, say, write_page
from headgate.cli.stored import chosen_samples, existing_store, no_samples, warn_of
from headgate.core.errors import InvalidInputError, NoSamplesError
from headgate.telemetry import safe_text

_PROBLEMS: Final = 10
"""Most sentences printed about what could not be determined."""

_TEXT: Final = frozenset({"model", "next", "verdict", "environment", "method", "group"})

_SPARE: Final = ("samples", "tasks", "p", "environments", "group", "worst case", "missing", "cost")
_SPARE_VERSUS: Final = ("gain", "correlation", "p", "environments", "common tasks", "means on these tasks")
_SPARE_CELLS: Final = ("design effect", "method", "samples", "tasks")
"""Columns that are dropped on a narrow terminal, the first of them first."""


def leaderboard(
    choices: ScoreChoices | None = None,
    *,
    against: Annotated[str, Parameter(help="Compare all models with this one. Default: the best by mean.")] = "",
    k: Annotated[tuple[int, ...], Parameter(name="--k", help="Add pass@k and maj@k for this k; may be repeated.")] = (),
    missing: MissingChoice = "bound",
    indifference: Annotated[
        float, Parameter(help="Either of two neighbours may come first when their means differ by this at most.")
    ] = 0.02,
    output: PageFile = None,
    title: Annotated[str, Parameter(help="Title of the page.")] = "Leaderboard",
    as_json: AsJson = False,
) -> int:
    """Compare models: means with intervals by task, ranks, paired differences, verdicts, pass@k and maj@k.

    A task that was sampled several times counts as one task in every interval. Models that share a rank are tied;
    models that share a group letter cannot be told apart. See `docs/explanation/statistics.md` for what is computed
    and when to trust it.

    Exit status 3 when there are no samples, 4 when none of them has a score.
    """
    if not 0 < indifference < 1:
        raise InvalidInputError(f"--indifference must be above 0 and below 1 (got {indifference:g})")
    given = choices or ScoreChoices()
    settings = given.load().settings
    store = existing_store(settings)
    frame, problems = asyncio.run(chosen_samples(store, given.chosen(), list(reports.LEADERBOARD_COLUMNS)))
    warn_of(problems)
    board = reports.build_leaderboard(
        frame, against=against, ks=tuple(dict.fromkeys(k)), missing=missing, indifference=indifference
    )
    if not board.standings:
        output = None  # an empty page would be taken for a result
    if output is not None:
        write_page(output, reports.leaderboard_view(board, title=title, period=given.period()).page())
    if as_json:
        print_json(reports.leaderboard_document(board) | ({"page": str(output.resolve())} if output else {}))
    else:
        _show(board, output)
        if frame.is_empty():
            raise asyncio.run(no_samples(store, settings))
    return 0 if board.standings else CHECK_FAILED if board.unscored else NoSamplesError.exit_code


def _show(board: reports.Leaderboard, html: Path | None) -> None:
    rows = reports.standing_rows(board)
    if not board.standings:
        say("There are no scored samples to compare.")
    what = (f"{counted(len(rows), 'model')}, means with intervals by task", reports.covered_time(board))
    print_rows("; ".join(filter(None, what)), rows, names=_TEXT, spare=_SPARE)
    for note in reports.leaderboard_notes(board):
        console().print(safe_text(note), style="dim", highlight=False, markup=False)
    print_rows(
        "neighbours in this order", reports.neighbour_rows(board.neighbours), names=_TEXT, spare=("tasks", "certainty")
    )
    print_rows(
        f"differences from {board.against} on the same tasks",
        reports.versus_rows(board),
        names=_TEXT,
        spare=_SPARE_VERSUS,
    )
    print_rows("by environment", reports.cell_rows(board), names=_TEXT, spare=_SPARE_CELLS)
    problems = board.problems()
    for problem in problems[:_PROBLEMS]:
        say(f"not determined: {problem}", stderr=True)
    if len(problems) > _PROBLEMS:
        say(f"not determined: {len(problems) - _PROBLEMS} more; `--json` has them all", stderr=True)
    if html is not None:
        say(str(html.resolve()))
