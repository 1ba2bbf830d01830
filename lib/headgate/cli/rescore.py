"""`headgate rescore`: stored conversations scored again, by a new version of an environment or by a judge."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from headgate import run as runs
from headgate import storage
from headgate.cli.invalidate import By, DryRun, Reason, Tasks, Where, invalidated
from headgate.cli.live import progress_bar
from headgate.cli.options import RescoreChoices
from headgate.cli.output import CHECK_FAILED, AsJson, counted, print_json, print_table, say, tell
from headgate.cli.run import stop_on_signals
from headgate.cli.stored import conditions_of, existing_store, tasks_where
from headgate.config import Settings
from headgate.core.errors import InvalidInputError

_COLUMNS = ("model", "environment", "samples", "changed", "mean before", "mean after")


def rescore(
    choices: RescoreChoices | None = None,
    *,
    reason: Reason,
    where: Where = "",
    task: Tasks = (),
    scorer: Annotated[
        str, Parameter(help="Name of the new scores. Default: the judge, or the versions of the packages.")
    ] = "",
    undo: Annotated[bool, Parameter(negative="", help="Count the scores that samples were stored with again.")] = False,
    by: By = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Score stored conversations again, and show what changed. Only a judge is asked, where one is needed.

    The environment replays each conversation with the stored replies. Both scores are kept; the newest counts, and
    `--original` of other commands shows the first. Samples that have a score by this scorer are skipped, so the same
    command continues after Ctrl-C or a kill. With `--rubric` a judge scores the answers in any environment.

    Exit status 4 when samples could not be scored, or when it ended early.
    """
    given = choices or RescoreChoices()
    settings, chosen = given.load().settings, given.chosen()
    if chosen == storage.Chosen() and not (where or task):
        step = "Name them, by --environment, --model, --since, --where or --task."
        raise InvalidInputError("rescore was not told which samples", next_step=step)
    conditions = conditions_of(where, task)
    if undo:
        what = storage.Invalidation(chosen, reason, by, unscore=True)
        undone, _ = asyncio.run(invalidated(settings, what, conditions, dry_run=dry_run))
        would = "would have" if dry_run else "have"
        said = f"{counted(undone.samples, 'sample')} {would} the score again that was stored with them."
        document = {"mark": undone.mark, "samples": undone.samples, "dry_run": dry_run}
        return tell(document, said, as_json=as_json)
    order = runs.Rescoring(chosen, reason, by, rubric=runs.rubric_for(settings), scorer=scorer)
    is_live = sys.stdout.isatty() and not as_json
    done = asyncio.run(_rescored(settings, order, conditions, dry_run=dry_run, is_live=is_live))
    if as_json:
        print_json(_document(done) | {"dry_run": dry_run})
    else:
        _show(done, dry_run=dry_run)
    return CHECK_FAILED if done.left_out or done.stopped_by else 0


async def _rescored(
    settings: Settings, order: runs.Rescoring, conditions: Sequence[str], *, dry_run: bool, is_live: bool
) -> runs.Rescored:
    store, stop = existing_store(settings), asyncio.Event()
    stop_on_signals(stop)
    order.chosen.require_known(await store.visible())
    order = replace(order, task_ids=await tasks_where(store, conditions, view="samples"))
    with progress_bar("samples", is_shown=is_live, foretells=True) as show:
        return await runs.rescore(settings, store, order, dry_run=dry_run, stop=stop, on_progress=show)


def _document(done: runs.Rescored) -> dict[str, object]:
    return {
        "marks": done.marks,
        "samples": done.samples,
        "known": done.known,
        "pairs": [dict(zip((name.replace(" ", "_") for name in _COLUMNS), row, strict=True)) for row in _rows(done)],
        "left_out": dict(done.left_out),
        "stopped_by": done.stopped_by,
    }


def _rows(done: runs.Rescored) -> list[tuple[object, ...]]:
    return [
        (pair.model, pair.environment, pair.samples, pair.changed, pair.mean_before, pair.mean_after)
        for _, pair in sorted(done.pairs.items())
        if pair.samples
    ]


def _show(done: runs.Rescored, *, dry_run: bool) -> None:
    marked = f", mark {', '.join(done.marks)}" if done.marks else ""
    verb = "would be scored again" if dry_run else f"scored again{marked}"
    shown = 3 if dry_run else len(_COLUMNS)
    rows = [row[:shown] for row in _rows(done)]
    print_table(f"{counted(done.samples, 'sample')} {verb}", _COLUMNS[:shown], rows, right=range(2, shown))
    if done.known:
        say(f"{counted(done.known, 'sample')} had a score by this scorer already; --scorer names another one.")
    for why, count in done.left_out.most_common():
        say(f"{counted(count, 'sample')} not scored: {why}", stderr=True)
    if done.stopped_by:
        say(f"Ended early: {done.stopped_by}. The same command goes on with the others.", stderr=True)
