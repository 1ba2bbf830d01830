"""How a campaign takes up its past: from its journal, or from the store when the journal is new."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.campaign.plan import CampaignStore
from headgate.core import Model
from headgate.sampling import ModelSampler, PairHistory, SamplingRules, interval_s
from headgate.storage import JournalHistory, JournalThread


async def restored(
    journal: JournalThread, store: CampaignStore, now: float, rates: Mapping[str, float] | None = None
) -> None:
    """Have the journal's times be possible, and fill a new one with what the store knows: no restart boosts or bursts.

    Raises:
        ClockDisagreesError: if another process of the journal goes by a clock that is ahead of this one.
        StoreError: if the journal is new and the store's history cannot be read.
    """
    # The first sample of a pair takes a due time at most half an interval ahead.
    await journal.reconcile(now, {environment: interval_s(rate) / 2 for environment, rate in (rates or {}).items()})
    if not await journal.call(journal.journal.is_new):
        return
    history = await store.history(now)
    await journal.write(
        journal.journal.restore,
        [(p.model, p.environment, p.next_sequence, p.last_finished_at) for p in history.pairs.values()],
        [
            (p.model, p.environment, minute * 60.0, samples)
            for p in history.pairs.values()
            for minute, samples in p.scored_by_minute.items()
        ],
        now,
    )


def sampler_of(
    model: Model, rates: Mapping[str, float], rules: SamplingRules, past: JournalHistory, *, ordinal: int, now: float
) -> ModelSampler:
    """Return the sampler of a model, with its totals, due times and pause as they were."""
    history = {
        environment: PairHistory(
            counts=tuple(past.counts.get((model.key, environment), ())),
            last_due=past.pairs[model.key, environment].last_due if (model.key, environment) in past.pairs else None,
        )
        for environment in {*rates, *(e for m, e in past.counts if m == model.key)}
    }
    sampler = ModelSampler(model, rates, rules, ordinal=ordinal, now=now, history=history)
    if model.key in past.pauses:
        level, until = past.pauses[model.key]
        sampler.pause.restore(level, until, now)
    return sampler
