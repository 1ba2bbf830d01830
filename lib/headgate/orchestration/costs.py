"""What orchestration costs: a window as a flow run, requests under slots, and what others would pay for the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.concurrency.asyncio import concurrency

from blocks import AdmissionLimits, EndpointLimit
from headgate.admission import (
    AdmissionController,
    ProviderModel,
    RequestAdmission,
    RequestItem,
    RequestKey,
    law_factory,
)
from headgate.config import AdmissionSettings
from headgate.core import SystemClock
from headgate.core.events import Event, SlotsLeased
from headgate.orchestration.inputs import SamplingOrder
from headgate.orchestration.limit_choices import slots_for
from headgate.orchestration.own_server import PrivateServer, private_server
from headgate.orchestration.request_log import RequestLog
from headgate.orchestration.sampling_run import run_sampling
from headgate.orchestration.slot_service import open_slot_service

_BLOCK: Final = "bench"
_ENDPOINT: Final = "bench.invalid"
"""Bounds the requests that are admitted and never sent."""

_MANY: Final = 1_000
_LASTING_S: Final = 0.05
_SETTLED_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class WindowCost:
    """A window of sampling as a flow run.

    Attributes:
        wall_s: from the call of the flow to its return.
        campaign_s: of that, from the start of the campaign to its end.
        samples: accepted.
        batches: stored.
        calls: of the Prefect API, by method and route.
    """

    wall_s: float
    campaign_s: float
    samples: int
    batches: int
    calls: Mapping[str, int]

    @property
    def outside_s(self) -> float:
        """Time that the window took as a flow run and not as a campaign."""
        return self.wall_s - self.campaign_s


@dataclass(frozen=True, slots=True)
class RequestCost:
    """Requests that were admitted, by whatever means.

    Attributes:
        requests: how many.
        seconds: that they took together.
        calls: of the Prefect API meanwhile.
    """

    requests: int
    seconds: float
    calls: int


class CostMeter:
    """A Prefect server of its own and the measurements that are made on it. Owned by `cost_meter`."""

    def __init__(self, server: PrivateServer) -> None:
        self._server = server
        self._log = RequestLog(server.folder)

    async def window(self, endpoint: str, settings: Mapping[str, Any], *, duration_s: float, slots: int) -> WindowCost:
        """Run a window of affine:sat under a limit of `slots` for the endpoint, and return what it cost."""
        entry = EndpointLimit(endpoint=endpoint, slots=slots)
        await AdmissionLimits(limits=[entry]).asave(_BLOCK, overwrite=True)
        events = self._server.folder / "events.jsonl"
        order = SamplingOrder(
            environments=("affine:sat",), limits=_BLOCK, settings={**settings, "events_file": str(events)}
        )

        @flow(name="bench window")
        async def window() -> Any:
            """Sample for one window."""
            return await run_sampling(order, "bench", duration_s=duration_s)

        self._log.calls()
        before = time.perf_counter()
        await window()
        wall_s = time.perf_counter() - before
        calls = self._log.calls()
        told = [orjson.loads(line) for line in events.read_bytes().splitlines()]
        kinds = [event["event"] for event in told]
        started, stopped = (told[kinds.index(kind)]["monotonic"] for kind in ("campaign_started", "campaign_stopped"))
        samples, batches = kinds.count("sample_accepted"), kinds.count("batch_stored")
        return WindowCost(wall_s, stopped - started, samples, batches, dict(calls))

    async def slots(self, requests: int, slots: int) -> RequestCost:
        """Admit requests under leased slots, once the slots are there, and return what they cost."""
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
            # The register of holders lags behind by seconds; what it costs to grow is not what requests cost.
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
        # What clients send behind one's back (task runs are told by events) is not waited for: it counts as nothing.
        return RequestCost(requests, seconds, sum(self._log.calls().values()))


@asynccontextmanager
async def cost_meter(folder: Path) -> AsyncIterator[CostMeter]:
    """Give a meter on a Prefect server of its own.

    Raises:
        OrchestratorUnreachableError: if the server does not come up.
    """
    async with private_server(folder, log_requests=True) as server:
        with server.as_client():
            yield CostMeter(server)
