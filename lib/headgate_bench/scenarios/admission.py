"""P4: request leases with 10 000 waiters: hand-over, idle cost, throughput, next to a semaphore and a 50 ms poll."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from headgate.admission import (
    AdmissionController,
    OutcomeKind,
    ProviderModel,
    RequestAdmission,
    RequestItem,
    RequestKey,
    RequestLease,
    RequestOutcome,
)
from headgate.admission.laws import AdaptiveLaw, AdaptiveSettings
from headgate.core import SystemClock
from headgate.core.events import Event
from headgate_bench.artifact import Bar, at_least, at_most
from headgate_bench.definition import Bench, Chart, Outcome, Scenario, Spread, percentile, spread_of
from headgate_bench.rivals.polling_waiters import PollingAdmission

_ACCOUNT: Final = ProviderModel("https://bench", "model")
_KEY: Final = RequestKey(_ACCOUNT)
_ANSWERED: Final = RequestOutcome(OutcomeKind.SUCCESS, latency_s=1.0)
"""All answers take the same time: the scenario measures admission, not how a law reacts to latencies."""


class Contender(Protocol):
    """Admission under measurement."""

    def acquire(self, number: int) -> Awaitable[Any]:
        """Wait until request `number` is admitted; return the argument for `release`."""
        ...

    def release(self, held: Any) -> None:
        """End a request."""
        ...


class Headgate:
    """Request admission with its default law (starting at the limit), groups, leases and lock."""

    def __init__(self, limit: int, groups: int) -> None:
        controller = AdmissionController(lambda cap: AdaptiveLaw(cap, AdaptiveSettings(initial_limit=limit)))
        self._gate = RequestAdmission(controller, SystemClock(), _ignore)
        self._gate.register(_ACCOUNT, limit, "bench")
        self._names = [f"group-{number}" for number in range(groups)]

    def acquire(self, number: int) -> Awaitable[RequestLease]:
        """Ask as one of the groups."""
        return self._gate.acquire(RequestItem(_KEY, self._names[number % len(self._names)]))

    def release(self, held: RequestLease) -> None:
        """Release the lease with a success."""
        self._gate.release(held, _ANSWERED)


class Semaphore:
    """`asyncio.Semaphore`: no groups, no weights, no changing limits, no leases."""

    def __init__(self, limit: int) -> None:
        self._semaphore = asyncio.Semaphore(limit)

    def acquire(self, number: int) -> Awaitable[Any]:
        """Wait for the semaphore."""
        del number
        return self._semaphore.acquire()

    def release(self, held: Any) -> None:
        """Release the semaphore."""
        del held
        self._semaphore.release()


async def alone_per_s(contender: Contender, requests: int) -> float:
    """Return sequential requests per second of CPU time, without contention."""
    began = time.process_time()
    for number in range(requests):
        contender.release(await contender.acquire(number))
    return requests / (time.process_time() - began)


async def contended_per_s(contender: Contender, *, limit: int, waiters: int, wanted: int, most_s: float) -> float:
    """Return hand-overs of slots per second of CPU time while `waiters` requests wait at any moment."""
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
    """Return the duration of each hand-over: from the call of `release` until the waiter runs with its slot."""
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
    """Return the share of one core that is used while all requests wait and nothing changes."""

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
    """Keep `count` waiters waiting during the block, and cancel them after it."""
    tasks = [asyncio.ensure_future(work(number)) for number in range(count)]
    # One turn of the loop starts each of them, another one sets their timers.
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
    """Ignore an event: sinks are not measured here."""


_CONTENDERS: Final[dict[str, Callable[[int, int], Contender]]] = {
    "headgate": Headgate,
    "asyncio.Semaphore": lambda limit, _: Semaphore(limit),
    "50 ms poll": lambda limit, _: PollingAdmission(limit),
}
_OURS: Final = "headgate"


@dataclass(frozen=True, slots=True)
class AdmissionParameters:
    """Parameters of the scenario."""

    waiters: int = 10_000  # requests that wait at any moment
    slots: int = 64  # maximum number of requests in flight
    groups: int = 64  # groups over which the waiters are divided
    handovers: int = 5_000  # number of timed hand-overs, one after another
    contended: int = 40_000  # hand-overs to measure the throughput under contention
    alone: int = 50_000  # sequential requests to measure the throughput without contention
    idle_s: float = 0.5  # length of the idle measurement
    most_s: float = 3.0  # time limit of one measurement; slower contenders are cut off there
    iterations: int = 3  # repetitions of all measurements
    bar_handover_ms: float = 1.0  # maximum 99th percentile of a hand-over
    bar_idle: float = 0.005  # maximum share of a core while nothing changes
    bar_contended: float = 30_000.0  # minimum hand-overs per second of CPU time
    bar_alone: float = 100_000.0  # minimum requests per second of CPU time without contention


def measure(parameters: AdmissionParameters, bench: Bench) -> Outcome:
    """Return the cost of a request and the duration of a hand-over; Headgate and its rivals take turns."""
    samples = list(_measured(parameters, bench))
    return Outcome(_bars(samples, parameters), samples, _ratios(samples), _charts(samples, parameters))


def _measured(parameters: AdmissionParameters, bench: Bench) -> Iterator[dict[str, Any]]:
    done, total = 0, parameters.iterations * len(_CONTENDERS)
    for iteration in range(parameters.iterations):
        for name, make in _CONTENDERS.items():
            bench.progress(done / total, f"{name}, {parameters.waiters} waiters")
            done += 1
            yield {"iteration": iteration, "contender": name} | _of_one(make, parameters)


def _of_one(make: Callable[[int, int], Contender], p: AdmissionParameters) -> dict[str, Any]:
    """Return the four figures of one contender, each from a new contender on a new event loop."""

    def run(measurement: Callable[[Contender], Coroutine[Any, Any, Any]]) -> Any:
        async def main() -> Any:
            return await measurement(make(p.slots, p.groups))

        return asyncio.run(main())

    size = {"limit": p.slots, "waiters": p.waiters}
    took = run(lambda one: handover_s(one, **size, wanted=p.handovers, most_s=p.most_s)) or [float("inf")]
    return {
        "handovers": len(took),
        "handover_p50_ms": 1e3 * percentile(took, 0.5),
        "handover_p99_ms": 1e3 * percentile(took, 0.99),
        "idle_share": run(lambda one: idle_share(one, **size, seconds=p.idle_s)),
        "contended_per_s": run(lambda one: contended_per_s(one, **size, wanted=p.contended, most_s=p.most_s)),
        "alone_per_s": run(lambda one: alone_per_s(one, p.alone)),
    }


def _spread(samples: Sequence[dict[str, Any]], contender: str, figure: str) -> Spread:
    return spread_of([sample[figure] for sample in samples if sample["contender"] == contender])


def _bars(samples: Sequence[dict[str, Any]], p: AdmissionParameters) -> list[Bar]:
    bars = []
    handover, contended = _HANDOVER.format(p), f"slots that change hands, {p.waiters} waiters in {p.groups} groups"
    idle, alone = f"CPU time while {p.waiters} wait and nothing moves", "acquire and release without contention"
    for name, make, figure, what, bar, unit in (
        ("handover", at_most, "handover_p99_ms", handover, p.bar_handover_ms, "ms"),
        ("idle", at_most, "idle_share", idle, 100 * p.bar_idle, "% of a core"),
        ("contended", at_least, "contended_per_s", contended, p.bar_contended, "/s"),
        ("alone", at_least, "alone_per_s", alone, p.bar_alone, "/s"),
    ):
        factor = 100 if figure == "idle_share" else 1.0
        found = {contender: factor * _spread(samples, contender, figure).median for contender in _CONTENDERS}
        ours = found.pop(_OURS)
        bars.append(make(f"P4.{name}", what, ours, bar, unit, found))
    return bars


def _ratios(samples: Sequence[dict[str, Any]]) -> dict[str, Spread]:
    figures = {
        "handover_p50_ms": "median hand-over, ms",
        "contended_per_s": "hand-overs per s",
        "alone_per_s": "alone per s",
    }
    return {
        f"{name}: {what}": _spread(samples, name, figure) for figure, what in figures.items() for name in _CONTENDERS
    }


def _charts(samples: Sequence[dict[str, Any]], p: AdmissionParameters) -> list[Chart]:
    def chart(title: str, unit: str, figure: str, level: float, log: Literal["", "y"] = "") -> Chart:
        points = [(name, _spread(samples, name, figure).median) for name in _CONTENDERS]
        return Chart(title, "contender", unit, "bars", {"median": points}, level=level, log=log)

    slots = f"Slots that change hands per second of CPU time, {p.waiters} waiters"
    return [
        chart(_HANDOVER.format(p), "ms", "handover_p99_ms", p.bar_handover_ms, log="y"),
        chart(slots, "hand-overs per s", "contended_per_s", p.bar_contended),
    ]


_HANDOVER: Final = "99th percentile of a hand-over with {0.waiters} waiters"


SCENARIO = Scenario(
    name="admission",
    quick=AdmissionParameters(iterations=1),
    full=AdmissionParameters(handovers=20_000, contended=200_000, alone=200_000, idle_s=3.0, most_s=10.0, iterations=5),
    measure=measure,
)
