"""Systems for a console to look at: a small one that really runs, a large one that only says so, and a hostile one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final

import httpx

from headgate.config import Settings, load_settings
from headgate.core import Model, Secret
from headgate.core.errors import NotFoundError
from headgate.core.events import CapacityPlan, MonitorStarted
from headgate.core.rates import ModelRates, RateLimits
from headgate.core.status import CampaignStatus, PairStatus, RequestBatchStatus
from headgate.elastic.gateway import load_pool_file, running_pool
from headgate.jobqueue.server import ServerSettings, running_server
from headgate.models import SimulationPlan, serve
from headgate.placement.amounts import amounts
from headgate.placement.pool import Group, GroupShape, GroupState
from headgate.placement.request import Occupancy, PlacementRequest, Stage
from headgate.placement.service.journal import Journal, Writes
from headgate.run import run_campaign
from headgate.sampling import StaticRoster
from headgate.simulation.engines import EnginePlan, serve_engine
from headgate.telemetry import Questions, new_registry, serve_monitor
from tests.telemetry import factories

SANDBOXED: Final = "affine:abd"
"""It starts a process for each sample, which costs more than the browser when it is asked as often as the others."""

ENVIRONMENTS: Final = (SANDBOXED, "affine:sat", "headgate:tables")
HOSTILE: Final = "<img src=x onerror=alert(1)>\"'\u202etxt.exe\x1b[31m\x00<script>alert(2)</script>"


@dataclass
class System:
    """Addresses of what runs."""

    run: str = ""
    jobqueue: str = ""
    elastic: str = ""
    placement: Path | None = None
    settings: Settings | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def shown(self) -> dict[str, Any]:
        """What `serve_console` is given to look at all of it."""
        return {
            "runs": [self.run] if self.run else [],
            "jobqueues": [self.jobqueue] if self.jobqueue else [],
            "elastic": [self.elastic] if self.elastic else [],
            "placement": [self.placement] if self.placement else [],
        }


@asynccontextmanager
async def small_system(folder: Path, *, workers: int = 12, **further: Any) -> AsyncIterator[System]:
    """A real campaign of six models, one unreachable and one asked in batches; a queue with dead jobs; a pool."""
    system = System()
    async with AsyncExitStack() as stack:
        good = await stack.enter_async_context(serve())
        tight = await stack.enter_async_context(serve(simulation=SimulationPlan(cap=2, mean_s=0.4, retry_after_s=2.0)))
        models = [
            Model(name, base_url=good.base_url) for name in ("baseline-greedy", "baseline-random", "baseline-solver")
        ]
        models += [
            Model(
                "acme/tight-70b",
                "step-1200",
                base_url=tight.base_url,
                served_name="simulated",
                max_parallel=8,
                rates=ModelRates(own=RateLimits(tokens_per_minute=7_000_000)),
            ),
            Model("acme/gone-7b", base_url="http://127.0.0.1:9/v1"),
            Model("acme/patient-8b", base_url=tight.base_url, served_name="simulated", lane="batch"),
        ]
        models = [replace(model, uid=number) for number, model in enumerate(models)]
        given = {
            "campaign": "nightly", "store": str(folder / "store"), "journal": str(folder / "journal"),
            "environments": ENVIRONMENTS, "rates": {"*": 40_000.0, SANDBOXED: 8_000.0},
            "num_evaluation_workers": workers,
            "enable_monitoring": True, "monitor_port": 0, "sink_max_wait": 1.0, "sink_batch_size": 50,
            "daily_tokens": 2_000_000, "drain_timeout_s": 1.0, "early_stop": False,
            "lane_batch_wait_s": 0.5, **further,
        }  # fmt: skip
        system.settings = load_settings(given, environ={}, file=None).settings
        system.jobqueue = await _queue(stack)
        system.elastic = await _pool(stack, folder)
        system.placement = _placement(stack, folder / "placement.sqlite")
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        class Listening:
            handlers: ClassVar = {MonitorStarted: lambda recorded: started.set_result(recorded.event.address)}

            def close(self) -> None: ...

        running = asyncio.create_task(
            run_campaign(system.settings, roster=StaticRoster(tuple(models)), stop=system.stop, sinks=[Listening()])
        )
        try:
            done, _ = await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
            if running in done:
                await running
            system.run = await started
            yield system
        finally:
            system.stop.set()
            await running


async def _queue(stack: AsyncExitStack) -> str:
    server = await stack.enter_async_context(running_server(ServerSettings(database="memory:", port=0)))
    jobs = [
        {"id": f"{team}.{task}.{number}", "team": team, "task": task, "max_attempts": 1}
        for team in ("alpha", "beta") for task in ("folding", "docking") for number in range(6)
    ]  # fmt: skip
    async with httpx.AsyncClient(base_url=server.url) as http:
        (await http.post("/v1/jobs", json={"jobs": jobs})).raise_for_status()
        servers = [{"pool": "alpha", "host": "gpu-1.internal", "port": 8080}]
        (await http.post("/v1/resources", json={"resources": servers})).raise_for_status()
        claimed = (await http.post("/v1/claims", json={"worker": "slurm-4711", "count": 9})).json()["jobs"]
        for number, one in enumerate(claimed[:7]):
            lease = {"lease_id": one["lease"]["lease_id"], "epoch": one["lease"]["epoch"]}
            path = f"/v1/jobs/{one['job']['id']}"
            if number < 3:
                error = {"error": "CUDA out of memory: tried to allocate 2.5 GiB", "retry": False}
                (await http.post(f"{path}/fail", json=lease | error)).raise_for_status()
            else:
                (await http.post(f"{path}/complete", json=lease | {"result": {"q_score": 0.5}})).raise_for_status()
    return server.url


async def _pool(stack: AsyncExitStack, folder: Path) -> str:
    urls = [(await stack.enter_async_context(serve_engine(EnginePlan()))).url for _ in range(2)]
    path = folder / "pool.yaml"
    engines = [{"url": url, "kind": "auto"} for url in urls]
    path.write_text(json.dumps({"pool": {"name": "chat", "engines": engines}, "gateway": {"port": 0}}))
    gateway = await stack.enter_async_context(running_pool(load_pool_file(path), environ={}))
    return gateway.url


def _placement(stack: AsyncExitStack, path: Path) -> Path:
    now, wall = time.monotonic(), time.time()
    size = amounts(cpu=8, gpu=4)
    shape = GroupShape((size,))

    def group(number: int, node: str, state: GroupState, holder: str | None, since_s: float) -> Group:
        return Group(f"headgate-train-{number}", "train", shape, number, 3, state, (node,), holder, 5, now - since_s)

    def work(name: str, stage: Stage, group_id: str = "", **more: Any) -> Occupancy:
        request = PlacementRequest(name, "train", (size,), priority=5.0)
        return Occupancy(request, "driver", now - 3000, 1, stage, 1, group_id=group_id, **more)

    groups = (
        group(0, "a1f09c33", GroupState.HELD, "rlhf-7b", 2500), group(1, "a1f09c33", GroupState.FREE, None, 700),
        group(2, "c77e01d4", GroupState.HELD, "eval-13b", 1500), group(3, "c77e01d4", GroupState.BROKEN, None, 200),
    )  # fmt: skip
    requests = (
        work("rlhf-7b", Stage.RUNNING, "headgate-train-0"), work("eval-13b", Stage.RUNNING, "headgate-train-2"),
        work("sft-70b", Stage.WAITING, note="waits for 8 GPUs on one node"),
    )  # fmt: skip
    journal = Journal(path).open()
    journal.commit(
        Writes(
            groups={one.group_id: one for one in groups},
            requests={one.request_id: one for one in requests},
            meta={"clock": wall - now},
        )
    )
    stack.callback(journal.close)
    return path


def large_status(models: int = 1_000, environments: int = 64, *, now: float | None = None) -> CampaignStatus:
    """What a large campaign says of itself."""
    at = time.time() if now is None else now
    names = [f"suite:{number:02}" for number in range(environments)]
    keys = [f"lab-{number % 17}/model-{number:04}@step-{100 * number}" for number in range(models)]

    def pair(number: int, spot: int) -> PairStatus:
        done, lag_s = (number * 7 + spot) % 101, 3_600.0 if number % 41 == 0 and spot % 5 == 0 else 0.0
        score_sum = done * ((number + spot) % 97) / 97
        return PairStatus(keys[number], names[spot], 100, done, done, int(number % 23 == 0), score_sum, 240.0, lag_s)

    pairs = tuple(pair(number, spot) for number in range(models) for spot in range(environments))
    of_models = tuple(
        replace(
            factories.model(number), model=key, name=key.partition("@")[0], revision=key.partition("@")[2],
            is_paused=number % 97 == 0, pause_reason="3 consecutive service errors" if number % 97 == 0 else None,
            pause_until=at + 600 if number % 97 == 0 else None,
        )
        for number, key in enumerate(keys)
    )  # fmt: skip
    requests = tuple(
        replace(factories.request_status(number), model=key, models=(key,)) for number, key in enumerate(keys)
    )
    whole = factories.status(models=of_models, pairs=pairs, requests=requests)
    return replace(whole, captured_at=at, started_at=at - 7_200)


def hostile_status() -> CampaignStatus:
    """A campaign whose every word was written by an enemy; one of them has ten million characters."""
    name = HOSTILE.replace("\x00", "")
    trouble = {
        "is_paused": True,
        "pause_reason": HOSTILE,
        "last_error": "<b>" * 3_500_000,
        "last_error_at": time.time(),
    }
    model = factories.model(1, model=name, name=name, pause_until=time.time() + 60, **trouble)
    pair = PairStatus(name, f"e{HOSTILE}", 10, 8, 6, 2, 4.5, 300.0, 4_000.0)
    request = factories.request_status(1, model=name, provider=HOSTILE, models=(name,), last_outcome=HOSTILE)
    batch = RequestBatchStatus(name, HOSTILE, time.time(), 10, 20, HOSTILE, time.time(), HOSTILE)
    whole = factories.status(campaign=HOSTILE, models=(model,), pairs=(pair,), requests=(request,))
    return replace(whole, captured_at=time.time(), batches=(batch,))


@asynccontextmanager
async def said(
    told: CampaignStatus | Callable[[], CampaignStatus], *, tasks: int = 0, token: str = ""
) -> AsyncIterator[str]:
    """Give the address of a monitoring API that says this, or what the function returns then; tasks of it wait."""
    ask = told if callable(told) else lambda: told
    status = ask()
    waiting = [
        {
            "task_id": f"t-{number:024x}", "state": "queued", "model": status.models[0].model,
            "environment": status.pairs[0].environment, "sequence": number, "stage": "sample",
            "due_at": status.captured_at - 60 * number, "attempt": 1,
        }
        for number in range(tasks)
    ]  # fmt: skip

    async def explain(task_id: str) -> object:
        if not any(task["task_id"] == task_id for task in waiting):
            raise NotFoundError(f"task {task_id} is not open")
        said = {
            "gate": "request_admission",
            "reason": "8 of 8 requests of its model in flight",
            "until": time.time() + 90,
        }
        return {"task_id": task_id, "state": "queued", "ahead": 3, **said, "model": status.models[0].model,
                "environment": status.pairs[0].environment, "sequence": 1}  # fmt: skip

    questions = Questions(
        explain,
        lambda model, environment, limit: waiting[:limit],
        lambda: CapacityPlan({}, {}, {}),
        lambda: None,
        lambda *_: None,
    )  # type: ignore[arg-type,return-value]
    made = Secret(token) if token else None
    async with serve_monitor(ask, new_registry(), port=0, questions=questions, token=made) as server:
        yield server.address
