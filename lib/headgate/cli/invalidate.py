"""`headgate invalidate`: stored samples taken out of every count, and put back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from headgate import run as runs
from headgate import storage
from headgate.cli.options import SampleChoices
from headgate.cli.output import AsJson, counted, print_json, print_table, say
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
    if not (done.pairs or done.final or opened):
        say(f"0 samples {verb}: none that was chosen {'is invalid' if done.is_undo else 'counts'}")
        return
    print_table(
        f"{counted(done.samples, 'sample')} {verb}{marked}", ("model", "environment", "samples"), done.pairs, right=(2,)
    )
    if opened:
        say(f"{counted(opened, 'task')} to be taken again; a run of the campaign takes them.")
    if done.final:
        say(f"{counted(done.final, 'sample')} stay invalid: their tasks are taken again.")
