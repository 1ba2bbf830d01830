"""Ways to admit requests, each with the same two calls, and what is measured of each."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from headgate.admission import (
    AdaptiveLaw,
    AdaptiveSettings,
    AdmissionController,
    OutcomeKind,
    ProviderModel,
    RequestAdmission,
    RequestItem,
    RequestKey,
    RequestLease,
    RequestOutcome,
)
from headgate.bench.rivals.polling_waiters import PollingAdmission
from headgate.core import SystemClock
from headgate.core.events import Event

_ACCOUNT: Final = ProviderModel("https://bench", "model")
_KEY: Final = RequestKey(_ACCOUNT)
_ANSWERED: Final = RequestOutcome(OutcomeKind.SUCCESS, latency_s=1.0)
"""All answers take the same time: what is measured is admission, not what a law makes of latencies."""


class Contender(Protocol):
    """Admission under measurement."""

    def acquire(self, number: int) -> Awaitable[Any]:
        """Return when request `number` is admitted, with what `release` wants to have."""
        ...

    def release(self, held: Any) -> None:
        """End a request."""
        ...


class Headgate:
    """Request admission with its default law (begun at the limit), its groups, its leases and its lock."""

    def __init__(self, limit: int, groups: int) -> None:
        controller = AdmissionController(lambda cap: AdaptiveLaw(cap, AdaptiveSettings(initial_limit=limit)))
        self._gate = RequestAdmission(controller, SystemClock(), _ignore)
        self._gate.register(_ACCOUNT, limit, "bench")
        self._names = [f"group-{number}" for number in range(groups)]

    def acquire(self, number: int) -> Awaitable[RequestLease]:
        """Ask as one of the groups."""
        return self._gate.acquire(RequestItem(_KEY, self._names[number % len(self._names)]))

    def release(self, held: RequestLease) -> None:
        """Give the lease back with a success."""
        self._gate.release(held, _ANSWERED)


class Semaphore:
    """`asyncio.Semaphore`: no groups, no weights, no limits that move, no leases."""

    def __init__(self, limit: int, groups: int) -> None:
        del groups
        self._semaphore = asyncio.Semaphore(limit)

    def acquire(self, number: int) -> Awaitable[Any]:
        """Wait for the semaphore."""
        del number
        return self._semaphore.acquire()

    def release(self, held: Any) -> None:
        """Release the semaphore."""
        del held
        self._semaphore.release()


class Polling:
    """Waiters that look at the clock every 50 ms."""

    def __init__(self, limit: int, groups: int) -> None:
        del groups
        self._admission = PollingAdmission(limit)

    def acquire(self, number: int) -> Awaitable[None]:
        """Wait, and look at the clock meanwhile."""
        del number
        return self._admission.acquire()

    def release(self, held: Any) -> None:
        """Give the slot to the next."""
        del held
        self._admission.release()


async def alone_per_s(contender: Contender, requests: int) -> float:
    """Return how many requests one after the other, with nobody else about, take a second of CPU time."""
    began = time.process_time()
    for number in range(requests):
        contender.release(await contender.acquire(number))
    return requests / (time.process_time() - began)


async def contended_per_s(contender: Contender, *, limit: int, waiters: int, wanted: int, most_s: float) -> float:
    """Return how many slots change hands in a second of CPU time while `waiters` wait at any moment."""
    handed, deadline = 0, 0.0
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def ask_again(number: int) -> None:
        nonlocal handed
        while not over.done():
            held = await contender.acquire(number)
            handed += 1
            contender.release(held)
            if handed >= wanted or time.monotonic() >= deadline:
                _complete(over)

    held = [await contender.acquire(number) for number in range(limit)]
    async with _waiting(ask_again, waiters):
        began, deadline = time.process_time(), time.monotonic() + most_s
        for one in held:
            contender.release(one)
        await over
        return handed / (time.process_time() - began)


async def handover_s(contender: Contender, *, limit: int, waiters: int, wanted: int, most_s: float) -> list[float]:
    """Return how long each hand-over took: from the call of `release` until the waiter runs with its slot."""
    loop = asyncio.get_running_loop()
    held: deque[Any] = deque([await contender.acquire(number) for number in range(limit)])
    took: list[float] = []
    released_at = 0.0
    turn = loop.create_future()

    async def ask_again(number: int) -> None:
        while True:
            mine = await contender.acquire(number)
            took.append(time.perf_counter() - released_at)
            held.append(mine)
            _complete(turn)

    async with _waiting(ask_again, waiters):
        deadline = time.monotonic() + most_s
        while len(took) < wanted and time.monotonic() < deadline:
            turn = loop.create_future()
            released_at = time.perf_counter()
            contender.release(held.popleft())
            await turn
    return took


async def idle_share(contender: Contender, *, limit: int, waiters: int, seconds: float) -> float:
    """Return the share of one core that is used while everybody waits and nothing moves."""

    async def wait(number: int) -> None:
        await contender.acquire(number)

    for number in range(limit):
        await contender.acquire(number)
    async with _waiting(wait, waiters):
        began, began_cpu = time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        return (time.process_time() - began_cpu) / (time.monotonic() - began)


@asynccontextmanager
async def _waiting(work: Callable[[int], Awaitable[None]], count: int) -> AsyncIterator[None]:
    """Have `count` waiters wait for the block, and cancelled after it."""
    tasks = [asyncio.ensure_future(work(number)) for number in range(count)]
    # One turn lets each of them begin, another one lets their timers be set.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _ignore(event: Event) -> None:
    """Take an event; no sink is measured here."""
