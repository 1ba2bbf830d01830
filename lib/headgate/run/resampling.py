"""A campaign follows what was invalidated in its store: by its counts of 24 h, and by tasks to be taken again."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headgate.config import Settings
from headgate.core import Task
from headgate.core.audit import process_user
from headgate.core.errors import HeadgateError, StoreError
from headgate.environments import Environment, registry_of
from headgate.storage import RECOUNT, ControlOrder, Invalidated, Invalidation, Journal, Opening, SampleStore

if TYPE_CHECKING:
    from headgate.run.parts import Parts
    from headgate.run.plan import RunStore


async def follow_invalidation(
    settings: Settings, store: SampleStore, what: Invalidation, done: Invalidated, now: float
) -> int:
    """Have journals of campaigns count and open what the store says now; return how many tasks were opened.

    Runs that go on follow within seconds. Where a campaign has no journal here, its next run does the same from the
    store.

    Raises:
        JournalError: if a journal cannot be used.
    """
    if not done.mark or what.unscore:
        return 0
    return sum([
        await _follow(settings, store, campaign, what, done, now)
        for campaign in done.rows["campaign"].unique().sort()
        if Journal.is_there(settings.journal, campaign)
    ])  # fmt: skip


async def _follow(
    settings: Settings, store: SampleStore, campaign: str, what: Invalidation, done: Invalidated, now: float
) -> int:
    again = await store.to_resample(campaign)
    found: dict[str, Environment] = {}
    registry = registry_of(settings)
    for name in {environment for _, environment, _, _ in again}:
        with contextlib.suppress(HeadgateError):  # of a package that is not installed here, say: the run will know it
            found[name] = registry.environment(name)
    rows = done.rows.filter(done.rows["campaign"] == campaign)
    scored = rows.filter(rows["score"].is_not_null()).select("model", "environment", "finished_at")
    step = 1 if done.is_undo else -1
    with contextlib.closing(Journal(settings.journal, campaign)) as journal:
        journal.recount([(*row, step) for row in scored.iter_rows()])
        opened = sum(isinstance(one, Task) for one in journal.open(openings_of(again, found, now)))
    said = f"{rows.height} samples count {'again' if done.is_undo else 'no longer'}: {what.reason}"[:500]
    subject = (_only(rows["model"]), _only(rows["environment"]))
    with contextlib.closing(Journal(settings.journal, campaign)) as journal:  # nobody holds what was opened by now
        journal.steer(ControlOrder(RECOUNT, *subject, RECOUNT, reason=said), what.by or process_user(), now)
    return opened


def _only(names: Iterable[str]) -> str | None:
    """Return the one name that there is, None for several."""
    first, *others = set(names)
    return None if others else first


async def recounted(parts: Parts, store: RunStore, since: float) -> None:
    """Have a run that began at `since` count what its journal and its store say."""
    journal = parts.journal
    past = await journal.write(journal.journal.history, parts.now())
    counts: defaultdict[str, dict[str, Sequence[tuple[float, int]]]] = defaultdict(dict)
    for (model, environment), minutes in past.counts.items():
        counts[model][environment] = minutes
    for key, sampler in parts.samplers.items():
        sampler.recount(counts[key], parts.now())
    with contextlib.suppress(StoreError):  # the means of this run stay as they are until somebody invalidates again
        parts.pairs.leave_out(await store.invalid(parts.settings.campaign, since))


def openings_of(
    again: Sequence[tuple[str, str, int, str]], environments: Mapping[str, Environment], now: float
) -> list[Opening]:
    """Return what opens tasks (model, environment, sequence, stage) anew, of those environments that are there."""
    return [
        Opening(model, name, now, 0.0, environments[name].spec.data_length, sequence=sequence, stage=stage)
        for model, name, sequence, stage in again
        if name in environments
    ]
