"""Shares an environment's samples among models by how many pairs each is expected to rank, if the settings ask."""

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
"""Time between reads of the store: at 100 samples a day, a pair gains two in that time."""

_ROWS_AT_ONCE: Final = 10_000
"""Stored rows processed before yielding to the event loop: a few milliseconds."""


class RankingAllotment:
    """Sets the share of its rate at which each model is sampled. Owned by the run.

    The samplers still decide what falls due and when; this class only adjusts their rates. It uses all samples that
    the store counts, whichever process took them, and reads them again at once when samples are invalidated. A model
    that joins keeps its plain rate until the next read.
    """

    def __init__(self, parts: Parts, store: RunStore) -> None:
        self._parts = parts
        self._store = store
        self._recounted = asyncio.Event()

    def recount(self) -> None:
        """Read the store again: samples were invalidated or restored."""
        self._recounted.set()

    async def keep(self) -> None:
        """Follow what the store counts, until cancelled; return at once if models keep their plain rates."""
        parts = self._parts
        while parts.settings.allocation == "ranking" and parts.provider is parts.local:
            self._recounted.clear()
            with contextlib.suppress(StoreError):  # the shares stay as they are until the next read
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
                    if model in parts.samplers:  # the model may have left in the meantime
                        parts.samplers[model].allot(float(share), now)
                parts.local.touch(models, now)
                parts.wake.set()
