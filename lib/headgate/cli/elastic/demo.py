"""`headgate elastic demo|fake-engine`: simulated engines, alone or as a pool from end to end with a burst of load."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final

import httpx
import yaml
from cyclopts import Parameter

from headgate.cli.elastic.status_table import followed, logged, status_document
from headgate.cli.output import AsJson, console, print_json, say
from headgate.core.errors import InvalidInputError
from headgate.elastic import ElasticConfig, WorkerState
from headgate.elastic.engines import EngineSpec, open_engine
from headgate.elastic.gateway import Gateway, read_pool_document, running_pool
from headgate.simulation.engines import Api, EnginePlan, run_engine, serve_engine

_MODEL: Final = "fake-model"
_SLOTS: Final = 8
_PLANS: Final = tuple(
    EnginePlan(api=api, model=_MODEL, slots=_SLOTS, reply_tokens=20, token_s=0.04, resume_s=1.0, release_s=0.2)
    for api in ("sglang", "vllm", "sglang")
)
_COURSE: Final = ((0.2, 2), (0.35, 20), (0.45, 1))
"""Share of the time, and requests in flight meanwhile: quiet, a burst, quiet again."""

_PAUSE_S: Final = 0.05
"""Seconds that a client waits between two requests."""

_LEAST_S: Final = 5.0
_SETTINGS: Final = {
    "policy": "target",
    "monitoring_interval": 0.5,
    "stable_window": 3.0,
    "panic_window": 1.0,
    "min_stable_period": 1.0,
    "confirm_interval": 0.2,
    "requests_per_worker_capacity": _SLOTS,
}
"""Settings for a demo of seconds: `target`, since `predictive` first observes a load for a minute."""


@dataclass(slots=True)
class _Answers:
    """Results of the clients: how long each answer took, and how many calls were not answered."""

    took_s: list[float] = field(default_factory=list)
    failed: int = 0


def demo(
    *,
    duration: Annotated[float, Parameter(help="How long the load lasts, in seconds.")] = 30.0,
    as_json: AsJson = False,
) -> int:
    """See workers wake and sleep: three simulated engines, the gateway in front of them, and a burst of real requests.

    Everything runs in this process, on loopback, and ends with it. The engines are simulated and their answers mean
    nothing; the pool is the real one.
    """
    if not _LEAST_S <= duration < float("inf"):
        raise InvalidInputError(f"--duration must be at least {_LEAST_S:g}, for workers to wake (got {duration:g})")
    asyncio.run(_demo(duration, as_json=as_json))
    return 0


async def _demo(seconds: float, *, as_json: bool) -> None:
    async with AsyncExitStack() as exits:
        engines = [await exits.enter_async_context(serve_engine(plan)) for plan in _PLANS]
        written = _written([(engine.url, engine.plan.api) for engine in engines])
        await asyncio.gather(*(_put_to_sleep(engine.url) for engine in engines[1:]))
        gateway = await exits.enter_async_context(running_pool(read_pool_document(written), emit=logged()))
        if not as_json:
            say("A pool of three simulated engines, no language models, from this file:")
            console().print(yaml.safe_dump(written, sort_keys=False), highlight=False, markup=False)
            say(f"Gateway at {gateway.base_url}  (watch it: headgate console --elastic {gateway.url})")
        answers = _Answers()
        began = time.monotonic()
        async with followed(gateway.status, as_json=as_json):
            await _send(gateway.base_url, seconds, answers)
            took_s = time.monotonic() - began
            await gateway.drain()
        _tell(gateway, answers, took_s, as_json=as_json)


def _written(engines: Sequence[tuple[str, str]]) -> dict[str, Any]:
    named = [{"url": url, "kind": api} for url, api in engines]
    pool = {"name": "demo", "model": _MODEL, "engines": named}
    return {"pool": pool, "elastic_config": dict(_SETTINGS), "gateway": {"port": 0}}


async def _put_to_sleep(url: str) -> None:
    engine = await open_engine(EngineSpec(url=url), ElasticConfig())
    try:
        await engine.sleep()
    finally:
        await engine.close()


async def _send(base_url: str, seconds: float, answers: _Answers) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=base_url, trust_env=False, timeout=60.0, limits=limits) as http:
        for share, clients in _COURSE:
            until = asyncio.get_running_loop().time() + share * seconds
            async with asyncio.TaskGroup() as group:
                for _ in range(clients):
                    group.create_task(_ask_until(http, until, answers))


async def _ask_until(http: httpx.AsyncClient, until: float, answers: _Answers) -> None:
    loop = asyncio.get_running_loop()
    body = {"model": _MODEL, "messages": [{"role": "user", "content": "Which way is the door?"}]}
    while (began := loop.time()) < until:
        try:
            reply = await http.post("/chat/completions", json=body)
        except httpx.HTTPError:
            answers.failed += 1
        else:
            answers.failed += not reply.is_success
            answers.took_s += [loop.time() - began] if reply.is_success else []
        await asyncio.sleep(_PAUSE_S)


def _tell(gateway: Gateway, answers: _Answers, took_s: float, *, as_json: bool) -> None:
    status = gateway.status()
    counts, workers = status.pool.counts, len(status.pool.workers)
    always_s = workers * took_s
    figures = {
        "answered": len(answers.took_s),
        "failed": answers.failed,
        "median_s": statistics.median(answers.took_s),
        "longest_s": max(answers.took_s),
        "took_s": took_s,
        "awake_worker_s": counts.awake_s,
        "always_awake_worker_s": always_s,
    }
    if as_json:
        print_json(figures | {"status": status_document(status)})
        return
    say(
        f"{figures['answered']} of {figures['answered'] + answers.failed} requests answered, in "
        f"{figures['median_s']:.2f} s (median) and {figures['longest_s']:.2f} s (longest); "
        f"{counts.handed_over} handed over, {counts.lost} lost."
    )
    asleep = status.pool.count(WorkerState.INACTIVE)
    say(
        f"{counts.awake_s:.0f} worker-seconds awake; {always_s:.0f} if all {workers} had always been. At the end "
        f"{asleep} of {workers} slept. `headgate elastic fake-engine` and `headgate elastic serve` do it by hand."
    )


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How large and how fast a simulated engine is."""

    slots: Annotated[int, Parameter(help="Requests that it runs at once.")] = 8
    reply_tokens: Annotated[int, Parameter(help="Tokens of an answer, as far as the request allows.")] = 64
    token_s: Annotated[float, Parameter(help="Seconds for each token of an answer.")] = 0.02
    prompt_token_s: Annotated[float, Parameter(help="Seconds for each token of a prompt.")] = 0.0001
    resume_s: Annotated[float, Parameter(help="Seconds that it takes to wake.")] = 1.0
    release_s: Annotated[float, Parameter(help="Seconds that it takes to go to sleep.")] = 0.2

    def plan(self, api: Api, model: str) -> EnginePlan:
        """Return the engine; raises InvalidInputError for a value that breaks a rule."""
        return EnginePlan(api=api, model=model, **asdict(self))


def fake_engine(
    *,
    kind: Annotated[Api, Parameter(help="Whose HTTP API it speaks.")] = "sglang",
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port; 0 takes a free one.")] = 30_000,
    model: Annotated[str, Parameter(help="Name that it serves.")] = "fake-model",
    speed: Speed | None = None,
) -> int:
    """Serve a simulated engine that speaks SGLang's or vLLM's HTTP API, to try an elastic pool without a GPU.

    The options set how long answers are and how long they take; their text means nothing. The engine queues, streams,
    counts, sleeps and wakes as real ones do. Ctrl-C ends it once its requests are answered.
    """
    plan = (speed or Speed()).plan(kind, model)
    say(
        f"A simulated {kind} engine of {plan.slots} slots, and no language model: its answers mean nothing", stderr=True
    )
    asyncio.run(run_engine(plan, host=host, port=port))
    return 0
