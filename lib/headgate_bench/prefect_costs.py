"""The cost of orchestration: a window as a flow run, requests under leased slots, and alternatives to these."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.concurrency.asyncio import concurrency
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogHandler

from blocks import AdmissionLimits, EndpointLimit
from headgate.admission import AdmissionController, ProviderModel, RequestAdmission, RequestItem, RequestKey
from headgate.admission.laws import law_factory
from headgate.config import AdmissionSettings
from headgate.core import SystemClock
from headgate.core.events import Event, SlotsLeased
from headgate.orchestration import (
    PrivateServer,
    SamplingOrder,
    open_slot_service,
    private_server,
    run_sampling,
    settings_of,
    slots_for,
)
from headgate.run import run_campaign

_LINE: Final = re.compile(r'uvicorn\.access - \S+ - "(?P<call>[A-Z]+ /api/[^ ?"]*)')
_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
_NO_CALLS: Final = ("GET /api/health",)

_BLOCK: Final = "bench"
_ENDPOINT: Final = "bench.invalid"
"""Endpoint of the limit for requests that are admitted but never sent."""

_MANY: Final = 1_000
_LASTING_S: Final = 0.05
_SETTLED_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class WindowCost:
    """A window of sampling, once as a flow run and once without Prefect.

    Attributes:
        wall_s: time from the call of the flow to its return.
        plain_s: time of the same window as a campaign without Prefect.
        samples: samples accepted in the flow run.
        batches: batches that it stored.
        calls: calls of the Prefect API, by method and route.
    """

    wall_s: float
    plain_s: float
    samples: int
    batches: int
    calls: Mapping[str, int]

    @property
    def more_s(self) -> float:
        """Additional time of the window as a flow run."""
        return self.wall_s - self.plain_s


@dataclass(frozen=True, slots=True)
class RequestCost:
    """The cost of admitting requests by some means.

    Attributes:
        requests: number of requests.
        seconds: time that they took together.
        calls: calls of the Prefect API during that time.
    """

    requests: int
    seconds: float
    calls: int


class CostMeter:
    """Measurements on a private Prefect server. Owned by `cost_meter`."""

    def __init__(self, server: PrivateServer) -> None:
        self._server = server
        self._log = RequestLog(server.folder)

    async def window(self, endpoint: str, settings: Mapping[str, Any], *, duration_s: float, slots: int) -> WindowCost:
        """Run a window of affine:sat under a limit of `slots` for the endpoint, and return what it cost."""
        entry = EndpointLimit(endpoint=endpoint, slots=slots)
        await AdmissionLimits(limits=[entry]).asave(_BLOCK, overwrite=True)
        order = SamplingOrder(environments=("affine:sat",), limits=_BLOCK, settings=settings)

        @flow(name="bench window")
        async def window() -> Any:
            """Sample for one window."""
            return await run_sampling(order, "bench", duration_s=duration_s)

        plain_s = await _plain_s(settings, duration_s)  # first, so that it pays for the imports of the process's start
        self._log.calls()
        before = time.perf_counter()
        counts = await window()
        wall_s = time.perf_counter() - before
        calls = self._log.calls()
        batches = -(-counts["stored"] // settings["sink_batch_size"])
        return WindowCost(wall_s, plain_s, counts["samples"], batches, dict(calls))

    async def slots(self, requests: int, slots: int) -> RequestCost:
        """Admit requests under leased slots, once all slots are leased, and return their cost."""
        entry = EndpointLimit(endpoint=_ENDPOINT, slots=slots)
        await AdmissionLimits(limits=[entry]).asave(_BLOCK, overwrite=True)
        broker = await slots_for(_BLOCK)
        assert broker is not None, "a block was named"
        model = ProviderModel(f"https://{_ENDPOINT}/v1", "model")
        controller = AdmissionController(law_factory(AdmissionSettings()))
        admission = RequestAdmission(controller, SystemClock(), lambda _: None)
        item = RequestItem(RequestKey(model), "bench")
        cap = broker.follow(model, _MANY)
        held = [0]

        def note(event: Event) -> None:
            if isinstance(event, SlotsLeased):
                held[0] = event.held

        async with broker.serving(admission, note):
            admission.register(model, cap, "bench")

            async def request() -> None:
                async with admission.admit(item):
                    await asyncio.sleep(0)

            async def lasting_request() -> None:
                async with admission.admit(item):
                    await asyncio.sleep(_LASTING_S)

            while held[0] < slots:
                await asyncio.gather(*(lasting_request() for _ in range(2 * slots)))
            # The register of holders lags behind by seconds; leasing more slots must not count as a cost of requests.
            await asyncio.sleep(_SETTLED_S)
            return await self._timed(requests, request, at_once=10 * slots)

    async def task_per_request(self, requests: int) -> RequestCost:
        """Run one Prefect task per request."""

        @task(cache_policy=NO_CACHE, persist_result=False)
        async def request() -> None:
            """Send nothing."""

        @flow(name="one task per request")
        async def tasks() -> RequestCost:
            """Run them."""
            return await self._timed(requests, request, at_once=1)

        return await tasks()

    async def limit_per_request(self, requests: int) -> RequestCost:
        """Take and give one slot of a global concurrency limit per request, as `prefect.concurrency` does."""

        async def create() -> None:
            async with open_slot_service() as service:
                await service.set_limit("bench-per-request", _MANY)

        await asyncio.create_task(create())

        async def request() -> None:
            async with concurrency("bench-per-request", occupy=1, strict=True):
                pass

        return await self._timed(requests, request, at_once=1)

    async def _timed(self, requests: int, request: Callable[[], Awaitable[Any]], *, at_once: int) -> RequestCost:
        self._log.calls()
        before = time.perf_counter()
        for start in range(0, requests, at_once):
            await asyncio.gather(*(request() for _ in range(min(at_once, requests - start))))
        seconds = time.perf_counter() - before
        # Calls that clients make in the background (task runs are reported by events) are not awaited: they count as 0.
        return RequestCost(requests, seconds, sum(self._log.calls().values()))


async def _plain_s(settings: Mapping[str, Any], duration_s: float) -> float:
    """Return how long a window takes as a plain campaign, with its own store and journal."""
    apart = {name: f"{settings[name]}-plain" for name in ("store", "journal")}
    plain = settings_of(SamplingOrder(environments=("affine:sat",), settings={**settings, **apart}))
    before = time.perf_counter()
    await run_campaign(plain, duration_s=duration_s)
    return time.perf_counter() - before


@asynccontextmanager
async def cost_meter(folder: Path) -> AsyncIterator[CostMeter]:
    """Yield a meter on a private Prefect server.

    Raises:
        OrchestratorUnreachableError: if the server does not come up.
    """
    async with private_server(folder, log_requests=True) as server:
        with server.as_client():
            yield CostMeter(server)
            # Flush Prefect's threads while the server is up; without one they retry for minutes.
            await APILogHandler.aflush()
            await asyncio.to_thread(EventsWorker.drain_all, timeout=5)


class RequestLog:
    """Counts the API calls of a `private_server(…, log_requests=True)` since the last reading."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "server.log"
        self._read = self._log.stat().st_size

    def calls(self) -> Counter[str]:
        """Return the calls since the last reading, by method and route; every id in a route is `{id}`."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
            self._read += len(text)
        found = (_ID.sub("{id}", match["call"]) for match in _LINE.finditer(text.decode(errors="replace")))
        return Counter(call for call in found if call not in _NO_CALLS)
