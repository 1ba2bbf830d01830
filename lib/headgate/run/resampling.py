"""A campaign follows what was invalidated in its store: by its counts of 24 h, and by tasks to be taken again."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from headgate.config import Settings
from headgate.core import Task
from headgate.core.errors import HeadgateError
from headgate.environments import Environment, registry_of
from headgate.storage import Invalidated, Journal, Opening, SampleStore


async def follow_invalidation(settings: Settings, store: SampleStore, done: Invalidated, now: float) -> int:
    """Have the campaign's journal count and open what the store says now; return how many tasks it opened.

    A run of the campaign that goes on takes these within its `status_interval_s`. Where there is no journal here,
    the next run does the same from the store.

    Raises:
        JournalError: if the journal cannot be used.
    """
    if not done.mark or not Journal.is_there(settings.journal, settings.campaign):
        return 0
    again = await store.to_resample(settings.campaign)
    found: dict[str, Environment] = {}
    registry = registry_of(settings)
    for name in {environment for _, environment, _, _ in again}:
        with contextlib.suppress(HeadgateError):  # of a package that is not installed here, say: the run will know it
            found[name] = registry.environment(name)
    rows = done.rows.filter(done.rows["campaign"] == settings.campaign, done.rows["score"].is_not_null())
    step = 1 if done.is_undo else -1
    counts = [(m, e, at, step) for m, e, at in rows.select("model", "environment", "finished_at").iter_rows()]
    with contextlib.closing(Journal(settings.journal, settings.campaign)) as journal:
        journal.recount(counts)
        return sum(isinstance(one, Task) for one in journal.open(openings_of(again, found, now)))


def openings_of(
    again: Sequence[tuple[str, str, int, str]], environments: Mapping[str, Environment], now: float
) -> list[Opening]:
    """Return what opens tasks (model, environment, sequence, stage) anew, of those environments that are there."""
    return [
        Opening(model, name, now, 0.0, environments[name].spec.data_length, sequence=sequence, stage=stage)
        for model, name, sequence, stage in again
        if name in environments
    ]
