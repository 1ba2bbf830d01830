"""The memory of a fake engine, by tag: what is released, what is really free, and what may be used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from headgate.simulation.engines.bell import Bell
from headgate.simulation.engines.plan import CUDA_GRAPH, KV_CACHE, WEIGHTS, EnginePlan


class Memory:
    """Memory by tag. Owned by one engine.

    `released` is the engine's own record (SGLang's `offload_tags`, vLLM's `sleeping_tags`). `free` is what a second
    process on the same device could take; it lags behind by `release_lag_s`, and stays empty without the flag that
    makes memory releasable. Invariant: `free` is a part of `released`.
    """

    def __init__(self, plan: EnginePlan, bell: Bell) -> None:
        self._plan = plan
        self._bell = bell
        self._lags: dict[str, asyncio.TimerHandle] = {}
        self.tags = frozenset((WEIGHTS, KV_CACHE, CUDA_GRAPH) if plan.api == "sglang" else (WEIGHTS, KV_CACHE))
        self.released: set[str] = set()
        self.free: set[str] = set()
        self.are_weights_lost = False
        """Whether the weights were thrown away (vLLM's level 2, SGLang without a backup) and not loaded since."""

    @property
    def is_releasable(self) -> bool:
        """Whether the engine was started with the flag without which nothing is freed."""
        return self._plan.has_memory_saver if self._plan.api == "sglang" else self._plan.has_sleep_mode

    @property
    def is_missing(self) -> bool:
        """Whether something that computing needs is not there."""
        return self.is_releasable and bool(self.released)

    async def release(self, tags: Iterable[str]) -> None:
        """Release the memory of `tags`; returns before it is free where the plan says so."""
        tags = tuple(tags)
        self.released.update(tags)
        if self._plan.api == "sglang" and WEIGHTS in tags and self.is_releasable:
            self.are_weights_lost |= not self._plan.has_weights_backup
        self._bell.ring()
        if self._plan.release_s:
            await asyncio.sleep(self._plan.release_s)
        for tag in tags:
            self._free_later(tag)

    async def take(self, tags: Iterable[str]) -> None:
        """Take the memory of `tags` again."""
        tags = tuple(tags)
        if WEIGHTS in tags and self._plan.resume_s:
            await asyncio.sleep(self._plan.resume_s)
        for tag in tags:
            if (lag := self._lags.pop(tag, None)) is not None:
                lag.cancel()
            self.free.discard(tag)
            self.released.discard(tag)
        self._bell.ring()

    def close(self) -> None:
        """Forget what would become free later."""
        for lag in self._lags.values():
            lag.cancel()
        self._lags.clear()

    def _free_later(self, tag: str) -> None:
        if not self.is_releasable or tag not in self.tags:
            return
        if not self._plan.release_lag_s:
            self._free(tag)
        elif tag not in self._lags:
            loop = asyncio.get_running_loop()
            self._lags[tag] = loop.call_later(self._plan.release_lag_s, self._free, tag)

    def _free(self, tag: str) -> None:
        self._lags.pop(tag, None)
        if tag in self.released:
            self.free.add(tag)
        self._bell.ring()
