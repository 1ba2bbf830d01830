"""The HTTP API of SGLang 0.5.23: the routes that a pool and its clients call.

From its sources: an exception in its scheduler process ends the whole server (SIGQUIT). So the assertion of
`release_memory_occupation` on a busy engine, the KeyError of `resume_memory_occupation` on a tag that is not released,
the `exit(1)` of its memory saver on a tag that is released already, and a request scheduled while memory is released
all kill the engine here, breaking the connections without an answer. No route reports what is released.
`/abort_request` matches by prefix once the id is known: aborting `a-1` aborts `a-10`, too. An aborted request is
answered 200 with the text so far, `finish_reason` "abort".

Assumed: `/v1/loads` and `/server_info` require the API key like any other route; a server that drains after SIGTERM
refuses new requests.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from contextlib import aclosing
from typing import Final, NoReturn

from aiohttp import web

from headgate.simulation.engines.core import EngineCore, EngineRequest
from headgate.simulation.engines.face import Face, Handler, bears, generate, is_there, json_response, never
from headgate.simulation.engines.plan import KV_CACHE, WEIGHTS
from headgate.simulation.engines.wire import CHAT, COMPLETIONS, OpenAIAnswer, RefusedError, read_document, read_openai

_OPEN: Final = ("/health", "/ready")
_ADMIN: Final = frozenset(
    (
        "/flush_cache",
        "/release_memory_occupation",
        "/resume_memory_occupation",
        "/update_weights_from_disk",
        "/abort_request",
    )
)


class SGLangFace(Face):
    """The routes of SGLang over one core."""

    def __init__(self, core: EngineCore) -> None:
        super().__init__(core)
        self._random_seed = random.SystemRandom().getrandbits(30)
        """Drawn at its start: it distinguishes one process of a server from the next."""

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""
        app.router.add_get("/ready", self._health)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/loads", self._loads)
        app.router.add_get("/server_info", self._server_info)
        app.router.add_get("/model_info", self._model_info)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/flush_cache", self._flush)
        app.router.add_post("/release_memory_occupation", self._release)
        app.router.add_post("/resume_memory_occupation", self._resume)
        app.router.add_post("/update_weights_from_disk", self._update_weights)
        app.router.add_post("/abort_request", self._abort)
        app.router.add_post(CHAT, self._openai)
        app.router.add_post(COMPLETIONS, self._openai)
        app.router.add_post("/generate", self._generate)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the key, and turn refusals into answers."""
        if not self._may_enter(request):
            return json_response({"error": "Unauthorized"}, 401)
        try:
            return await handler(request)
        except RefusedError as error:
            kind = "BadRequestError" if error.status == 400 else "InternalServerError"
            body = {"object": "error", "message": str(error), "type": kind, "param": None, "code": error.status}
            return json_response(body, error.status)

    def _may_enter(self, http: web.Request) -> bool:
        if http.path in _OPEN:
            return True
        key = (http.path in _ADMIN and self._plan.admin_key) or self._plan.api_key
        return not key or bears(http, key) or http.headers.get("x-api-key") == key

    async def _loads(self, _: web.Request) -> web.Response:
        """Return one entry per data-parallel rank, of which there is one here."""
        rank = {
            "dp_rank": 0,
            "num_running_reqs": len(self._core.running),
            "num_waiting_reqs": len(self._core.waiting),
            "num_used_tokens": self._core.used_tokens,
            "max_total_num_tokens": self._plan.token_room,
            "max_running_requests": self._plan.slots,
        }
        return json_response({"loads": [rank]})

    async def _server_info(self, _: web.Request) -> web.Response:
        return json_response(
            {
                "model_path": self._plan.model,
                "served_model_name": self._plan.model,
                "enable_memory_saver": self._plan.has_memory_saver,
                "enable_weights_cpu_backup": self._plan.has_weights_backup,
                "max_running_requests": self._plan.slots,
                "max_total_num_tokens": self._plan.token_room,
                "random_seed": self._random_seed,
                "tp_size": 1,
                "dp_size": 1,
                "status": "ready",
                "version": "0.5.23",
            }
        )

    async def _model_info(self, _: web.Request) -> web.Response:
        """Return what an SGLang gateway asks a new worker for."""
        return json_response(
            {"model_path": self._plan.model, "tokenizer_path": self._plan.model, "is_generation": True}
        )

    async def _flush(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self._core.is_idle else 400)

    async def _release(self, http: web.Request) -> web.Response:
        tags = await self._tags(http)
        async with self._core.turn:
            if not self._core.is_idle:
                await self._die("AssertionError: release_memory_occupation should be called only when server is idle.")
            twice = [tag for tag in tags if tag in self._core.released]
            if twice and self._plan.has_memory_saver:
                await self._die(f"torch_memory_saver: Cannot pause allocation that is not active. tag={twice[0]}")
            await self._core.release(tags)
        return json_response(None)

    async def _resume(self, http: web.Request) -> web.Response:
        tags = await self._tags(http)
        async with self._core.turn:
            if missing := [tag for tag in tags if tag not in self._core.released]:
                await self._die(f"KeyError: {missing[0]!r}, in resume_memory_occupation")
            await self._core.take(tags)
        return json_response(None)

    async def _update_weights(self, http: web.Request) -> web.Response:
        path = str(read_document(await http.read()).get("model_path"))
        if not is_there(path):
            return json_response({"success": False, "message": f"Failed to load {path}."}, 400)
        if self._core.released:
            await self._die("RuntimeError: CUDA error: invalid argument, in update_weights_from_disk")
        return json_response({"success": True, "message": "Succeeded to update model weights."})

    async def _die(self, reason: str) -> NoReturn:
        self._core.die(reason)
        await never()

    async def _tags(self, http: web.Request) -> list[str]:
        tags = read_document(await http.read()).get("tags")
        return [str(tag) for tag in tags] if tags else [KV_CACHE, WEIGHTS]

    async def _abort(self, http: web.Request) -> web.Response:
        """Answer at once; the matching requests end afterwards."""
        rid = str(read_document(await http.read()).get("rid", ""))
        if self._core.knows(rid):
            asyncio.get_running_loop().call_soon(self._core.abort, lambda known: known.startswith(rid))
        return web.Response()

    async def _openai(self, http: web.Request) -> web.StreamResponse:
        if self.is_leaving:
            raise RefusedError(503, "The server is shutting down.")
        asked = read_openai(http.path, await http.read())
        rid = asked.document.get("rid") or uuid.uuid4().hex
        if not isinstance(rid, str):
            raise RefusedError(400, f"rid must be a string for one prompt (got {rid!r:.80})")
        if self._core.knows(rid):
            raise RefusedError(400, f"Duplicate request ID detected: {rid}")
        request = asked.request(rid, self._plan.reply_tokens, self._plan.token_room)
        answer = OpenAIAnswer(http.path, rid, asked.model or self._plan.model, request)
        return await generate(http, self._core, asked, answer)

    async def _generate(self, _: web.Request) -> web.Response:
        """Generate one token, by which a pool checks that an engine works again."""
        request = EngineRequest(uuid.uuid4().hex, ("",), 1, 1)
        async with aclosing(self._core.serve(request)) as tokens:
            async for _token in tokens:
                pass
        return json_response({"text": request.text()})
