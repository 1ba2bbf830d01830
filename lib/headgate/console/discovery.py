"""Watches every run whose address is in a journal."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from typing import Final

from headgate.config import Settings
from headgate.console.asking import LEFT, RunSource
from headgate.console.sources import Asked, Source, Sources
from headgate.storage import JournalPlace, ServedRun, runs_to_ask, served_runs
from headgate.telemetry import MonitorClient

KEPT_S: Final = 12 * 3_600.0
"""Seconds for which an ended run is shown, one shift, unless its campaign runs again sooner."""


class JournalSource(Source):
    """The journals at a place: every run whose address is there is one of `sources` while it is alive."""

    def __init__(self, place: JournalPlace, settings: Settings, sources: Sources) -> None:
        super().__init__("journal", str(place), self._state)
        self._place = place
        self._settings = settings
        self._sources = sources
        self._replaced = set[ServedRun]()  # lost runs whose environments later runs took over

    def _found(self) -> dict[ServedRun, RunSource]:
        runs = [source for source in self._sources.of("run") if isinstance(source, RunSource)]
        return {source.run: source for source in runs if source.run is not None and source.place is self._place}

    async def _state(self) -> Asked:
        told, unreadable = await asyncio.to_thread(served_runs, self._place)
        asked, refused = runs_to_ask(told, self._settings)
        found = self._found()
        for run, address in asked.items():
            source = found.pop(run, None)
            if source is None:
                await self._watch(run, address)
            elif source.left is not None:  # it was taken for dead while the database was away
                source.left, source.ended_by = None, ""
        live = [*asked, *refused]
        for run, source in found.items():
            await self._follow_end(run, source, live, told.get(run, math.inf))
        died = {run: died_at for run, died_at in told.items() if time.time() - KEPT_S < died_at < math.inf}
        self._replaced = {
            run for run, at in died.items()
            if run in self._replaced or self._is_replaced(run, run.environments, at, [*told])
        }  # fmt: skip
        known = self._found().keys() | self._replaced
        lost = [run._asdict() | {"died_at": at} for run, at in died.items() if run not in known]
        shown = [{"campaign": run.campaign, "address": run.address, "why": why} for run, why in refused.items()]
        hidden = {str(path): why for path, why in unreadable.items()}
        return {"runs": len(live), "refused": shown, "unreadable": hidden, "lost": lost}, {}, len(told)

    async def _watch(self, run: ServedRun, address: str) -> None:
        """Watch a live run, in place of an earlier one that had its address."""
        known = self._sources.get("run", address)
        if isinstance(known, RunSource) and (known.run is None or known.run.started_at >= run.started_at):
            return  # the operator named it, or it or a later one is found in another journal
        monitor = await asyncio.to_thread(MonitorClient, self._settings, address, run.run_id)  # reads certificates
        if self._sources.get("run", address) is not known:
            await monitor.close()  # another journal has found one meanwhile
            return
        self._sources.add(RunSource(monitor, self._place, run))
        if isinstance(known, RunSource):
            await self._forget(known)

    async def _follow_end(self, run: ServedRun, source: RunSource, live: Sequence[ServedRun], died_at: float) -> None:
        """Record how a run ended, and forget it in time; one that died, once others sample its environments."""
        ended_at = max(min(source.down_since or time.time(), died_at), source.seen_at or 0.0)
        if source.down_since is not None:
            source.down_since = ended_at
        if source.left is None:
            source.left = LEFT if died_at == math.inf else ""
            source.ended_by = source.ended_by or source.left
        is_replaced = self._is_replaced(run, () if source.left else source.samples, ended_at, live)
        if source.seen_at is None or time.time() - ended_at > KEPT_S or is_replaced:
            await self._forget(source)

    def _is_replaced(self, run: ServedRun, samples: Iterable[str], at: float, live: Sequence[ServedRun]) -> bool:
        """Return whether runs of the same campaign that started after `at` sample all that this one did."""
        newer, known = [one for one in live if one.campaign == run.campaign and one.started_at > at], self._found()
        sampled = {name for one in newer for name in (one in known and known[one].samples) or one.environments}
        return bool(newer) and sampled.issuperset(samples)

    async def _forget(self, source: RunSource) -> None:
        await self._sources.remove(source)
        await source.monitor.close()

    async def close(self) -> None:
        """Stop watching the runs."""
        for source in self._found().values():
            await self._forget(source)
