"""The HTTP face of SGLang 0.5.23.

From its sources: an exception in its scheduler process ends the whole server (SIGQUIT). So the assertion of
`release_memory_occupation` on a busy engine, the KeyError of `resume_memory_occupation` on a tag that is not released,
the `exit(1)` of its memory saver on a tag that is released already, and a request that is scheduled while memory is
released are deaths here, with the connections broken and no answer. It tells nowhere what is released.
`/abort_request` matches by prefix once the id is known: aborting `a-1` aborts `a-10`, too. An aborted request is
answered 200 with what it has, `finish_reason` "abort".

Assumed: `/v1/loads`, `/server_info` and `/model_info` ask for the API key like any other route; a server that drains
after SIGTERM refuses new requests.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from aiohttp import web

from headgate.simulation.engines.core import EngineCore, EngineRequest
from headgate.simulation.engines.face import Handler, bears, exposition, generate, json_response, never, throughput
from headgate.simulation.engines.plan import KV_CACHE, EnginePlan
from headgate.simulation.engines.wire import (
    CHAT,
    COMPLETIONS,
    DONE,
    Asked,
    OpenAIAnswer,
    RefusedError,
    event,
    read_document,
    read_openai,
    words_of,
)

VERSION: Final = "0.5.23"
ALL: Final = frozenset(("all",))
SECTIONS: Final = ALL | {"core", "memory", "spec", "lora", "disagg", "queues"}


def loads(core: EngineCore, include: frozenset[str]) -> dict[str, Any]:
    """Return the body of `/v1/loads`: one entry for each data-parallel rank, of which there is one here."""
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "version": VERSION,
        "accelerator": None,
        "num_accelerators": 1,
        "loads": [_rank(core, include)],
    }


def loads_as_text(core: EngineCore, include: frozenset[str]) -> str:
    """Return the same as Prometheus reads it; numbers of the core section only."""
    numbers = _rank(core, include & {"core"})
    rank = numbers.pop("dp_rank")
    return "".join(
        f'# TYPE sglang_{name} gauge\nsglang_{name}{{dp_rank="{rank}"}} {value}\n' for name, value in numbers.items()
    )


def server_info(plan: EnginePlan, random_seed: int) -> dict[str, Any]:
    """Return the body of `/server_info`."""
    state = {"effective_max_running_requests_per_dp": plan.slots, "memory_usage": _memory_gb(plan)}
    return {
        "model_path": plan.model,
        "served_model_name": plan.model,
        "enable_memory_saver": plan.has_memory_saver,
        "enable_weights_cpu_backup": plan.has_weights_backup,
        "enable_metrics": plan.has_metrics,
        "max_running_requests": plan.slots,
        "max_total_num_tokens": plan.token_room,
        "random_seed": random_seed,
        "tp_size": 1,
        "dp_size": 1,
        "status": "ready",
        "internal_states": [state],
        "version": VERSION,
    }


def model_info(plan: EnginePlan) -> dict[str, Any]:
    """Return the body of `/model_info`."""
    return {
        "model_path": plan.model,
        "tokenizer_path": plan.model,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
    }


def models(plan: EnginePlan) -> dict[str, Any]:
    """Return the body of `/v1/models`."""
    card = {"id": plan.model, "object": "model", "created": 0, "owned_by": "sglang", "root": plan.model}
    return {"object": "list", "data": [{**card, "max_model_len": plan.token_room}]}


def _rank(core: EngineCore, include: frozenset[str]) -> dict[str, Any]:
    waiting_tokens = sum(request.tokens for request in core.waiting.values())
    rank: dict[str, Any] = {
        "dp_rank": 0,
        "num_running_reqs": core.running_count,
        "num_waiting_reqs": len(core.waiting),
        "num_waiting_uncached_tokens": waiting_tokens,
        "num_used_tokens": core.used_tokens,
        "num_total_tokens": core.used_tokens + waiting_tokens,
        "max_total_num_tokens": core.plan.token_room,
        "max_running_requests": core.plan.slots,
        "token_usage": round(core.used_tokens / core.plan.token_room, 4),
        "gen_throughput": throughput(core),
        "cache_hit_rate": 0.0,
        "utilization": round(core.running_count / core.plan.slots, 4),
    }
    if include & {"all", "memory"}:
        rank["memory"] = _memory_gb(core.plan)
    if include & {"all", "queues"}:
        paused = len(core.running) if core.is_frozen else 0
        rank["queues"] = {"waiting": len(core.waiting), "grammar": 0, "paused": paused, "retracted": 0}
    return rank


def _memory_gb(plan: EnginePlan) -> dict[str, float]:
    """Return what was allocated at the start; a release does not change it (as in SGLang)."""
    return {"weight_gb": 16.0, "kv_cache_gb": 8.0, "graph_gb": 0.5, "token_capacity": plan.token_room}


_HEALTH_TIMEOUT_S: Final = 20.0
_OPEN: Final = ("/health", "/ready", "/metrics")
_ADMIN: Final = frozenset(
    (
        "/flush_cache",
        "/release_memory_occupation",
        "/resume_memory_occupation",
        "/pause_generation",
        "/continue_generation",
        "/abort_request",
    )
)


class SGLangFace:
    """The routes of SGLang over one core."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._plan = core.plan
        self._random_seed = random.SystemRandom().getrandbits(30)
        """Drawn at its start: what tells one life of a server from the next."""
        self.is_leaving = False

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""
        routes: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            "/ready": self._ready,
            "/health": self._health,
            "/health_generate": self._health,
            "/v1/loads": self._loads,
            "/server_info": self._server_info,
            "/get_server_info": self._server_info,
            "/model_info": self._model_info,
            "/get_model_info": self._model_info,
            "/v1/models": self._models,
        }
        if self._plan.has_metrics:
            routes["/metrics"] = self._metrics
        for path, handler in routes.items():
            app.router.add_get(path, handler)
        for path, handler in (
            ("/flush_cache", self._flush),
            ("/release_memory_occupation", self._release),
            ("/resume_memory_occupation", self._resume),
        ):
            app.router.add_get(path, handler)
            app.router.add_post(path, handler)
        app.router.add_post("/pause_generation", self._pause)
        app.router.add_post("/continue_generation", self._continue)
        app.router.add_post("/abort_request", self._abort)
        app.router.add_post(CHAT, self._openai)
        app.router.add_post(COMPLETIONS, self._openai)
        app.router.add_post("/generate", self._generate)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in who has the right key, and turn refusals into answers."""
        if not self._may_enter(request):
            return json_response({"error": "Unauthorized"}, 401)
        try:
            return await handler(request)
        except RefusedError as error:
            kind = "BadRequestError" if error.status == 400 else "InternalServerError"
            body = {"object": "error", "message": str(error), "type": kind, "param": None, "code": error.status}
            return json_response(body, error.status)

    def _may_enter(self, http: web.Request) -> bool:
        if http.path.startswith(_OPEN):
            return True
        key = self._plan.api_key
        if http.path in _ADMIN and self._plan.admin_key:
            key = self._plan.admin_key
        return not key or bears(http, key) or http.headers.get("x-api-key") == key

    async def _ready(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.is_leaving else 200)

    async def _health(self, _: web.Request) -> web.Response:
        """Generate one token, unless others are being generated anyway."""
        if self.is_leaving:
            return web.Response(status=503)
        await asyncio.sleep(self._plan.health_s)
        if self._core.running:
            return web.Response()
        probe = EngineRequest(f"HEALTH_CHECK_{uuid.uuid4().hex}", ("",), 1, 1, is_probe=True, may_pass=True)
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_S), aclosing(self._core.serve(probe)) as tokens:
                async for _token in tokens:
                    pass
        except TimeoutError:
            return web.Response(status=503)
        return web.Response()

    async def _metrics(self, _: web.Request) -> web.Response:
        return exposition(self._core)

    async def _loads(self, http: web.Request) -> web.Response:
        written = http.query.get("include")
        include = frozenset(section.strip() for section in written.split(",")) if written else ALL
        if unknown := include - SECTIONS:
            return json_response({"detail": f"Invalid include sections: {sorted(unknown)}"}, 400)
        if http.query.get("format") == "prometheus":
            return web.Response(text=loads_as_text(self._core, include))
        return json_response(loads(self._core, include))

    async def _server_info(self, _: web.Request) -> web.Response:
        return json_response(server_info(self._plan, self._random_seed))

    async def _model_info(self, _: web.Request) -> web.Response:
        return json_response(model_info(self._plan))

    async def _models(self, _: web.Request) -> web.Response:
        return json_response(models(self._plan))

    async def _flush(self, http: web.Request) -> web.Response:
        timeout_s = float(http.query.get("timeout", 0))
        try:
            async with asyncio.timeout(timeout_s):
                await self._core.bell.until(lambda: self._core.is_idle)
        except TimeoutError:
            pass
        if self._core.is_idle:
            self._core.counts["flushes"] += 1
        text = (
            "Cache flushed.\nPlease check backend logs for more details. "
            "(When there are running or waiting requests, the operation will not be performed.)\n"
        )
        return web.Response(text=text, status=200 if self._core.is_idle else 400)

    async def _release(self, http: web.Request) -> web.Response:
        tags = await self._tags(http)
        async with self._core.turn:
            if not self._core.is_idle:
                await self._die("AssertionError: release_memory_occupation should be called only when server is idle.")
            twice = [tag for tag in tags if tag in self._core.memory.released]
            if twice and self._plan.has_memory_saver:
                await self._die(f"torch_memory_saver: Cannot pause allocation that is not active. tag={twice[0]}")
            if KV_CACHE in tags:
                self._core.counts["flushes"] += 1
            await self._core.release(tags)
        return json_response(None)

    async def _resume(self, http: web.Request) -> web.Response:
        tags = await self._tags(http)
        async with self._core.turn:
            if missing := [tag for tag in tags if tag not in self._core.memory.released]:
                await self._die(f"KeyError: {missing[0]!r}, in resume_memory_occupation")
            await self._core.take(tags)
        return json_response(None)

    async def _die(self, reason: str) -> NoReturn:
        self._core.die(reason)
        await never()

    async def _tags(self, http: web.Request) -> list[str]:
        tags = read_document(await http.read()).get("tags")
        return [str(tag) for tag in tags] if tags else sorted(self._core.memory.tags)

    async def _pause(self, http: web.Request) -> web.Response:
        mode = read_document(await http.read()).get("mode", "abort")
        if mode not in ("abort", "retract", "in_place"):
            raise RefusedError(400, f"mode must be abort, retract or in_place (got {mode!r})")
        self._core.pause(freezes=mode == "in_place")
        if mode == "abort":
            self._core.abort(lambda _: True)
        elif mode == "retract":
            self._core.retract()
        return json_response({"message": "Generation paused successfully.", "status": "ok"})

    async def _continue(self, _: web.Request) -> web.Response:
        self._core.go_on()
        return json_response({"message": "Generation continued successfully.", "status": "ok"})

    async def _abort(self, http: web.Request) -> web.Response:
        """Answer at once; what is meant ends afterwards."""
        document = read_document(await http.read())
        rid, means_all = str(document.get("rid", "")), bool(document.get("abort_all"))
        if means_all or self._core.knows(rid):
            loop = asyncio.get_running_loop()
            loop.call_soon(self._core.abort, lambda known: means_all or known.startswith(rid))
        return web.Response()

    async def _openai(self, http: web.Request) -> web.StreamResponse:
        self._refuse_when_leaving()
        asked = read_openai(http.path, await http.read())
        request = asked.request(self._new_id(asked.document), self._plan.reply_tokens, self._plan.token_room)
        answer = OpenAIAnswer(http.path, request.request_id, asked.model or self._plan.model, request)
        return await generate(http, self._core, request, answer, streams=asked.streams, wants_usage=asked.wants_usage)

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        self._refuse_when_leaving()
        asked = read_native(await http.read())
        request = asked.request(self._new_id(asked.document), self._plan.reply_tokens, self._plan.token_room)
        return await generate(
            http, self._core, request, NativeAnswer(request), streams=asked.streams, wants_usage=False
        )

    def _new_id(self, document: Any) -> str:
        rid = document.get("rid") or uuid.uuid4().hex
        if not isinstance(rid, str):
            raise RefusedError(400, f"rid must be a string for one prompt (got {rid!r:.80})")
        if self._core.knows(rid):
            raise RefusedError(400, f"Duplicate request ID detected: {rid}")
        return rid

    def _refuse_when_leaving(self) -> None:
        if self.is_leaving:
            raise RefusedError(503, "The server is shutting down.")


def read_native(body: bytes) -> Asked:
    """Return what the body of `/generate` asks for.

    Raises:
        RefusedError: naming what is wrong with it.
    """
    document = read_document(body)
    sampling = document.get("sampling_params") or {}
    if not isinstance(sampling, dict):
        raise RefusedError(400, "sampling_params must be an object")
    ids = document.get("input_ids")
    prompt = tuple(str(token) for token in ids) if isinstance(ids, list) else words_of(document.get("text"))
    return Asked(
        document=document,
        model="",
        prompt=prompt or ("",),
        max_tokens=int(sampling.get("max_new_tokens", 128)),
        ignores_end=bool(sampling.get("ignore_eos")),
        streams=bool(document.get("stream")),
        wants_usage=False,
    )


class NativeAnswer:
    """Writes the answer of one request in SGLang's own form."""

    def __init__(self, request: EngineRequest) -> None:
        self._request = request

    def whole(self) -> dict[str, Any]:
        """Return the text so far and what is known about it."""
        request = self._request
        finish: dict[str, Any] | None = {"type": request.finish} if request.finish else None
        if finish and request.finish == "length":
            finish["length"] = request.generated
        return {
            "text": request.text(),
            "output_ids": list(range(request.generated)),
            "meta_info": {
                "id": request.request_id,
                "finish_reason": finish,
                "prompt_tokens": request.prompt_tokens,
                "completion_tokens": request.generated,
                "cached_tokens": 0,
                "weight_version": "default",
            },
        }

    def opening(self) -> bytes:
        """Return nothing: there is no role here."""
        return b""

    def piece(self) -> bytes:
        """Return an event with the whole answer so far."""
        return event(self.whole())

    def closing(self, *, with_usage: bool) -> bytes:  # noqa: ARG002
        """Return the end; an aborted answer has an event of its own."""
        return (event(self.whole()) if self._request.finish == "abort" else b"") + DONE
