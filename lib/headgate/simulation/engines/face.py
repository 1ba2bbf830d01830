"""What the HTTP faces of both APIs have in common: generation over HTTP, faults before the routes, who may enter."""

from __future__ import annotations

import asyncio
import hmac
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol

import orjson
from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from headgate.simulation.engines.core import EngineCore, EngineRequest

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

GENERATION: Final = frozenset({"/v1/chat/completions", "/v1/completions", "/generate"})


class Answer(Protocol):
    """Writes an answer in the form of one API."""

    def whole(self) -> dict[str, Any]:
        """Return the body of an answer in one piece."""
        ...

    def opening(self) -> bytes:
        """Return what is sent before the first token."""
        ...

    def piece(self) -> bytes:
        """Return what has been generated since the last piece."""
        ...

    def closing(self, *, with_usage: bool) -> bytes:
        """Return the events that end an answer."""
        ...


@dataclass(slots=True)
class Failure:
    """Calls that are to be answered with a failure.

    Attributes:
        left: how many still.
        status: HTTP status of them.
        path: of the calls that are meant; None for all control routes.
        is_carried_out: the call takes effect although it is answered so, as when a proxy gave up too early.
    """

    left: int
    status: int = 502
    path: str | None = None
    is_carried_out: bool = False


class Trouble:
    """What happens to calls before they reach a route. Owned by one engine."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self.calls: list[str] = []
        self.hanging: set[str] = set()
        self._under_way: set[asyncio.Future[web.StreamResponse]] = set()
        self.failures: deque[Failure] = deque()
        if core.plan.faults.fail_first:
            self.failures.append(Failure(core.plan.faults.fail_first, core.plan.faults.fail_status))

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Record a call, and have it hang, fail or pass.

        A control call that has arrived is carried out, also where nobody waits for its answer any more; a request ends
        when its client goes away.
        """
        self.calls.append(f"{request.method} {request.path}")
        self._core.bell.ring()
        if request.path in GENERATION:
            return await self._carry_out(request, handler)
        await request.read()
        call = asyncio.ensure_future(self._carry_out(request, handler))
        self._under_way.add(call)
        call.add_done_callback(self._under_way.discard)
        return await asyncio.shield(call)

    def close(self) -> None:
        """Give up what is still being carried out."""
        for call in self._under_way:
            call.cancel()

    async def _carry_out(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        await self._pass_gate(request.path)
        if (failure := self._failure(request.path)) is None:
            answer = await handler(request)
        else:
            if failure.is_carried_out:
                await handler(request)
            answer = web.Response(status=failure.status, text="<html><h1>Bad Gateway</h1></html>")
        await self._pass_gate(request.path)
        if self._core.died_of:
            await never()
        return answer

    async def _pass_gate(self, path: str) -> None:
        await self._core.bell.until(lambda: not self._core.is_stopped and path not in self.hanging)

    def _failure(self, path: str) -> Failure | None:
        for failure in self.failures:
            if path == failure.path or (failure.path is None and path not in GENERATION):
                failure.left -= 1
                if not failure.left:
                    self.failures.remove(failure)
                return failure
        return None


async def generate(
    http: web.Request, core: EngineCore, request: EngineRequest, answer: Answer, *, streams: bool, wants_usage: bool
) -> web.StreamResponse:
    """Serve `request`, and answer the call with it; a client that goes away aborts it."""
    async with aclosing(core.serve(request)) as tokens:
        if not streams:
            async for _ in tokens:
                pass
            return json_response(answer.whole())
        return await _stream(http, core, tokens, answer, wants_usage)


async def _stream(
    http: web.Request, core: EngineCore, tokens: AsyncIterator[int], answer: Answer, wants_usage: bool
) -> web.StreamResponse:
    """Send events as tokens come.

    vLLM sends its headers before a request has a slot, SGLang only with the first token (it begins to generate first,
    so that a refusal can still be a status).
    """
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    if core.plan.api == "vllm":
        await response.prepare(http)
    opening = answer.opening()
    async for _ in tokens:
        if not response.prepared:
            await response.prepare(http)
        if piece := opening + answer.piece():
            await response.write(piece)
        opening = b""
    if not response.prepared:
        await response.prepare(http)
    await response.write_eof(answer.closing(with_usage=wants_usage))
    return response


async def never() -> NoReturn:
    """Wait until the connection is gone."""
    await asyncio.Event().wait()
    raise AssertionError("an event that nobody sets was set")


def json_response(document: Any, status: int = 200) -> web.Response:
    """Return a JSON answer."""
    return web.Response(body=orjson.dumps(document), status=status, content_type="application/json")


def bears(http: web.Request, key: str) -> bool:
    """Return whether a call brings `key` as its bearer token."""
    scheme, _, token = http.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(token.encode(), key.encode())


_STATES: Final = ("awake", "weights_offloaded", "discard_all")


def exposition(core: EngineCore) -> web.Response:
    """Return the metrics of an engine as Prometheus reads them."""
    registry = CollectorRegistry()
    registry.register(_Collector(core))
    return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


class _Collector(Collector):
    def __init__(self, core: EngineCore) -> None:
        self._core = core

    def collect(self) -> Iterator[Metric]:
        """Yield the families of the API that the engine speaks."""
        return _sglang(self._core) if self._core.plan.api == "sglang" else _vllm(self._core)


def _sglang(core: EngineCore) -> Iterator[Metric]:
    labels = {"engine_type": "unified", "model_name": core.plan.model, "pp_rank": "0", "tp_rank": "0"}
    usage = core.used_tokens / core.plan.token_room
    gauges = {
        "num_running_reqs": core.running_count,
        "num_queue_reqs": len(core.waiting),
        "num_used_tokens": core.used_tokens,
        "token_usage": usage,
        "utilization": core.running_count / core.plan.slots,
        "gen_throughput": throughput(core),
        "cache_hit_rate": 0.0,
        "num_paused_reqs": len(core.running) if core.is_frozen else 0,
        "num_retracted_reqs": core.counts["retracted"],
    }
    for name, value in gauges.items():
        yield _gauge(f"sglang:{name}", labels, value)
    for name, key in (("prompt_tokens", "prompt_tokens"), ("generation_tokens", "tokens"), ("num_requests", "ended")):
        yield _counter(f"sglang:{name}", labels, core.counts[key])


def _vllm(core: EngineCore) -> Iterator[Metric]:
    labels = {"engine": "0", "model_name": core.plan.model}
    yield _gauge("vllm:num_requests_running", labels, core.running_count)
    yield _gauge("vllm:num_requests_waiting", labels, len(core.waiting))
    reasons = GaugeMetricFamily("vllm:num_requests_waiting_by_reason", "waiting", labels=[*labels, "reason"])
    reasons.add_metric([*labels.values(), "capacity"], len(core.waiting))
    reasons.add_metric([*labels.values(), "deferred"], 0)
    yield reasons
    yield _gauge("vllm:kv_cache_usage_perc", labels, core.used_tokens / core.plan.token_room)
    cache = {"engine": "0", "block_size": "1", "num_gpu_blocks": str(core.plan.token_room)}
    yield _gauge("vllm:cache_config_info", cache, 1)
    asleep = "discard_all" if core.memory.are_weights_lost else "weights_offloaded"
    now = asleep if core.memory.released else "awake"
    sleep = GaugeMetricFamily("vllm:engine_sleep_state", "sleep state", labels=[*labels, "sleep_state"])
    for state in _STATES:
        sleep.add_metric([*labels.values(), state], float(state == now))
    yield sleep
    yield _counter("vllm:num_preemptions", labels, core.counts["retracted"])
    yield _counter("vllm:prompt_tokens", labels, core.counts["prompt_tokens"])
    yield _counter("vllm:generation_tokens", labels, core.counts["tokens"])
    success = CounterMetricFamily("vllm:request_success", "ended", labels=[*labels, "finished_reason"])
    for reason in ("stop", "length", "abort"):
        success.add_metric([*labels.values(), reason], core.counts[reason])
    yield success


def throughput(core: EngineCore) -> float:
    """Return generated tokens per second, as the plan has them."""
    return len(core.running) / core.plan.token_s if core.plan.token_s else 0.0


def _gauge(name: str, labels: Mapping[str, str], value: float) -> Metric:
    family = GaugeMetricFamily(name, name, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _counter(name: str, labels: Mapping[str, str], value: float) -> Metric:
    family = CounterMetricFamily(name, name, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family
