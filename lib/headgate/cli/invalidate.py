"""`headgate invalidate` and `forget`: stored samples taken out of every count, put back, or deleted."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Final

from cyclopts import Parameter

from headgate import run as runs
from headgate import storage
from headgate.cli.options import SampleChoices
from headgate.cli.output import AsJson, console, counted, print_json, print_table, say
from headgate.cli.stored import conditions_of, existing_store, tasks_where
from headgate.config import Settings
from headgate.core.errors import InvalidInputError

Tasks = Annotated[
    tuple[str, ...], Parameter(negative="", help="Only the samples of these tasks, by their ids; comma separated.")
]
Reason = Annotated[str, Parameter(help="Why, in a sentence, for whoever looks at these samples later.")]
By = Annotated[str, Parameter(help="Who does it. Default: the user of this process.")]
DryRun = Annotated[bool, Parameter(negative="", help="Change nothing; say how many samples it concerns.")]
Where = Annotated[str, Parameter(help="Only samples for which this SQL holds, as in `headgate query`.")]


def invalidate(
    choices: SampleChoices | None = None,
    *,
    reason: Reason,
    where: Where = "",
    task: Tasks = (),
    mark: Annotated[str, Parameter(help="Only samples of this mark, by the id that the command printed.")] = "",
    resample: Annotated[bool, Parameter(negative="", help="Take their tasks again; this cannot be undone.")] = False,
    undo: Annotated[bool, Parameter(negative="", help="Count invalidated samples again.")] = False,
    by: By = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Exclude stored samples from every count; they are kept, with a mark that says who did it, when and why.

    Repeating it changes nothing. A running campaign follows within seconds. With `--resample` it takes their tasks
    again, or when it starts. Exit status 4 when something could not be read.
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
        _show(done, opened, dry_run=dry_run)
    for problem in done.problems:
        say(f"left out {problem.path}: {problem.reason}", stderr=True)
    return 4 if done.problems else 0


async def invalidated(
    settings: Settings, what: storage.Invalidation, conditions: Sequence[str], *, dry_run: bool
) -> tuple[storage.Invalidated, int]:
    """Mark the samples that options choose; return what was marked, and how many tasks were opened again."""
    store, now = existing_store(settings), time.time()
    what.chosen.require_known(await store.visible())
    # What was invalidated is in `stored` alone.
    what = replace(what, task_ids=await tasks_where(store, conditions, view="stored" if what.undo else "samples"))
    done = await store.invalidate(what, now, dry_run=dry_run)
    return done, await runs.follow_invalidation(settings, store, what, done, now)


def _show(done: storage.Invalidated, opened: int, *, dry_run: bool) -> None:
    verb = f"{'would count' if dry_run else 'count'} {'again' if done.is_undo else 'no longer'}"
    marked = f", mark {done.mark}" if done.mark else ""
    print_table(
        f"{counted(done.samples, 'sample')} {verb}{marked}", ("model", "environment", "samples"), done.pairs, right=(2,)
    )
    if opened:
        say(f"{counted(opened, 'task')} to be taken again; a run of the campaign takes them.")
    if done.final:
        say(f"{counted(done.final, 'sample')} stay invalid: their tasks are taken again.")


_ROWS_AT_ONCE: Final = 10_000


def forget(
    choices: SampleChoices | None = None,
    *,
    where: Annotated[str, Parameter(help="Only samples for which this SQL holds, as in `headgate query`.")] = "",
    conversations: Annotated[bool, Parameter(negative="", help="Delete only conversations; keep the scores.")] = False,
    dry_run: Annotated[bool, Parameter(negative="", help="Delete nothing; say how much would be deleted.")] = False,
    as_json: AsJson = False,
) -> int:
    """Delete stored samples, or only their conversations, at once and for good; `--until 90d` selects older ones.

    Samples that wait in the campaign's journal are stored first, and the journal is scrubbed. Exit status 4 when
    something is left, because it cannot be read or waits in the journal of a running campaign.
    """
    given = choices or SampleChoices()
    settings, chosen = given.load().settings, given.chosen()
    if chosen == storage.Chosen() and not where:
        step = "Name them, by --until, --model, --environment or --where."
        raise InvalidInputError("forget was not told which samples", next_step=step)
    store = existing_store(settings)
    waiting = asyncio.run(_stored_first(store, settings, dry_run=dry_run))
    done = asyncio.run(_forgotten(store, chosen, where, conversations=conversations, dry_run=dry_run))
    if as_json:
        print_json(asdict(done) | {"waiting": waiting, "dry_run": dry_run})
    else:
        what = f"{'conversations of ' if conversations else ''}{counted(done.samples, 'sample')}"
        size = f"{done.conversation_bytes:,} bytes of conversations in {counted(done.parts, 'part')}"
        console().print(f"{'would delete' if dry_run else 'deleted'} {what}, {size}", highlight=False)
    still_there = [f"left out {each.path}: {each.reason}" for each in done.problems]
    still_there += [f"{counted(waiting, 'sample')} in the journal not looked at"] if waiting else []
    for line in still_there:
        say(line, stderr=True)
    return 4 if still_there else 0


async def _stored_first(store: storage.SampleStore, settings: Settings, *, dry_run: bool) -> int:
    """Store what waits in the journal and belongs to no living process; return how many samples are left there."""
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
    task_ids, now = await tasks_where(store, conditions_of(where), view="stored"), time.time()
    return await store.forget(chosen, now, task_ids=task_ids, conversations_only=conversations, dry_run=dry_run)
