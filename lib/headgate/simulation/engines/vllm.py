"""The HTTP face of vLLM 0.33.

What an adapter has to know: routes that change the engine exist in dev mode only, and the API key does not guard them;
`wake_up` with a tag that is not asleep is answered 200 and wakes nothing at all; a request is aborted by the id that
its answer bears (`chatcmpl-…`, `cmpl-…-0`), not by the X-Request-Id that it is made from; an aborted request is
answered 200 with what it has, `finish_reason` "abort"; a stream's headers come before it has a slot.

Assumed: without `--enable-sleep-mode` `/sleep` is answered 200 and frees nothing; `/release_kv_cache_memory` aborts
what runs, as `/sleep` does by itself; new requests are answered 503 until everything is awake again, when `/wake_up`
says `{"status": "awake"}`; an empty list aborts all requests.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, Final, Literal, cast

from aiohttp import web

from headgate.simulation.engines.core import EngineCore
from headgate.simulation.engines.face import Handler, bears, exposition, generate, json_response
from headgate.simulation.engines.plan import KV_CACHE
from headgate.simulation.engines.wire import CHAT, COMPLETIONS, OpenAIAnswer, RefusedError, read_document, read_openai

VERSION: Final = "0.33.0"
_GUARDED: Final = ("/v1", "/v2", "/inference")
_ERRORS: Final = {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"}

PauseMode = Literal["abort", "wait", "keep"]


class VLLMFace:
    """The routes of vLLM over one core."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._plan = core.plan
        self._refuses = False
        self._in_service = 0
        self.is_leaving = False

    def add_to(self, app: web.Application) -> None:
        """Add the routes that this engine was started with."""
        app.router.add_get("/health", self._health)
        app.router.add_get("/ping", self._health)
        app.router.add_get("/load", self._load)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post(CHAT, self._openai)
        app.router.add_post(COMPLETIONS, self._openai)
        if self._plan.has_dev_mode:
            self._add_dev_to(app)

    def _add_dev_to(self, app: web.Application) -> None:
        app.router.add_post("/reset_prefix_cache", self._reset_prefix_cache)
        app.router.add_post("/pause", self._pause)
        app.router.add_post("/resume", self._resume)
        app.router.add_get("/is_paused", self._is_paused)
        app.router.add_post("/abort_requests", self._abort)
        app.router.add_post("/collective_rpc", self._collective_rpc)
        app.router.add_post("/sleep", self._sleep)
        app.router.add_post("/wake_up", self._wake_up)
        app.router.add_post("/release_kv_cache_memory", self._release_kv_cache)
        app.router.add_get("/is_sleeping", self._is_sleeping)
        app.router.add_get("/server_info", self._server_info)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in who has the right key, and turn refusals into answers."""
        key = self._plan.api_key
        if key and request.path.startswith(_GUARDED) and not bears(request, key):
            return json_response({"error": "Unauthorized"}, 401)
        try:
            return await handler(request)
        except RefusedError as error:
            kind = _ERRORS.get(error.status, "InternalServerError")
            body = {"message": str(error), "type": kind, "param": None, "code": error.status}
            return json_response({"error": body}, error.status)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.is_leaving else 200)

    async def _load(self, _: web.Request) -> web.Response:
        return json_response({"server_load": self._in_service if self._plan.tracks_load else 0})

    async def _version(self, _: web.Request) -> web.Response:
        return json_response({"version": VERSION})

    async def _metrics(self, _: web.Request) -> web.Response:
        return exposition(self._core)

    async def _models(self, _: web.Request) -> web.Response:
        card = {"id": self._plan.model, "object": "model", "created": 0, "owned_by": "vllm", "root": self._plan.model}
        return json_response({"object": "list", "data": [{**card, "max_model_len": self._plan.token_room}]})

    async def _server_info(self, http: web.Request) -> web.Response:
        config = {
            "model_config": {"model": self._plan.model, "enable_sleep_mode": self._plan.has_sleep_mode},
            "scheduler_config": {"max_num_seqs": self._plan.slots},
        }
        is_json = http.query.get("config_format") == "json"
        return json_response({"vllm_config": config if is_json else str(config)})

    async def _sleep(self, http: web.Request) -> web.Response:
        level, mode = int(http.query.get("level", "1")), _mode(http.query.get("mode", "abort"))
        await self._stop_generation(mode)
        if level >= 1:
            async with self._core.turn:
                self._core.counts["flushes"] += 1
                await self._core.release(self._core.memory.tags)
                self._core.memory.are_weights_lost |= level >= 2
        return web.Response()

    async def _wake_up(self, http: web.Request) -> web.Response:
        memory = self._core.memory
        tags = [tag for tag in http.query.getall("tags", []) if tag != "scheduling"]
        means_memory = bool(tags) or "tags" not in http.query
        async with self._core.turn:
            if any(tag not in memory.released for tag in tags):
                return web.Response()
            if means_memory:
                await self._core.take(tags or tuple(memory.released))
            if memory.released:
                return web.Response()
            self._refuses = False
            self._core.go_on()
        return json_response({"status": "awake"})

    async def _release_kv_cache(self, _: web.Request) -> web.Response:
        await self._stop_generation("abort")
        async with self._core.turn:
            self._core.counts["flushes"] += 1
            await self._core.release([KV_CACHE])
        return web.Response()

    async def _is_sleeping(self, _: web.Request) -> web.Response:
        return json_response({"is_sleeping": self._core.is_paused or bool(self._core.memory.released)})

    async def _pause(self, http: web.Request) -> web.Response:
        await self._stop_generation(_mode(http.query.get("mode", "abort")))
        return json_response({"status": "paused"})

    async def _resume(self, _: web.Request) -> web.Response:
        """Go on; a sleeping engine that is told so computes without its memory."""
        self._refuses = False
        self._core.go_on()
        return json_response({"status": "resumed"})

    async def _is_paused(self, _: web.Request) -> web.Response:
        return json_response({"is_paused": self._core.is_paused})

    async def _stop_generation(self, mode: PauseMode) -> None:
        self._refuses = mode != "keep" and not self._plan.queues_while_asleep
        self._core.pause(freezes=mode == "keep")
        if mode == "abort":
            self._core.abort(lambda _: True)
        elif mode == "wait":
            await self._core.bell.until(lambda: not self._core.running)

    async def _reset_prefix_cache(self, http: web.Request) -> web.Response:
        if http.query.get("reset_running_requests") in ("true", "1"):
            self._core.retract()
            return json_response({"success": True})
        self._core.counts["flushes"] += not self._core.running
        return json_response({"success": not self._core.running})

    async def _abort(self, http: web.Request) -> web.Response:
        document = read_document(await http.read())
        meant = document.get("request_ids")
        if not isinstance(meant, list):
            raise RefusedError(400, "Missing 'request_ids' in request body")
        asyncio.get_running_loop().call_soon(self._core.abort, lambda known: not meant or known in meant)
        return web.Response()

    async def _collective_rpc(self, http: web.Request) -> web.Response:
        """Load the weights again, which is what an engine needs after level 2."""
        method = read_document(await http.read()).get("method")
        if method != "reload_weights":
            raise RefusedError(400, f"this fake engine knows the method reload_weights only (got {method!r})")
        self._core.memory.are_weights_lost = False
        return json_response({"results": [None]})

    async def _openai(self, http: web.Request) -> web.StreamResponse:
        asked = read_openai(http.path, await http.read())
        if asked.model and asked.model != self._plan.model:
            raise RefusedError(404, f"The model `{asked.model}` does not exist.")
        if self._refuses or self.is_leaving:
            raise RefusedError(503, "The engine is paused and takes no new requests; try again later.")
        answer_id, request_id = _ids(http, asked.document.get("request_id"))
        request = asked.request(request_id, self._plan.reply_tokens, self._plan.token_room)
        answer = OpenAIAnswer(http.path, answer_id, self._plan.model, request)
        self._in_service += 1
        try:
            return await generate(
                http, self._core, request, answer, streams=asked.streams, wants_usage=asked.wants_usage
            )
        finally:
            self._in_service -= 1


def _mode(written: str) -> PauseMode:
    if written not in ("abort", "wait", "keep"):
        raise RefusedError(400, f"Invalid pause mode: {written}")
    return cast("PauseMode", written)


def _ids(http: web.Request, written: Any) -> tuple[str, str]:
    """Return the id that the answer bears, and the one by which the engine knows the request."""
    given = http.headers.get("X-Request-Id") or str(written or uuid.uuid4().hex)
    answer_id = f"chatcmpl-{given}" if http.path == CHAT else f"cmpl-{given}"
    return answer_id, answer_id if http.path == CHAT else f"{answer_id}-0"
