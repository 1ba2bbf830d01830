"""How a campaign follows invalidations in its store: it corrects its 24 h counts and opens tasks to sample again."""

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
    """Bring campaigns' journals up to date with an invalidation in the store; return how many tasks were opened.

    Running campaigns follow within seconds. A campaign without a journal here does the same from the store in its
    next run.

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
        with contextlib.suppress(HeadgateError):  # e.g. its package is not installed here; the run will have it
            found[name] = registry.environment(name)
    rows = done.rows.filter(done.rows["campaign"] == campaign)
    scored = rows.filter(rows["score"].is_not_null()).select("model", "environment", "finished_at")
    step = 1 if done.is_undo else -1
    with contextlib.closing(Journal(settings.journal, campaign)) as journal:
        journal.recount([(*row, step) for row in scored.iter_rows()])
        opened = sum(isinstance(one, Task) for one in journal.open(openings_of(again, found, now)))
    said = f"{rows.height} samples count {'again' if done.is_undo else 'no longer'}: {what.reason}"[:500]
    subject = (_only(rows["model"]), _only(rows["environment"]))
    with contextlib.closing(Journal(settings.journal, campaign)) as journal:  # by now no process holds the opened tasks
        journal.steer(ControlOrder(RECOUNT, *subject, RECOUNT, reason=said), what.by or process_user(), now)
    return opened


def _only(names: Iterable[str]) -> str | None:
    """Return the only distinct name; None if there are several."""
    first, *others = set(names)
    return None if others else first


async def recounted(parts: Parts, store: RunStore, since: float) -> None:
    """Correct the counts of a run that began at `since` from its journal and its store."""
    journal = parts.journal
    past = await journal.write(journal.journal.history, parts.now())
    counts: defaultdict[str, dict[str, Sequence[tuple[float, int]]]] = defaultdict(dict)
    for (model, environment), minutes in past.counts.items():
        counts[model][environment] = minutes
    for key, sampler in parts.samplers.items():
        sampler.recount(counts[key], parts.now())
    with contextlib.suppress(StoreError):  # this run's means stay as they are until the next invalidation
        parts.pairs.leave_out(await store.invalid(parts.settings.campaign, since))


def openings_of(
    again: Sequence[tuple[str, str, int, str]], environments: Mapping[str, Environment], now: float
) -> list[Opening]:
    """Return the openings of tasks (model, environment, sequence, stage) whose environment is in `environments`."""
    return [
        Opening(model, name, now, 0.0, environments[name].spec.data_length, sequence=sequence, stage=stage)
        for model, name, sequence, stage in again
        if name in environments
    ]
