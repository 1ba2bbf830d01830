"""A service over a cluster in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headgate.core import Clock
from headgate.core.events import Event
from headgate.placement.checks import checked_pool, checked_request
from headgate.placement.outcomes import LedgerSettings
from headgate.placement.pool import Pool
from headgate.placement.rules import PreemptionRules
from headgate.placement.service.journal import Journal
from headgate.placement.service.protocol import Submission
from headgate.placement.service.service import PlacementService
from headgate.simulation import LoopClock, run_virtual
from tests.placement.service.fake_executor import FakeCluster, FakeExecutor

RULES = PreemptionRules(
    label_rules={"role": {"train": ("reward", "rollout"), "reward": ("rollout",)}}, min_runtime_s=0.0, budget_share=1.0
)


@dataclass(slots=True)
class Desk:
    """A service and what surrounds it."""

    service: PlacementService
    executor: FakeExecutor
    events: list[Event] = field(default_factory=list)

    @property
    def cluster(self) -> FakeCluster:
        return self.executor.cluster

    def stage(self, request_id: str) -> str:
        return self.service.view(request_id).stage.value

    async def settle(self, seconds: float = 0.5) -> None:
        """Let what was decided happen."""
        await asyncio.sleep(seconds)
        self.service.ledger.validate()


Opens = Callable[..., AbstractAsyncContextManager[Desk]]


@pytest.fixture
def opens(tmp_path: Path) -> Opens:
    """Return what opens a service on a cluster; the same journal each time."""

    @asynccontextmanager
    async def opened(
        cluster: FakeCluster | None = None, clock: Clock | None = None, **settings: Any
    ) -> AsyncIterator[Desk]:
        executor = FakeExecutor(cluster or FakeCluster())
        events: list[Event] = []
        service = PlacementService(
            Journal(tmp_path / "journal.sqlite").open(),
            executor,
            clock or LoopClock(),
            settings=LedgerSettings(**{"driver_lease_s": 1e6} | settings),
            rules=RULES,
            emit=events.append,
        )
        await service.start()
        try:
            yield Desk(service, executor, events)
        finally:
            await service.close()

    return opened


def pool(name: str = "rlhf", cpu: float = 6, **more: Any) -> Pool:
    return checked_pool(name=name, quota={"cpu": cpu}, **more)


def work(request_id: str, cpu: float = 2, payload: bytes = b"work", kind: Any = "hosted", **more: Any) -> Submission:
    request = checked_request(request_id=request_id, pool=more.pop("pool", "rlhf"), resources={"cpu": cpu}, **more)
    return Submission(request, kind, payload)


def virtual(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(main())
