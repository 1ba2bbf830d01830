"""Request admission that takes its slots from a real Prefect server, on a clock that runs faster than the server's."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from headgate.admission import (
    SUCCESS,
    AdmissionController,
    ProviderModel,
    RequestAdmission,
    RequestItem,
    RequestKey,
    limit_rule,
)
from headgate.admission.bank import BankRules, LimitSeen
from headgate.core.events import Event
from headgate.orchestration import SlotBroker, open_slot_service
from headgate.orchestration.slots.service import SlotService, SlotServiceBusyError
from tests.admission.toy_laws import FixedLaw

SPEED = 20.0
"""A lease of 60 s ends after 3 s here; the server keeps it for its whole time, which is the safe way round."""

UNHURRIED = 4.0
"""For what must be answered within times of the broker: its 10 s to give all back are 0.5 s of the server at 20."""


class FastClock:
    """Time that runs `speed` times as fast."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def monotonic(self) -> float:
        return time.monotonic() * self._speed

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)


def unique_host() -> str:
    return f"{uuid.uuid4().hex[:8]}.test"


class Site:
    """One process's admission to one endpoint, with what it did."""

    def __init__(
        self, host: str, slots: int, *, most: int | None = None, bank: BankRules | None = None, speed: float = SPEED
    ) -> None:
        self.clock = FastClock(speed)
        self.events: list[Event] = []
        self.rule = limit_rule(host, slots, most=most)
        self.model = ProviderModel(f"https://{host}/v1", "model")
        self.admission = RequestAdmission(AdmissionController(FixedLaw), self.clock, self.events.append)
        self.broker = SlotBroker([self.rule], bank, clock=self.clock, rng=random.Random(0))
        self.in_flight = 0
        self.most_in_flight = 0
        self.done = 0
        self._stop = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Site]:
        cap = self.broker.follow(self.model, 1_000)
        async with self.broker.serving(self.admission, self.events.append):
            self.admission.register(self.model, cap, "model")
            yield self

    async def request(self, hold_s: float = 0.0) -> None:
        """Send one request, which takes `hold_s` of real time."""
        async with self.admission.admit(RequestItem(RequestKey(self.model), "group")) as admitted:
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            await asyncio.sleep(hold_s)
            self.in_flight -= 1
            self.done += 1
            admitted.outcome = SUCCESS

    async def keep_busy(self, workers: int, hold_s: float) -> None:
        """Send requests with this many workers until it is cancelled."""

        async def work() -> None:
            while True:
                await self.request(hold_s)

        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work())

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


@asynccontextmanager
async def busy(site: Site, workers: int = 40, hold_s: float = 0.01) -> AsyncIterator[None]:
    """Keep a site busy while the context lasts."""
    task = asyncio.create_task(site.keep_busy(workers, hold_s))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(is_so: Callable[[], bool], within_s: float = 60.0) -> None:
    """Return when something holds that the other side of a socket brings about."""
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - nothing here could tell
            await asyncio.sleep(0.02)


async def asked(use: Callable[[SlotService], object]) -> object:
    """Return what a call of the service gives, made as another client.

    A server on SQLite answers 503 while its database is busy, which a person at the command line would try again.
    """

    async def call() -> object:
        async with open_slot_service() as service:
            for _ in range(20):
                try:
                    return await use(service)  # type: ignore[misc]
                except SlotServiceBusyError:
                    pass
                except httpx.HTTPStatusError as error:
                    if error.response.status_code != 503:
                        raise
                await asyncio.sleep(0.2)
            return await use(service)  # type: ignore[misc]

    return await asyncio.create_task(call())


async def limit_now(name: str) -> LimitSeen | None:
    """Return a limit as the server shows it."""
    return await asked(lambda service: service.limit(name))  # type: ignore[return-value]


async def set_limit(name: str, slots: int) -> None:
    """Create or change a limit as another client."""
    await asked(lambda service: service.set_limit(name, slots))
