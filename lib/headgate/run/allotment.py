"""Shares an environment's samples among models by what they are expected to rank, where the settings ask for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from typing import Final

import numpy as np

from headgate.core import DAY_S, until_set
from headgate.core.errors import StoreError
from headgate.run.parts import Parts
from headgate.run.plan import RunStore
from headgate.sampling import ranking_shares

EVERY_S: Final = 1_800.0
"""Between two looks at the store: at 100 samples a day, a pair has two new ones in that time."""

_ROWS_AT_ONCE: Final = 10_000
"""Of the store, before others have their turn: some milliseconds."""


class RankingAllotment:
    """Sets the share of its rate at which each model is sampled. Owned by the run.

    What falls due, and when, stays with the samplers; this moves the rates at which they do. It goes by what the store
    counts, whichever process took it, and looks again at once when samples were invalidated. A model that joins has its
    plain rate until the next look.
    """

    def __init__(self, parts: Parts, store: RunStore) -> None:
        self._parts = parts
        self._store = store
        self._recounted = asyncio.Event()

    def recount(self) -> None:
        """Look at the store again: samples of it count no longer, or again."""
        self._recounted.set()

    async def keep(self) -> None:
        """Follow what the store counts, until cancelled; does nothing where models have their plain rates."""
        parts = self._parts
        while parts.settings.allocation == "ranking" and parts.provider is parts.local:
            self._recounted.clear()
            with contextlib.suppress(StoreError):  # the shares stay as they are until the next look
                await self._allot()
            await until_set(self._recounted, EVERY_S)

    async def _allot(self) -> None:
        parts, settings = self._parts, self._parts.settings
        models = list(parts.samplers)
        scores: dict[str, dict[str, dict[int, float]]] = {
            model: {name: {} for name in parts.environments} for model in models
        }
        stored = await self._store.task_scores(settings.campaign)
        for start in range(0, len(stored), _ROWS_AT_ONCE):
            for model, environment, sequence, score in stored[start : start + _ROWS_AT_ONCE]:
                if model in scores and environment in parts.environments:
                    scores[model][environment].setdefault(sequence, score)
            await asyncio.sleep(0)
        tokens: defaultdict[str, list[int]] = defaultdict(list)
        for _, model, _, prompt, completion, *_ in await self._store.spent(parts.now() - DAY_S):
            tokens[model].append(prompt + completion)
        known = [np.mean(tokens[model]) for model in models if tokens[model]]
        usual = float(np.mean(known)) if known else 1.0
        looks = ranking_shares(
            list(scores.values()),
            [max(1.0, float(np.mean(tokens[model]))) if tokens[model] else max(1.0, usual) for model in models],
            indifference=settings.indifference,
            uniform=settings.allocation_uniform,
            most=settings.low_sample_multiplier,
        )
        for shares in looks:
            await asyncio.sleep(0)
            if shares is not None:
                now = parts.now()
                for model, share in zip(models, shares, strict=True):
                    if model in parts.samplers:  # it may have left meanwhile
                        parts.samplers[model].allot(float(share), now)
                parts.local.touch(models, now)
                parts.wake.set()
