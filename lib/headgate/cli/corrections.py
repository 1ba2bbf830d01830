"""`headgate invalidate|rescore|forget`: exclude stored samples from every count, score them again, or delete them."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Final

from cyclopts import Parameter

from headgate import run as runs
from headgate import storage
from headgate.cli.live import progress_bar
from headgate.cli.options import RescoreChoices, SampleChoices
from headgate.cli.output import (
    CHECK_FAILED,
    INTERRUPTED,
    AsJson,
    confirmed,
    counted,
    print_json,
    print_table,
    say,
    tell,
)
from headgate.cli.run import stop_on_signals
from headgate.cli.stored import conditions_of, existing_store, tasks_where, warn_of
from headgate.config import Settings
from headgate.core.errors import InvalidInputError

Tasks = Annotated[tuple[str, ...], Parameter(help="Only the samples of these tasks, by their ids; comma separated.")]
Reason = Annotated[str, Parameter(help="Reason, in a sentence; kept with the samples' mark.")]
By = Annotated[str, Parameter(help="Who makes the change. Default: the user of this process.")]
DryRun = Annotated[bool, Parameter(help="Change nothing; say how many samples are affected.")]
Where = Annotated[str, Parameter(help="Only samples for which this SQL condition holds, as in `headgate query`.")]


def invalidate(
    choices: SampleChoices | None = None,
    *,
    reason: Reason,
    where: Where = "",
    task: Tasks = (),
    mark: Annotated[str, Parameter(help="Only samples with this mark, by the id that the command printed.")] = "",
    resample: Annotated[bool, Parameter(help="Sample their tasks again; this cannot be undone.")] = False,
    undo: Annotated[bool, Parameter(help="Count invalidated samples again.")] = False,
    by: By = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Exclude stored samples from every count; they are kept, with a mark that says who did it, when and why.

    Repeating it changes nothing. A running campaign follows within seconds. With `--resample` it samples their tasks
    again; one that is not running does so when it starts. Exit status 4 when something could not be read.
    """
    given = choices or SampleChoices()
    settings, chosen = given.load().settings, given.chosen()
    if chosen == storage.Chosen() and not (where or task or mark):
        step = "Name them, by --model, --environment, --since, --where, --task or --mark."
        raise InvalidInputError("invalidate was not told which samples", next_step=step)
    what = storage.Invalidation(chosen, reason, by, resample=resample, undo=undo)
    conditions = conditions_of(where, task, mark)
    done, opened = asyncio.run(invalidated(settings, what, conditions, dry_run=dry_run))
    if as_json:
        pairs = [{"model": model, "environment": name, "samples": n} for model, name, n in done.pairs]
        print_json({
            "mark": done.mark, "samples": done.samples, "pairs": pairs, "final": done.final, "opened": opened,
            "dry_run": dry_run,
        })  # fmt: skip
    else:
        _show_invalidated(done, opened, dry_run=dry_run)
    warn_of(done.problems)
    return CHECK_FAILED if done.problems else 0


async def invalidated(
    settings: Settings, what: storage.Invalidation, conditions: Sequence[str], *, dry_run: bool
) -> tuple[storage.Invalidated, int]:
    """Mark the samples that options choose; return what was marked, and how many tasks were opened again."""
    store, now = existing_store(settings), time.time()
    what.chosen.require_known(await store.visible())
    view = storage.EVERY_SAMPLE if what.undo else "samples"
    what = replace(what, task_ids=await tasks_where(store, conditions, view=view))
    done = await store.invalidate(what, now, dry_run=dry_run)
    return done, await runs.follow_invalidation(settings, store, what, done, now)


def _show_invalidated(done: storage.Invalidated, opened: int, *, dry_run: bool) -> None:
    verb = f"{'would count' if dry_run else 'count'} {'again' if done.is_undo else 'no longer'}"
    marked = f", mark {done.mark}" if done.mark else ""
    if not (done.pairs or done.final or opened):
        say(f"0 samples {verb}: none of those chosen {'is invalid' if done.is_undo else 'counts'}")
        return
    if done.pairs:
        title, columns = f"{counted(done.samples, 'sample')} {verb}{marked}", ("model", "environment", "samples")
        print_table(title, columns, done.pairs, right=(2,))
    if opened:
        say(f"{counted(opened, 'task')} will be sampled again by a run of the campaign.")
    if done.final:
        say(
            f"{counted(done.final, 'sample')} left invalid: another sample of the task counts, or is still to be taken."
        )


_ROWS_AT_ONCE: Final = 10_000


def forget(
    choices: SampleChoices | None = None,
    *,
    where: Where = "",
    conversations: Annotated[bool, Parameter(help="Delete only conversations; keep the scores.")] = False,
    yes: Annotated[bool, Parameter(help="Delete without asking; needed where there is no terminal.")] = False,
    dry_run: Annotated[bool, Parameter(help="Delete nothing; say how much would be deleted.")] = False,
    as_json: AsJson = False,
) -> int:
    """Delete stored samples, or only their conversations, for good; `--until 90d` selects older ones.

    On a terminal it says what would be deleted, and asks; elsewhere it deletes nothing without `--yes`. Samples that
    wait in the campaign's journal are stored first, and the journal is scrubbed. Exit status 4 when something is left,
    because it cannot be read or waits in the journal of a running campaign.
    """
    given = choices or SampleChoices()
    settings, chosen = given.load().settings, given.chosen()
    if chosen == storage.Chosen() and not where:
        step = "Name them, by --until, --model, --environment or --where."
        raise InvalidInputError("forget was not told which samples", next_step=step)
    store = existing_store(settings)

    def forgotten(*, dry_run: bool) -> tuple[storage.Forgotten, int, str]:
        waiting = asyncio.run(_stored_first(store, settings, dry_run=dry_run))
        done = asyncio.run(_forgotten(store, chosen, where, conversations=conversations, dry_run=dry_run))
        what = f"{'conversations of ' if conversations else ''}{counted(done.samples, 'sample')}"
        size = f"{done.conversation_bytes:,} bytes of conversations in {counted(done.parts, 'part')}"
        unread = f", and matches among {counted(waiting, 'sample')} in the journal" if dry_run and waiting else ""
        return done, waiting, f"{'would delete' if dry_run else 'deleted'} {what}, {size}{unread}"

    if not (yes or dry_run or confirmed(f"forget {forgotten(dry_run=True)[2]}")):
        return INTERRUPTED
    done, waiting, said = forgotten(dry_run=dry_run)
    tell(asdict(done) | {"waiting": waiting, "dry_run": dry_run}, said, as_json=as_json)
    warn_of(done.problems)
    if waiting:
        say(f"{counted(waiting, 'sample')} in the journal not looked at", stderr=True)
    return CHECK_FAILED if done.problems or waiting else 0


async def _stored_first(store: storage.SampleStore, settings: Settings, *, dry_run: bool) -> int:
    """Store the journal's samples that belong to no live process; return how many are left there."""
    if not storage.Journal.is_there(settings.journal, settings.campaign):
        return 0
    with contextlib.closing(storage.Journal(settings.journal, settings.campaign)) as journal:
        if dry_run:
            return journal.spool_count()
        journal.adopt((), ())
        while (batch := journal.next_batch(_ROWS_AT_ONCE)) is not None:
            await store.put_batch(batch.batch_id, batch.samples)
            journal.batch_stored(batch.batch_id)
        journal.scrub()
        return journal.spool_count()


async def _forgotten(
    store: storage.SampleStore, chosen: storage.Chosen, where: str, *, conversations: bool, dry_run: bool
) -> storage.Forgotten:
    chosen.require_known(await store.visible())
    task_ids, now = await tasks_where(store, conditions_of(where), view=storage.EVERY_SAMPLE), time.time()
    return await store.forget(chosen, now, task_ids=task_ids, conversations_only=conversations, dry_run=dry_run)


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
    undo: Annotated[bool, Parameter(help="Go back to the scores that samples were stored with.")] = False,
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
        said = f"{counted(undone.samples, 'sample')} {would} their original score again."
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
        (*names, pair.samples, pair.changed, pair.mean_before, pair.mean_after)
        for names, pair in sorted(done.pairs.items())
        if pair.samples
    ]


def _show(done: runs.Rescored, *, dry_run: bool) -> None:
    marked = f", mark {', '.join(done.marks)}" if done.marks else ""
    verb = "would be scored again" if dry_run else f"scored again{marked}"
    shown = 3 if dry_run else len(_COLUMNS)
    rows = [row[:shown] for row in _rows(done)]
    print_table(f"{counted(done.samples, 'sample')} {verb}", _COLUMNS[:shown], rows, right=range(2, shown))
    if done.known:
        say(f"{counted(done.known, 'sample')} already had a score by this scorer; --scorer names another one.")
    for why, count in done.left_out.most_common():
        say(f"{counted(count, 'sample')} not scored: {why}", stderr=True)
    if done.stopped_by:
        say(f"Ended early: {done.stopped_by}. The same command continues with the rest.", stderr=True)
