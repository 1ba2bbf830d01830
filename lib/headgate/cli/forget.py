"""`headgate forget`: stored samples, or their conversations alone, deleted."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import asdict
from typing import Annotated, Final

from cyclopts import Parameter

from headgate import storage
from headgate.cli.options import SampleChoices
from headgate.cli.output import CHECK_FAILED, AsJson, counted, say, tell
from headgate.cli.stored import conditions_of, existing_store, tasks_where
from headgate.config import Settings
from headgate.core.errors import InvalidInputError

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
    what = f"{'conversations of ' if conversations else ''}{counted(done.samples, 'sample')}"
    size = f"{done.conversation_bytes:,} bytes of conversations in {counted(done.parts, 'part')}"
    document = asdict(done) | {"waiting": waiting, "dry_run": dry_run}
    tell(document, f"{'would delete' if dry_run else 'deleted'} {what}, {size}", as_json=as_json)
    still_there = [f"left out {each.path}: {each.reason}" for each in done.problems]
    still_there += [f"{counted(waiting, 'sample')} in the journal not looked at"] if waiting else []
    for line in still_there:
        say(line, stderr=True)
    return CHECK_FAILED if still_there else 0


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
