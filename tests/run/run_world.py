"""A campaign in virtual time, with everything that can be scripted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.config import Settings
from headgate.core import Model, Sample
from headgate.core.events import Event
from headgate.run import Run, RunPlan, RunResult
from headgate.sampling import StaticRoster
from headgate.simulation import (
    LoopClock,
    MemoryStore,
    Script,
    ScriptedChats,
    ServiceTime,
    free_environments,
    never_fails,
    run_virtual,
)

EIGHT = {
    "affine:sat": 100.0,
    "affine:abd": 100.0,
    "affine:ded": 100.0,
    "agentgym:webshop": 100.0,
    "agentgym:textcraft": 100.0,
    "agentgym:babyai": 120.0,
    "agentgym:alfworld": 80.0,
    "agentgym:sciworld": 80.0,
}


def models(count: int, **fields: Any) -> list[Model]:
    return [Model(f"m{i:03d}", uid=i, base_url="http://127.0.0.1:1/v1", **fields) for i in range(count)]


@dataclass
class World:
    """One journal folder, one store and one clock that outlive the campaigns in them."""

    folder: Path
    store: MemoryStore = field(default_factory=MemoryStore)
    events: list[Event] = field(default_factory=list)
    chats: ScriptedChats | None = None
    campaign: Run | None = None

    def settings(self, **changes: Any) -> Settings:
        return Settings(journal=self.folder, batch_flush_interval=changes.pop("batch_flush_interval", 1), **changes)

    def run(
        self,
        roster: Iterable[Model] | Any,
        rates: dict[str, float],
        *,
        start_s: float = 0.0,
        duration_s: float | None = 3_600.0,
        service: ServiceTime | None = None,
        script: Script = never_fails,
        during: Callable[[Run, LoopClock], Any] | None = None,
        settings: dict[str, Any] | None = None,
        plan: dict[str, Any] | None = None,
    ) -> RunResult:
        """Run a campaign whose clock starts `start_s` after the epoch of simulations."""

        async def main() -> RunResult:
            import asyncio

            clock = LoopClock(1_767_225_600.0 + start_s)
            self.chats = ScriptedChats(clock, service=service, script=script)
            source = roster if hasattr(roster, "load") else StaticRoster(roster)
            made = RunPlan(
                self.settings(**(settings or {})),
                source,
                free_environments(rates),
                self.store,
                self.chats,
                duration_s=duration_s,
                **(plan or {}),
            )
            self.campaign = Run(made, clock=clock, emit=self.events.append, inline=True)
            if during is None:
                return await self.campaign.run()
            async with asyncio.TaskGroup() as group:
                beside = group.create_task(during(self.campaign, clock))
                result = await self.campaign.run()
                beside.cancel()
            return result

        return run_virtual(main())

    def counts(self) -> dict[str, Counter[str]]:
        """Stored samples by environment and model."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for sample in self.store.samples:
            found[sample.environment][sample.model] += 1
        return found

    def sequences(self) -> dict[tuple[str, str], list[int]]:
        """Stored sequence numbers by model and environment, sorted."""
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        for sample in self.store.samples:
            found[sample.model, sample.environment].append(sample.sequence)
        return {pair: sorted(numbers) for pair, numbers in found.items()}

    def of(self, kind: type[Event]) -> list[Any]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def samples_of(self, model: str) -> list[Sample]:
        return [sample for sample in self.store.samples if sample.model == model]
