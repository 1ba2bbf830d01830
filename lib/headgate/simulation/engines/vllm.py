"""The HTTP API of vLLM 0.33: the routes that a pool and its clients call.

What an adapter must know: routes that change the engine exist only in dev mode, and the API key does not protect them;
`wake_up` with a tag that is not asleep is answered 200 and wakes nothing at all; a request is aborted by the id in its
answer (`chatcmpl-…`, `cmpl-…-0`), not by the X-Request-Id from which it is made; an aborted request is answered 200
with the text so far, `finish_reason` "abort"; a stream's headers are sent before it has a slot.

Assumed: without `--enable-sleep-mode` `/sleep` is answered 200 and frees nothing; new requests are answered 503 until
everything is awake again, when `/wake_up` returns `{"status": "awake"}`; an empty list aborts all requests.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Final

from aiohttp import web

from headgate.simulation.engines.core import EngineCore
from headgate.simulation.engines.face import Face, Handler, bears, generate, is_there, json_response
from headgate.simulation.engines.plan import KV_CACHE, WEIGHTS
from headgate.simulation.engines.wire import CHAT, COMPLETIONS, OpenAIAnswer, RefusedError, read_document, read_openai

_ERRORS: Final = {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"}


class VLLMFace(Face):
    """The routes of vLLM over one core."""

    def __init__(self, core: EngineCore) -> None:
        super().__init__(core)
        self._refuses = False

    def add_to(self, app: web.Application) -> None:
        """Add the routes that this engine was started with."""
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post(CHAT, self._openai)
        app.router.add_post(COMPLETIONS, self._openai)
        if self._plan.has_dev_mode:
            app.router.add_post("/reset_prefix_cache", self._reset_prefix_cache)
            app.router.add_get("/is_paused", self._is_paused)
            app.router.add_post("/abort_requests", self._abort)
            app.router.add_post("/collective_rpc", self._collective_rpc)
            app.router.add_post("/sleep", self._sleep)
            app.router.add_post("/wake_up", self._wake_up)
            app.router.add_get("/is_sleeping", self._is_sleeping)
            app.router.add_get("/server_info", self._server_info)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the key, and turn refusals into answers."""
        key = self._plan.api_key
        if key and request.path.startswith("/v1") and not bears(request, key):
            return json_response({"error": "Unauthorized"}, 401)
        try:
            return await handler(request)
        except RefusedError as error:
            kind = _ERRORS.get(error.status, "InternalServerError")
            body = {"message": str(error), "type": kind, "param": None, "code": error.status}
            return json_response({"error": body}, error.status)

    async def _version(self, _: web.Request) -> web.Response:
        return json_response({"version": "0.33.0"})

    async def _metrics(self, _: web.Request) -> web.Response:
        labels = f'engine="0",model_name="{self._plan.model}"'
        room = self._plan.token_room
        samples = {
            f"num_requests_running{{{labels}}}": len(self._core.running),
            f"num_requests_waiting{{{labels}}}": len(self._core.waiting),
            f"kv_cache_usage_perc{{{labels}}}": self._core.used_tokens / room,
            f'cache_config_info{{block_size="1",engine="0",num_gpu_blocks="{room}"}}': 1.0,
        }
        return web.Response(text="".join(f"vllm:{name} {float(value)}\n" for name, value in samples.items()))

    async def _server_info(self, _: web.Request) -> web.Response:
        config = {
            "model_config": {"model": self._plan.model, "enable_sleep_mode": self._plan.has_sleep_mode},
            "scheduler_config": {"max_num_seqs": self._plan.slots},
        }
        return json_response({"vllm_config": config})

    async def _sleep(self, http: web.Request) -> web.Response:
        mode = http.query.get("mode", "abort")
        if mode not in ("abort", "wait"):
            raise RefusedError(400, f"Invalid pause mode: {mode}")
        self._refuses = True
        self._core.pause()
        if mode == "abort":
            self._core.abort(lambda _: True)
        await self._core.bell.until(lambda: not self._core.running)
        async with self._core.turn:
            await self._core.release((WEIGHTS, KV_CACHE))
        return web.Response()

    async def _wake_up(self, http: web.Request) -> web.Response:
        tags = http.query.getall("tags", [])
        async with self._core.turn:
            if any(tag not in self._core.released for tag in tags):
                return web.Response()
            await self._core.take(tags or tuple(self._core.released))
            if self._core.released:
                return web.Response()
            self._refuses = False
            self._core.go_on()
        return json_response({"status": "awake"})

    async def _is_sleeping(self, _: web.Request) -> web.Response:
        return json_response({"is_sleeping": self._core.is_paused or bool(self._core.released)})

    async def _collective_rpc(self, http: web.Request) -> web.Response:
        """Run a method of the workers; only `reload_weights` is supported."""
        asked = read_document(await http.read())
        path = str((asked.get("kwargs") or {}).get("weights_path"))
        if asked.get("method") != "reload_weights" or self._core.released or not is_there(path):
            raise RefusedError(500, f"{asked.get('method')} failed on {path}")
        return json_response({"results": [None]})

    async def _is_paused(self, _: web.Request) -> web.Response:
        return json_response({"is_paused": self._core.is_paused})

    async def _reset_prefix_cache(self, _: web.Request) -> web.Response:
        return json_response({"success": not self._core.running})

    async def _abort(self, http: web.Request) -> web.Response:
        meant = read_document(await http.read()).get("request_ids")
        if not isinstance(meant, list):
            raise RefusedError(400, "Missing 'request_ids' in request body")
        asyncio.get_running_loop().call_soon(self._core.abort, lambda known: not meant or known in meant)
        return web.Response()

    async def _openai(self, http: web.Request) -> web.StreamResponse:
        asked = read_openai(http.path, await http.read())
        if asked.model and asked.model != self._plan.model:
            raise RefusedError(404, f"The model `{asked.model}` does not exist.")
        if self._refuses or self.is_leaving:
            raise RefusedError(503, "The engine is paused and takes no new requests; try again later.")
        given = http.headers.get("X-Request-Id") or uuid.uuid4().hex
        answer_id = f"chatcmpl-{given}" if http.path == CHAT else f"cmpl-{given}"
        request_id = answer_id if http.path == CHAT else f"{answer_id}-0"
        request = asked.request(request_id, self._plan.reply_tokens, self._plan.token_room)
        return await generate(http, self._core, asked, OpenAIAnswer(http.path, answer_id, self._plan.model, request))
