"""Engines in memory: they take time, fail as they are told, and refuse what would break a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from headgate.elastic.engines.engine import EngineAnswer, EngineFacts, Outgoing
from headgate.elastic.errors import EngineError
from headgate.elastic.service import OnLost, WorkerLease
from headgate.elastic.worker import EngineLoad

JSON = "application/json"
STREAM = "text/event-stream"


@dataclass
class FakeEngine:
    """One engine. Times are seconds of the loop's clock.

    Attributes:
        faults: call -> exceptions that its next calls raise, the first one first.
        hangs: calls that never return while they are named here.
        computing: request id -> how often it is computed at this moment.
        finished: ids whose answers were computed to the end.
        others: requests of somebody else that it computes.
        log: control calls that took effect.
    """

    name: str
    slots: int | None = 2
    service_s: float = 1.0
    start_s: float = 0.5
    kind: str = "fake"
    models: tuple[str, ...] = ("tiny",)
    is_asleep: bool = False
    content_type: str = JSON
    chunks: tuple[bytes, ...] = (b"a", b"b", b"c")
    status: int = 200
    others: int = 0
    is_dead: bool = False
    is_closed: bool = False
    faults: dict[str, list[Exception]] = field(default_factory=dict)
    hangs: set[str] = field(default_factory=set)
    computing: dict[str, int] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    _busy_with: str = ""
    _died: asyncio.Event = field(default_factory=asyncio.Event)

    def die(self) -> None:
        """Break every connection, and answer nothing from here on."""
        self.is_dead = True
        self._died.set()

    def revive(self) -> None:
        """Answer again, awake, as a process that was started anew."""
        self.is_dead = self.is_asleep = False
        self._died = asyncio.Event()

    async def check(self) -> EngineFacts:
        async with self._call("check"):
            return EngineFacts(self.models, slots=self.slots, is_asleep=self.is_asleep)

    async def load(self) -> EngineLoad:
        async with self._call("load"):
            return EngineLoad(running=self.running + self.others, slots=self.slots, is_asleep=self.is_asleep)

    async def sleep(self) -> None:
        with self._alone("sleep"):
            async with self._call("sleep"):
                if self.running + self.others:
                    raise EngineError(f"{self.name} is busy")
                self.is_asleep = True
                self.log.append("sleep")

    async def wake(self) -> None:
        with self._alone("wake"):
            async with self._call("wake"):
                await asyncio.sleep(self.start_s)
                self.is_asleep = False
                self.log.append("wake")

    async def abort(self, request_id: str) -> None:
        async with self._call("abort"):
            self.aborted.append(request_id)

    @asynccontextmanager
    async def answer(self, request: Outgoing) -> AsyncIterator[EngineAnswer]:
        assert not self.is_asleep, f"{self.name} was sent {request.request_id} while it slept"
        async with self._call("answer"):
            pass
        self.computing[request.request_id] = self.computing.get(request.request_id, 0) + 1
        try:
            chunks = self._streamed(request) if self.content_type == STREAM else self._whole(request)
            yield EngineAnswer(self.status, self.content_type, chunks)
        finally:
            self.computing[request.request_id] -= 1

    async def close(self) -> None:
        self.is_closed = True

    @property
    def running(self) -> int:
        """Requests that it computes."""
        return sum(self.computing.values())

    async def _whole(self, request: Outgoing) -> AsyncIterator[bytes]:
        await self._work(self.service_s)
        self.finished.append(request.request_id)
        yield b"".join(self.chunks)

    async def _streamed(self, request: Outgoing) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            await self._work(self.service_s)
            yield chunk
        self.finished.append(request.request_id)

    async def _work(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._died.wait()
        except TimeoutError:
            return
        raise EngineError(f"{self.name} reset the connection")

    @asynccontextmanager
    async def _call(self, what: str) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        if what in self.hangs:
            await asyncio.sleep(1_000_000)
        if self.is_dead:
            raise EngineError(f"{self.name} refuses connections")
        if self.faults.get(what):
            raise self.faults[what].pop(0)
        yield

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        assert not self._busy_with, f"{what} of {self.name} overlaps its {self._busy_with}"
        self._busy_with = what
        try:
            yield
        finally:
            self._busy_with = ""


@dataclass
class FakeLeases:
    """So many leases, and who holds them."""

    count: int
    held: dict[str, OnLost] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    refuses_back: bool = False
    free: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, worker_id: str, on_lost: OnLost) -> WorkerLease:
        self.asked.append(worker_id)
        async with self.free:
            await self.free.wait_for(lambda: len(self.held) < self.count)
        assert worker_id not in self.held, "a worker has one lease at most"
        self.held[worker_id] = on_lost
        return partial(self._give_back, worker_id)

    async def _give_back(self, worker_id: str) -> None:
        await asyncio.sleep(0)
        if self.refuses_back:
            raise EngineError("the ledger does not answer")
        self.held.pop(worker_id, None)
        async with self.free:
            self.free.notify_all()
