"""A service over engines in memory, in virtual time, with a policy that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from headgate.core.events import Event
from headgate.elastic.demand import Demand, Desired
from headgate.elastic.engines.engine import EngineAnswer, Outgoing
from headgate.elastic.service import ElasticService, WorkerLeases
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import WorkerState
from headgate.simulation import LoopClock, run_virtual
from tests.elastic.service.in_memory import FakeEngine

QUICK: dict[str, Any] = {
    "monitoring_interval": 1.0,
    "confirm_interval": 0.5,
    "drain_timeout": 5.0,
    "stream_drain_timeout": 10.0,
    "engine_timeout": 2.0,
    "start_timeout": 20.0,
    "failed_retry": 5.0,
    "min_stable_period": 0.0,
    "request_timeout": 60.0,
}


@dataclass
class Wants:
    """A policy that wants so many workers."""

    workers: int

    def decide(self, demand: Demand, now: float) -> Desired:
        return Desired(self.workers, f"the test wants {self.workers}")

    def validate(self) -> None:
        assert self.workers >= 0


@dataclass
class Desk:
    """A service and what surrounds it."""

    service: ElasticService
    engines: Sequence[FakeEngine]
    wants: Wants
    events: list[Event] = field(default_factory=list)

    def state(self, position: int) -> WorkerState:
        return self.service.status().workers[position].state

    async def reaches(self, position: int, state: WorkerState) -> None:
        async with asyncio.timeout(300):
            await self.service.until(lambda status: status.workers[position].state is state)

    async def ask(self, request_id: str) -> bytes:
        """Return the whole answer of a request."""
        async with self.service.request(outgoing(request_id)) as answer:
            return await whole(answer)

    def told(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def validate(self) -> None:
        self.service._steps.pool.validate()


def outgoing(request_id: str) -> Outgoing:
    return Outgoing(request_id, "/v1/chat/completions", b"{}")


async def whole(answer: EngineAnswer) -> bytes:
    return b"".join([chunk async for chunk in answer.chunks])


@asynccontextmanager
async def opened(
    *engines: FakeEngine,
    wants: int | None = None,
    leases: WorkerLeases | None = None,
    **settings: Any,
) -> AsyncIterator[Desk]:
    """Open a service; afterwards nothing may be left of it."""
    events: list[Event] = []
    policy = Wants(len(engines) if wants is None else wants)
    config = ElasticConfig(**(QUICK | settings))
    service = ElasticService(
        "chat", config, engines, policy=policy, leases=leases, clock=LoopClock(), emit=events.append
    )
    async with service:
        desk = Desk(service, engines, policy, events)
        yield desk
        desk.validate()
    assert not service._in_flight._pending
    assert not service._in_flight._attempts
    assert all(engine.is_closed and not engine.running for engine in engines)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def virtual(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(main())
