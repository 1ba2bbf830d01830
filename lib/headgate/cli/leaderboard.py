"""`headgate leaderboard`: who is better than whom, and how surely."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from headgate import reports
from headgate.cli.choices import Choices
from headgate.cli.moments import moment_of
from headgate.cli.output import AsJson, console, counted, print_json, print_rows, write_page
from headgate.cli.running import NOT_SCORED
from headgate.cli.stored import existing_store, no_samples, require_stored
from headgate.core.errors import NoSamplesError
from headgate.storage import SampleStore, Scan
from headgate.telemetry import safe_text

_PROBLEMS: Final = 10
"""Sentences about what could not be told that are printed at most."""

_TEXT: Final = frozenset({"model", "environment", "method", "group"})

_SPARE: Final = ("samples", "tasks", "p", "environments", "group")
_SPARE_VERSUS: Final = ("gain", "correlation", "p", "environments", "common tasks", "means on these tasks")
_SPARE_CELLS: Final = ("design effect", "method", "samples")
"""Columns that a narrow terminal does without, the first of them first."""


def leaderboard(
    choices: Choices | None = None,
    *,
    against: Annotated[str, Parameter(help="Compare all models with this one. Default: the best by mean.")] = "",
    k: Annotated[
        tuple[int, ...], Parameter(name="--k", negative="", help="Add pass@k for this k; may be repeated.")
    ] = (),
    environment: Annotated[
        tuple[str, ...],
        Parameter(name="--environment", negative="", help="Only this environment; may be repeated."),
    ] = (),
    since: Annotated[
        str, Parameter(help="Only samples that ended since: 2026-01-31, 2026-01-31T06:00Z, or 36h, 7d ago.")
    ] = "",
    html: Annotated[Path | None, Parameter(help="Also write a self-contained page to this file.")] = None,
    title: Annotated[str, Parameter(help="Title of the page.")] = "Leaderboard",
    as_json: AsJson = False,
) -> int:
    """Compare models: means with intervals by task, ranks, paired differences and pass@k.

    A task that was sampled several times counts as one task in every interval. Models that share a rank are tied, and
    two that share a group letter have not been told apart. `docs/statistics.md` says what is computed, and when to
    trust it.

    Exit status 3 when there are no samples, 4 when none of them has a score.
    """
    settings = (choices or Choices()).load().settings
    start = moment_of(since, time.time(), option="--since") if since else None
    store = existing_store(settings)
    found = asyncio.run(_scan(store, environment, start))
    for problem in found.problems:
        console(stderr=True).print(f"left out {problem.path}: {problem.reason}", highlight=False, markup=False)
    board = reports.build_leaderboard(found.frame, against=against, ks=tuple(dict.fromkeys(k)))
    if not board.standings:
        html = None  # a page of nothing would be taken for one of something
    if html is not None:
        write_page(html, reports.leaderboard_page(board, title=title, period=f"since {since}" if since else ""))
    if as_json:
        print_json(reports.leaderboard_document(board) | ({"page": str(html.resolve())} if html else {}))
    else:
        _show(board, html)
        if found.frame.is_empty():
            raise asyncio.run(no_samples(store, settings))
    return 0 if board.standings else NOT_SCORED if board.unscored else NoSamplesError.exit_code


async def _scan(store: SampleStore, environments: Sequence[str], since: float | None) -> Scan:
    await require_stored(store, environments=environments)
    return await store.scan(environments=environments or None, since=since, columns=list(reports.LEADERBOARD_COLUMNS))


def _show(board: reports.Leaderboard, html: Path | None) -> None:
    rows = reports.standing_rows(board)
    if not board.standings:
        console().print("There are no scored samples to compare.")
    print_rows(
        f"{counted(len(rows), 'model')}, means with intervals by task",
        rows,
        names=_TEXT,
        spare=_SPARE,
    )
    for note in reports.footnotes(board):
        console().print(safe_text(note), style="dim", highlight=False, markup=False)
    print_rows(
        f"differences from {board.against} on the same tasks",
        reports.versus_rows(board),
        names=_TEXT,
        spare=_SPARE_VERSUS,
    )
    print_rows("by environment", reports.cell_rows(board), names=_TEXT, spare=_SPARE_CELLS)
    problems = board.problems()
    for problem in problems[:_PROBLEMS]:
        console(stderr=True).print(f"not told: {problem}", highlight=False, markup=False)
    if len(problems) > _PROBLEMS:
        console(stderr=True).print(f"not told: {len(problems) - _PROBLEMS} more of the kind; `--json` has them all")
    if html is not None:
        console().print(str(html.resolve()), highlight=False, markup=False)
